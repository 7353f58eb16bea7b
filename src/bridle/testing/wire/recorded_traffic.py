"""Reads recorded exchanges from files made by other tools.

A recording is one real exchange: a request body, a status, headers, and the bytes of the reply. Recordings
are JSON lines, optionally gzipped; their format is described next to them.

Rule 1: one bad line must not hide the good ones. A line that is not JSON, a record without a required field,
a file that ends in the middle: each becomes a recording that states the error.
Rule 2: only bytes of a real exchange are judged. Recordings that were written by hand, or rebuilt from parsed
objects, state why they are not judged.
"""

import gzip
import json
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from bridle.ports.codec import HttpRequest
from bridle.providers.wire.eventstream import encode_event
from bridle.values.base import Value

CUT_TAG = "truncated_stream"
"""Tag of recordings whose recorder stopped reading early."""
FAITHFUL_KINDS = ("raw", "parsed", "redacted")
"""Kinds of recordings that mean what was on the wire, whatever else the recorder did to them."""
_UNREADABLE = (KeyError, TypeError, AttributeError, UnicodeError, ValueError, RecursionError)


class TrafficRecord(Value, kw_only=True):
    id: str
    model: str
    request: HttpRequest | None
    status: int
    headers: dict[str, str]
    body: bytes
    tags: tuple[str, ...] = ()
    family: str = ""
    host: str = ""
    stop: str = ""
    """The provider's own stop reason, as the recorder noted it."""
    unreadable_reason: str = ""
    """Reason why the recording itself cannot be read."""
    not_judged_reason: str = ""
    """Reason why it is decoded but not judged; empty if its bytes are those of a real exchange."""

    @property
    def is_judged(self) -> bool:
        return not self.not_judged_reason


def read_recordings(path: Path) -> Iterator[TrafficRecord]:
    """Yield every recording in a file, broken ones too. Raises `OSError` if the file cannot be opened."""
    with _open_file(path) as lines:
        number = 0
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parse_line(line, f"{path.name}:{number}")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield _broken_recording(f"{path.name}:{number + 1}", f"the file cannot be read further: {error}")


def _open_file(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _parse_line(line: bytes, place: str) -> TrafficRecord:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _broken_recording(place, f"the line is not JSON: {error}")
    if not isinstance(record, dict):
        return _broken_recording(place, f"the line must be an object, not {type(record).__name__}")
    given_id = record.get("id")
    record_id = given_id if isinstance(given_id, str) and given_id else place
    try:
        return _parse_recording(record, record_id)
    except KeyError as error:
        return _broken_recording(record_id, f"it has no {error}")
    except _UNREADABLE as error:
        return _broken_recording(record_id, f"it does not follow the format: {error}")


def _broken_recording(place: str, what: str) -> TrafficRecord:
    return TrafficRecord(
        id=place, model="", request=None, status=0, headers={}, body=b"", unreadable_reason=what
    )


def _parse_recording(record: dict[str, Any], record_id: str) -> TrafficRecord:
    request_record, response = record.get("request"), record["response"]
    status = response["status"]
    if isinstance(status, bool) or not isinstance(status, int):
        raise TypeError(f"the status is {status!r}")
    request = None
    if request_record is not None and isinstance(request_record.get("json"), dict):
        request = HttpRequest(
            path=_require_text(request_record["path"], "path"),
            body=json.dumps(request_record["json"], ensure_ascii=False).encode("utf-8", "surrogatepass"),
            headers=tuple(
                (str(name), str(value)) for name, value in (request_record.get("headers") or {}).items()
            ),
            method=request_record.get("method") or "POST",
        )
    body, rebuilt_reason = _rebuild_body(response)
    return TrafficRecord(
        id=record_id,
        model=record.get("model") or "",
        request=request,
        status=status,
        headers={str(name).lower(): str(value) for name, value in (response.get("headers") or {}).items()},
        body=body,
        tags=tuple(map(str, record.get("features") or ())),
        family=_require_text(record["provider"], "provider").replace("-", "_"),
        host=record.get("endpoint_host_kind") or "",
        stop=str(record.get("stop") or ""),
        not_judged_reason=rebuilt_reason
        or _explain_not_judged(record.get("fidelity"), record.get("provenance")),
    )


def _explain_not_judged(fidelity: object, provenance: object) -> str:
    if fidelity not in FAITHFUL_KINDS:
        return f"not the bytes of a real exchange (fidelity {fidelity})"
    return "" if provenance == "recorded" else f"not a recorded exchange ({provenance})"


def _rebuild_body(response: dict[str, Any]) -> tuple[bytes, str]:
    """Return the bytes of the reply, and the reason if they differ from those of the exchange."""
    if "sse" in response:
        separator = response.get("sse_sep") or "\n\n"
        text: str = separator.join(response["sse"])
        whole = text if response.get("sse_unterminated") else text + separator
        return whole.encode("utf-8", "surrogatepass"), ""
    if response.get("body_b64") is not None:
        return b64decode(response["body_b64"]), ""
    if "eventstream" in response:
        return _frame_events(response["eventstream"])
    if "text" in response:
        return str(response["text"]).encode("utf-8", "surrogatepass"), ""
    return json.dumps(response["json"], ensure_ascii=False).encode("utf-8", "surrogatepass"), ""


def _frame_events(messages: list[Any]) -> tuple[bytes, str]:
    """Encode events again whose raw bytes were not kept."""
    frames, unframed = list[bytes](), 0
    for message in messages:
        name, payload = message.get("event_type"), message.get("payload")
        if isinstance(name, str) and isinstance(payload, dict):
            frames.append(encode_event(name, json.dumps(payload).encode()))
        else:
            unframed += 1
    reason = f"its bytes were not kept, and {unframed} of its events cannot be encoded again"
    return b"".join(frames), reason if unframed else ""


def _require_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"its {name} is {value!r}")
    return value
