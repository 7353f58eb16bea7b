"""Rules of `thread`: what it looks like, and what it cannot stand beside."""

from msgspec.structs import replace

from ._rules_anthropic_shape import asked, rule
from ._rules_reading import field, mapping
from .rules import Asked, Found

PREVIEW = "message-threads-2026-08-12"
KINDS = ("create", "continue")
UNSUPPORTED = ("context_management", "fallbacks")


def _bad_kind(request: Asked) -> Found | None:
    thread = field(request, "thread")
    if thread is None or mapping(thread).get("type") in KINDS:
        return None
    return {"kind": mapping(thread).get("type")}


def _unnamed(request: Asked) -> Found | None:
    thread = mapping(field(request, "thread"))
    named = isinstance(thread.get("previous_message_id"), str)
    return {} if thread.get("type") == "continue" and not named else None


def _unsupported(request: Asked) -> Found | None:
    if not field(request, "thread"):
        return None
    return next(({"name": name} for name in UNSUPPORTED if field(request, name)), None)


def _held(**changes: object) -> Asked:
    """A request that the preview is asked for with."""
    request = asked(**changes)
    return replace(request, headers={**request.headers, "anthropic-beta": f"{PREVIEW},{_OTHERS}"})


_OTHERS = "context-management-2025-06-27"
_CREATE = {"type": "create"}
_NEXT = {"type": "continue", "previous_message_id": "msg_1"}
_CLEARING = {"edits": [{"type": "clear_tool_uses_20250919"}]}

THREAD_RULES = (
    rule(
        "thread-type",
        _bad_kind,
        "thread: Input tag '{kind}' found using 'type' does not match any of the expected tags:"
        " 'create', 'continue'",
        evidence="F",
        passes=_held(thread=_CREATE),
        offends=_held(thread={"type": "fork"}),
        says="thread: Input tag 'fork' found using 'type' does not match any of the expected tags:"
        " 'create', 'continue'",
    ),
    rule(
        "thread-previous",
        _unnamed,
        "thread.continue.previous_message_id: Field required",
        evidence="F",
        passes=_held(thread=_NEXT),
        offends=_held(thread={"type": "continue"}),
        also=((_held(thread=_CREATE), ""),),
    ),
    replace(
        rule(
            "thread-alone",
            _unsupported,
            "thread: cannot be combined with `{name}`.",
            evidence="S",
            passes=_held(context_management=_CLEARING),
            offends=_held(thread=_CREATE, context_management=_CLEARING),
            says="thread: cannot be combined with `context_management`.",
        ),
        type="thread_unsupported_request",
    ),
)
