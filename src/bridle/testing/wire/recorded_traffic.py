"""Recorded exchanges, read from files that nobody here wrote.

A recording is one exchange as it really happened: a request body, a status, headers, and the reply's
bytes.  They come as JSON lines, gzipped or not; the format is described beside them.

Rule 1: one bad line must not hide the good ones.  A line that is no JSON, a record that lacks what every
        record has, a file that ends in the middle: each is a recording too, which says what is broken.
Rule 2: only bytes of a real exchange are judged.  What was written by hand, or put together again from
        somebody's objects, shows shapes; it says why it is not judged.
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
"""What recordings are tagged with whose recorder stopped listening early."""
FAITHFUL_KINDS = ("raw", "parsed", "redacted")
"""Recordings of these kinds mean what was on the wire, whatever else a recorder did to them."""
_UNREADABLE = (KeyError, TypeError, AttributeError, UnicodeError, ValueError, RecursionError)


class TrafficRecord(Value):
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
    """The provider's own word for the end of the reply, as the recorder noted it."""
    unreadable_reason: str = ""
    """What keeps the recording itself from being read."""
    not_judged_reason: str = ""
    """Why it is tried but not judged; empty when its bytes are those of a real exchange."""

    @property
    def is_judged(self) -> bool:
        return not self.not_judged_reason


def read_recordings(path: Path) -> Iterator[TrafficRecord]:
    """Every recording in a file, broken ones too; raises `OSError` when the file cannot be opened."""
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
        return _broken_recording(place, f"the line is no JSON: {error}")
    if not isinstance(record, dict):
        return _broken_recording(place, f"the line is no record but {type(record).__name__}")
    named = record.get("id")
    known = named if isinstance(named, str) and named else place
    try:
        return _parse_recording(record, known)
    except KeyError as error:
        return _broken_recording(known, f"it has no {error}")
    except _UNREADABLE as error:
        return _broken_recording(known, f"it is not as the format has it: {error}")


def _broken_recording(place: str, what: str) -> TrafficRecord:
    return TrafficRecord(
        id=place, model="", request=None, status=0, headers={}, body=b"", unreadable_reason=what
    )


def _parse_recording(record: dict[str, Any], known: str) -> TrafficRecord:
    asked, answered = record.get("request"), record["response"]
    status = answered["status"]
    if isinstance(status, bool) or not isinstance(status, int):
        raise TypeError(f"the status is {status!r}")
    request = None
    if asked is not None and isinstance(asked.get("json"), dict):
        request = HttpRequest(
            path=_require_text(asked["path"], "path"),
            body=json.dumps(asked["json"], ensure_ascii=False).encode("utf-8", "surrogatepass"),
            headers=tuple((str(name), str(value)) for name, value in (asked.get("headers") or {}).items()),
            method=asked.get("method") or "POST",
        )
    body, rebuilt = _rebuild_body(answered)
    return TrafficRecord(
        id=known,
        model=record.get("model") or "",
        request=request,
        status=status,
        headers={str(name).lower(): str(value) for name, value in (answered.get("headers") or {}).items()},
        body=body,
        tags=tuple(map(str, record.get("features") or ())),
        family=_require_text(record["provider"], "provider").replace("-", "_"),
        host=record.get("endpoint_host_kind") or "",
        stop=str(record.get("stop") or ""),
        not_judged_reason=rebuilt or _explain_not_judged(record.get("fidelity"), record.get("provenance")),
    )


def _explain_not_judged(fidelity: object, provenance: object) -> str:
    if fidelity not in FAITHFUL_KINDS:
        return f"not the bytes of a real exchange (fidelity {fidelity})"
    return "" if provenance == "recorded" else f"not a recorded exchange ({provenance})"


def _rebuild_body(answered: dict[str, Any]) -> tuple[bytes, str]:
    """The reply's bytes, and why they are not quite those of the exchange."""
    if "sse" in answered:
        separator = answered.get("sse_sep") or "\n\n"
        text: str = separator.join(answered["sse"])
        whole = text if answered.get("sse_unterminated") else text + separator
        return whole.encode("utf-8", "surrogatepass"), ""
    if answered.get("body_b64") is not None:
        return b64decode(answered["body_b64"]), ""
    if "eventstream" in answered:
        return _frame_events(answered["eventstream"])
    if "text" in answered:
        return str(answered["text"]).encode("utf-8", "surrogatepass"), ""
    return json.dumps(answered["json"], ensure_ascii=False).encode("utf-8", "surrogatepass"), ""


def _frame_events(messages: list[Any]) -> tuple[bytes, str]:
    """Events whose raw bytes were not kept, framed anew."""
    frames, unframed = list[bytes](), 0
    for message in messages:
        name, payload = message.get("event_type"), message.get("payload")
        if isinstance(name, str) and isinstance(payload, dict):
            frames.append(encode_event(name, json.dumps(payload).encode()))
        else:
            unframed += 1
    why = f"its bytes were not kept, and {unframed} of its events cannot be put together again"
    return b"".join(frames), why if unframed else ""


def _require_text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"its {name} is {value!r}")
    return value
