"""Asking the Messages API for a summary: what cannot be asked beside it, and of which conversations.

The conversation has to end on a finished turn, and somebody has to have said something.  What only shapes
an answer has no meaning where none is given, and is refused.
"""

from msgspec.structs import replace

from ._rules_anthropic_compaction import (
    ABLE,
    BY_THRESHOLD,
    COMPACTION,
    ON_DEMAND,
    SIGNED,
    carrying,
    previews,
    summaries,
    under_preview,
)
from ._rules_anthropic_shape import (
    NEWEST,
    asked,
    assistant,
    blocks,
    call,
    forced,
    messages,
    result,
    rule,
    text,
    tool,
    user,
)
from ._rules_reading import (
    Block,
    field,
    mapping,
    to,
)
from .rules import Asked, Found, Rule

SUMMARIZE = "summarize"
INSTRUCTIONS_LENGTH_MAX = 16_384
_NO_REMAINING = (
    "output_config.task_budget.remaining: not permitted with `compaction` or a signed `compaction` block"
)
_UNFINISHED = (
    "messages.{index}: the conversation ends on an `assistant` turn that is not finished; send its tool"
    " results first"
)


def _asks(request: Asked) -> bool:
    return field(request, COMPACTION) is not None


def _unnamed(request: Asked) -> Found | None:
    return {} if _asks(request) and ON_DEMAND not in previews(request) else None


def _bad_type(request: Asked) -> Found | None:
    return {} if _asks(request) and mapping(field(request, COMPACTION)).get("type") != SUMMARIZE else None


def _long_instructions(request: Asked) -> Found | None:
    words = mapping(field(request, COMPACTION)).get("instructions")
    return {} if isinstance(words, str) and len(words) > INSTRUCTIONS_LENGTH_MAX else None


def _incapable(request: Asked) -> Found | None:
    return {} if _asks(request) and request.abilities and not request.abilities.compaction else None


def _not_alone(request: Asked) -> Found | None:
    if not _asks(request):
        return None
    excluded = {
        "context_management": field(request, "context_management") is not None,
        "stop_sequences": bool(field(request, "stop_sequences")),
        "output_config.format": mapping(field(request, "output_config")).get("format") is not None,
        "tool_choice": forced(request),
    }
    return next(({"name": name} for name, found in excluded.items() if found), None)


def _remaining(request: Asked) -> Found | None:
    carries = _asks(request) or any(summaries(request, signed=True))
    budget = mapping(mapping(field(request, "output_config")).get("task_budget"))
    return {} if carries and budget.get("remaining") is not None else None


def _nothing(request: Asked) -> Found | None:
    """Somebody has to have said something; a summary that is sent back counts."""
    if not _asks(request):
        return None
    spoken = (message for message in messages(request) if message.get("role") != "system")
    return None if any(blocks(message) for message in spoken) else {}


def _unfinished(request: Asked) -> Found | None:
    said = [message for message in messages(request) if message.get("role") != "system"]
    if not _asks(request) or not said or said[-1].get("role") != "assistant":
        return None
    last = mapping(next(reversed(blocks(said[-1])), None))
    return (
        {"index": len(messages(request)) - 1} if last.get("type") in ("tool_use", "server_tool_use") else None
    )


# --- examples -----------------------------------------------------------------------------------

_DEMAND: dict[str, object] = {COMPACTION: {"type": SUMMARIZE}}
_TALK = [user("Hello"), assistant("Hello.")]
_LOOK: dict[str, object] = {"tools": [tool()]}
_SHAPE: Block = {"format": {"type": "json_schema", "schema": {"type": "object"}}}


def _demanding(*names: str, **changes: object) -> Asked:
    """A legal request for a summary with these fields changed, under these previews."""
    body = {"messages": _TALK, **_DEMAND, **changes}
    return under_preview(to(ABLE, asked(**body)), *(names or (ON_DEMAND,)))


DEMAND_RULES: tuple[Rule, ...] = (
    rule(
        "compaction-header",
        _unnamed,
        f"`compaction` parameter requires anthropic-beta: {ON_DEMAND}",
        evidence="D",
        passes=_demanding(),
        offends=_demanding(BY_THRESHOLD),
        also=((replace(_demanding(""), body={**_demanding().body, "anthropic_beta": [ON_DEMAND]}), ""),),
    ),
    rule(
        "compaction-type",
        _bad_type,
        "compaction.type: Input should be 'summarize'",
        evidence="K",
        passes=_demanding(),
        offends=_demanding(compaction={"type": "shorten"}),
    ),
    rule(
        "compaction-instructions",
        _long_instructions,
        "compaction.instructions: String should have at most 16384 characters",
        evidence="K",
        passes=_demanding(compaction={"type": SUMMARIZE, "instructions": "x" * 16_384}),
        offends=_demanding(compaction={"type": SUMMARIZE, "instructions": "x" * 16_385}),
    ),
    rule(
        "compaction-model",
        _incapable,
        "compaction: not supported for this model",
        evidence="K",
        models="that make no summaries on demand",
        passes=_demanding(),
        offends=to(NEWEST, _demanding()),
        also=((to(NEWEST, asked()), ""), (to(None, _demanding()), "")),
    ),
    rule(
        "compaction-alone",
        _not_alone,
        "compaction: cannot be combined with `{name}`",
        evidence="K",
        passes=_demanding(stop_sequences=[], output_config={"effort": "low"}, tool_choice={"type": "auto"}),
        offends=_demanding(context_management={"edits": []}),
        says="compaction: cannot be combined with `context_management`",
        also=(
            (_demanding(stop_sequences=["END"]), "compaction: cannot be combined with `stop_sequences`"),
            (_demanding(output_config=_SHAPE), "compaction: cannot be combined with `output_config.format`"),
            (
                _demanding(tool_choice={"type": "any"}, **_LOOK),
                "compaction: cannot be combined with `tool_choice`",
            ),
        ),
    ),
    rule(
        "compaction-budget",
        _remaining,
        _NO_REMAINING,
        evidence="K",
        passes=_demanding(output_config={"task_budget": {"type": "tokens", "total": 20_000}}),
        offends=_demanding(
            output_config={"task_budget": {"type": "tokens", "total": 20_000, "remaining": 9}}
        ),
        also=(
            (
                carrying(assistant(SIGNED), output_config={"task_budget": {"remaining": 9}}),
                _NO_REMAINING,
            ),
            (asked(output_config={"task_budget": {"remaining": 9}}), ""),
        ),
    ),
    replace(
        rule(
            "compaction-nothing",
            _nothing,
            "messages: there is no `user` or `assistant` content to summarize",
            evidence="K",
            passes=_demanding(messages=[user(SIGNED)]),
            offends=_demanding(messages=[]),
            also=(
                (
                    _demanding(messages=[{"role": "system", "content": "Be brief."}]),
                    "messages: there is no `user` or `assistant` content to summarize",
                ),
            ),
        ),
        type="compaction_nothing_to_summarize",
    ),
    replace(
        rule(
            "compaction-turn",
            _unfinished,
            _UNFINISHED,
            evidence="K",
            passes=_demanding(messages=[user("Look"), assistant(call()), user(result())], **_LOOK),
            offends=_demanding(messages=[user("Look"), assistant(text("I look."), call())], **_LOOK),
            says=_UNFINISHED.format(index=1),
            also=(
                (asked(messages=[user("Look"), assistant(call())]), ""),
                (_demanding(messages=[]), ""),
                (_demanding(messages=[user("Look"), user(call())]), ""),
                (
                    _demanding(messages=[user("Look"), assistant({"type": "server_tool_use"})]),
                    _UNFINISHED.format(index=1),
                ),
            ),
        ),
        type="compaction_incomplete_turn",
    ),
)
