"""Removal of our key from a reply that repeats it, before the reply is kept."""

from msgspec.structs import asdict, replace

from ..values.delta import CallReady, Delta
from ..values.message import Reply
from ..values.parts import Part
from ..values.redaction import Redactor


def redact_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without the key; the same object when it holds none."""
    parts = [_redact_part(part, redactor) for part in reply.parts]
    words = {
        "id": redactor.redact_text(reply.id),
        "stop_detail": redactor.redact_text(reply.stop_detail),
        "missed": redactor.redact_text(reply.missed),
    }
    redacted = replace(reply, parts=tuple(parts), **words)
    return reply if redacted == reply else redacted


def redact_delta(delta: Delta, redactor: Redactor) -> Delta:
    """A call that may start early is the one that the reply will have."""
    if not isinstance(delta, CallReady):
        return delta
    call = _redact_part(delta.call, redactor)
    return replace(delta, call=call) if call is not delta.call else delta


def _redact_part(part: Part, redactor: Redactor) -> Part:
    changed = {}
    for name, value in asdict(part).items():
        if value and isinstance(value, str) and name != "data":
            redacted = redactor.redact_text(value)
            if redacted != value:
                changed[name] = redacted
    return replace(part, **changed) if changed else part
