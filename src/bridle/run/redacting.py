"""Removal of our key from a reply that repeats it, before the reply is kept."""

from msgspec.structs import asdict, replace

from ..values.delta import CallReady, Delta
from ..values.message import Reply
from ..values.parts import Part
from ..values.redaction import Redactor


def redact_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without the key; the same object when it holds none."""
    parts = tuple(_redact_part(part, redactor) for part in reply.parts)
    words = {name: redactor.redact_text(getattr(reply, name)) for name in ("id", "stop_detail", "missed")}
    same = all(new is old for new, old in zip(parts, reply.parts, strict=True))
    if same and all(getattr(reply, name) == value for name, value in words.items()):
        return reply
    return replace(reply, parts=parts, **words)


def redact_delta(delta: Delta, redactor: Redactor) -> Delta:
    """A call that may start early is the one that the reply will have."""
    if not isinstance(delta, CallReady):
        return delta
    call = _redact_part(delta.call, redactor)
    return replace(delta, call=call) if call is not delta.call else delta


def _redact_part(part: Part, redactor: Redactor) -> Part:
    changed = {}
    for name, value in asdict(part).items():
        if isinstance(value, str) and name != "data":
            redacted = redactor.redact_text(value)
            if redacted != value:
                changed[name] = redacted
    return replace(part, **changed) if changed else part
