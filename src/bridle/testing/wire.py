"""Recorded traffic, put to a codec.

A recording is one exchange as it really happened: a request body, a status, headers, and the reply's
bytes.  Two questions are asked of each, for any wire family:

  - Does the reply decode, and to the same value however its bytes are sliced?  An error status must
    give a failure with that status; a recording that was cut must give `cut`.
  - Does the request, read and written again, still mean the same?  The codec says what its provider
    does not tell apart (`meaning`); every other difference is listed, with its place.

Recordings are JSON lines, gzipped; the format is described beside them.
"""

import gzip
import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec.structs import replace

from ..core.differing import differences
from ..core.handoff import legal
from ..ports.codec import Codec, HttpRequest
from ..providers._eventstream import framed_event
from ..values.errors import Failure, ProviderError
from ..values.message import Reply
from ..values.model import Endpoint, Model
from ..values.request import Request
from ..values.value import Value

CUT_TAG = "truncated_stream"
"""What recordings are tagged with whose recorder stopped listening early."""
FAITHFUL = ("raw", "parsed", "redacted")
"""Recordings of these kinds mean what was on the wire, whatever else a recorder did to them."""
SLICES_DEFAULT = (1, 7, 61, 4096)
BYTEWISE_MAX = 8_192
"""Longer replies are not fed byte by byte: it shows nothing more, and takes long."""


@runtime_checkable
class Meaningful(Protocol):
    """What a codec must offer to have its requests compared."""

    def meaning(self, request: HttpRequest) -> object:
        """The request's body in one form for all bodies the provider does not tell apart."""
        ...


@runtime_checkable
class Deliberate(Protocol):
    """What a codec may offer to explain what it does to requests."""

    @property
    def changes(self) -> Sequence[tuple[Callable[[Any], Any], str]]:
        """What it changes on purpose, each as a change of a request's JSON, and the reason for it."""
        ...


class Recording(Value):
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
    broken: str = ""
    """What keeps the recording itself from being read."""
    strict: bool = True
    """Whether the bytes are those of a real exchange; others show shapes only."""


class Verdict(Value):
    """What became of one recording; `problems` is empty when all is well."""

    id: str
    answer: Literal["reply", "failure", "cut", "other"]
    """`other`: not an exchange of this codec's kind, such as counting tokens."""
    problems: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    """Where the request, written again, does not mean the same."""
    reason: str = ""
    """Why those differences are right; empty when nobody can say."""


def recordings(path: Path) -> Iterator[Recording]:
    """Every recording in a file of JSON lines, gzipped or not; raises `ValueError` for anything else."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield _read(json.loads(line))


def verdict(codec: Codec, recording: Recording, slices: Sequence[int] = SLICES_DEFAULT) -> Verdict:
    request = Request(
        model=Model(id=recording.model, endpoint=Endpoint(name=codec.family, family=codec.family))
    )
    if recording.broken:
        return Verdict(
            id=recording.id, answer="other", problems=(f"the recording is broken: {recording.broken}",)
        )
    changed: tuple[str, ...] = ()
    reason = ""
    if recording.request is not None:
        try:
            request = codec.read(recording.request)
            changed = tuple(request_differences(codec, recording.request))
            reason = _reason(codec, recording.request) if changed else ""
        except ProviderError as error:
            if error.failure.kind == "not_found":
                return Verdict(id=recording.id, answer="other")
            # The provider refused it as well: then there is nothing to write again.
            if recording.status < 300:
                changed = (f"$: the request cannot be read: {error}",)
    whole = decoded(codec, request, recording)
    problems = [
        f"fed {size} bytes at a time it gives something else"
        for size in slices
        if size > 1 or len(recording.body) <= BYTEWISE_MAX
        if decoded(codec, request, recording, size) != whole
    ]
    answer: Literal["reply", "failure", "cut"] = "reply"
    if isinstance(whole, Failure):
        answer = "cut" if CUT_TAG in recording.tags and whole.kind == "cut" else "failure"
        # Where the recorder found nothing of a reply either, there is none to be read.
        unread = whole.kind in ("cut", "garbled") and bool(recording.tags or recording.stop)
        unread = unread and recording.status < 300
        if answer == "failure" and (unread or whole.status != recording.status):
            problems.append(f"HTTP {recording.status} became {whole}")
    elif recording.status >= 300:
        problems.append(f"HTTP {recording.status} became a reply")
    return Verdict(
        id=recording.id, answer=answer, problems=tuple(problems), differences=changed, reason=reason
    )


def decoded(codec: Codec, request: Request, recording: Recording, size: int | None = None) -> Reply | Failure:
    """What the codec makes of a recorded reply, fed `size` bytes at a time."""
    decoder = codec.decoder(request, recording.status, recording.headers)
    body, step = recording.body, size or len(recording.body) or 1
    try:
        for at in range(0, len(body), step):
            decoder.feed(body[at : at + step])
        return decoder.close()
    except ProviderError as error:
        return error.failure


def request_differences(codec: Codec, request: HttpRequest) -> Iterable[str]:
    """Where `encode(read(request))` does not mean what `request` means; none is best."""
    if not isinstance(codec, Meaningful):
        raise TypeError(f"the codec of family {codec.family!r} does not say what its requests mean")
    again = codec.encode(codec.read(request))
    return differences(codec.meaning(request), codec.meaning(again))


def _reason(codec: Codec, request: HttpRequest) -> str:
    """The rule of ours that the differences follow from: with it applied to the recording, none is left."""
    assert isinstance(codec, Meaningful)
    ours = codec.meaning(codec.encode(codec.read(request)))
    for rule, reason in (*RULES, *(codec.changes if isinstance(codec, Deliberate) else ())):
        ruled = replace(request, body=json.dumps(rule(json.loads(request.body))).encode())
        if not list(differences(codec.meaning(ruled), ours)):
            return reason
    _, repairs = legal(codec.read(request).messages)
    unpaired = [repair for repair in repairs if "result" in repair]
    return f"every call has one result: {unpaired[0]}" if unpaired else ""


def without_blank_text(value: Any) -> Any:
    """JSON without text that says nothing, and without what then holds nothing."""
    if isinstance(value, list):
        kept = [without_blank_text(each) for each in value if not _is_blank(each)]
        return [each for each in kept if not (isinstance(each, dict) and _emptied(each))]
    if isinstance(value, dict):
        return {name: without_blank_text(each) for name, each in value.items()}
    return value


def _is_blank(value: object) -> bool:
    text = value.get("text", value.get("content")) if isinstance(value, dict) else None
    plain = isinstance(value, dict) and not set(value) - {"type", "text", "role", "content", "cache_control"}
    return plain and isinstance(text, str) and not text.strip()


def _emptied(value: dict[str, Any]) -> bool:
    return not set(value) - {"role", "content", "parts"} and [] in (value.get("content"), value.get("parts"))


def with_room_to_answer(value: Any) -> Any:
    """JSON that asks for no fewer tokens than can be asked for, where they have this name."""
    asked = value.get("max_output_tokens") if isinstance(value, dict) else None
    return {**value, "max_output_tokens": 16} if isinstance(asked, int) and asked < 16 else value


RULES: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (without_blank_text, "blank text is never sent: providers refuse it"),
    (with_room_to_answer, "at least 16 tokens are asked for: fewer are refused"),
)
"""What we do to requests on purpose, each as a change of their JSON, and the reason for it."""


def _read(record: dict[str, Any]) -> Recording:
    """One that lacks what every recording has is kept as it is, to be listed: it must not hide the rest."""
    try:
        return _recording(record)
    except (KeyError, TypeError, AttributeError, UnicodeError, ValueError) as error:
        told = f"{type(error).__name__}: {error}"
        return Recording(
            id=str(record.get("id")), model="", request=None, status=0, headers={}, body=b"", broken=told
        )


def _recording(record: dict[str, Any]) -> Recording:
    asked, answered = record["request"], record["response"]
    request = None
    if asked is not None and isinstance(asked["json"], dict):
        request = HttpRequest(
            path=asked["path"],
            body=json.dumps(asked["json"], ensure_ascii=False).encode("utf-8", "surrogatepass"),
            headers=tuple((asked["headers"] or {}).items()),
            method=asked["method"],
        )
    return Recording(
        id=record["id"],
        model=record.get("model") or "",
        request=request,
        status=answered["status"],
        headers={name.lower(): value for name, value in (answered["headers"] or {}).items()},
        body=_body(answered),
        tags=tuple(record["features"] or ()),
        family=record["provider"].replace("-", "_"),
        host=record.get("endpoint_host_kind") or "",
        stop=record.get("stop") or "",
        strict=record.get("fidelity") in FAITHFUL and record.get("provenance") == "recorded",
    )


def _body(answered: dict[str, Any]) -> bytes:
    if "sse" in answered:
        separator = answered.get("sse_sep", "\n\n")
        text: str = separator.join(answered["sse"])
        return (text if answered.get("sse_unterminated") else text + separator).encode()
    if "body_b64" in answered:
        return b64decode(answered["body_b64"])
    if "eventstream" in answered:
        return b"".join(
            framed_event(message["event_type"], json.dumps(message["payload"]).encode())
            for message in answered["eventstream"]
        )
    if "text" in answered:
        return str(answered["text"]).encode()
    return json.dumps(answered.get("json"), ensure_ascii=False).encode("utf-8", "surrogatepass")
