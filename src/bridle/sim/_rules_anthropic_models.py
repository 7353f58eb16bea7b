"""What one model takes and another does not: sampling, effort, thinking, forced calls, prefill."""

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_anthropic_shape import (
    ALWAYS_THINKS,
    BUDGETS,
    FORCEABLE,
    NEW_VERSION,
    NEWEST,
    OLD_VERSION,
    PREFILLS,
    asked,
    assistant,
    blocks,
    call,
    forced,
    loop_head,
    messages,
    result,
    rule,
    text,
    thinking_type,
    tool,
    under,
    user,
    version,
)
from ._rules_reading import (
    field,
    mapping,
    to,
)
from .rules import Asked, Found, Rule

SAMPLING = ("temperature", "top_p", "top_k")
THINKING_TOKENS_MIN = 1024
GONE_ON_WITH = ("server_tool_use", "mcp_tool_use", "compaction")
INTERLEAVED = "interleaved-thinking"


def _sampling(request: Asked) -> Found | None:
    if version(request) < NEW_VERSION:
        return None
    return next(({"name": name} for name in SAMPLING if field(request, name) is not None), None)


def _hot_thinking(request: Asked) -> Found | None:
    thinks = thinking_type(request) in ("enabled", "adaptive")
    return {} if thinks and field(request, "temperature") not in (None, 1) else None


def _unsupported_temperature(request: Asked) -> Found | None:
    # `Abilities.sampling` speaks of the version we ask for; under the old one temperature went together
    # with the allowance for thinking, in the same models.
    if request.abilities is None or "enabled" in request.abilities.thinking:
        return None
    return {} if field(request, "temperature") not in (None, 1) else None


def _two_samplings(request: Asked) -> Found | None:
    both = all(field(request, name) is not None for name in ("temperature", "top_p"))
    return {} if both and request.abilities is not None and request.abilities.thinking else None


def _effort(request: Asked) -> str:
    return str(mapping(field(request, "output_config")).get("effort") or "")


def _no_effort(request: Asked) -> Found | None:
    return {} if _effort(request) and request.abilities and not request.abilities.efforts else None


def _bad_effort(request: Asked) -> Found | None:
    wanted, abilities = _effort(request), request.abilities
    if not wanted or abilities is None or not abilities.efforts or abilities.takes_effort(wanted):
        return None
    return {"effort": wanted, "levels": ", ".join(sorted(abilities.efforts))}


def _thinking_refused(
    mode: str, wording: str, *, passes: Abilities, offends: Abilities, evidence: str = "D"
) -> Rule:
    def find(request: Asked) -> Found | None:
        if request.abilities is None or thinking_type(request) != mode:
            return None
        return None if mode in request.abilities.thinking else {}

    setting = {"type": mode} | ({"budget_tokens": THINKING_TOKENS_MIN} if mode == "enabled" else {})
    return rule(
        f"thinking-{mode.replace('_', '-')}",
        find,
        wording,
        evidence=evidence,
        models=f"without `{mode}` thinking",
        passes=to(passes, asked(thinking=setting)),
        offends=to(offends, asked(thinking=setting)),
    )


def _allowance(request: Asked) -> int | None:
    wanted = mapping(field(request, "thinking")).get("budget_tokens")
    return wanted if thinking_type(request) == "enabled" and isinstance(wanted, int) else None


def _small_allowance(request: Asked) -> Found | None:
    wanted = _allowance(request)
    return {} if wanted is not None and wanted < THINKING_TOKENS_MIN else None


def _no_room_to_answer(request: Asked) -> Found | None:
    wanted, room = _allowance(request), field(request, "max_tokens")
    if (
        wanted is None
        or not isinstance(room, int)
        or INTERLEAVED in request.headers.get("anthropic-beta", "")
    ):
        return None
    return {} if room <= wanted else None


def _forced_while_thinking(request: Asked) -> Found | None:
    return {} if forced(request) and thinking_type(request) == "enabled" else None


def _forced(request: Asked) -> Found | None:
    return {} if forced(request) and request.abilities and not request.abilities.forced_tools else None


def _thoughtless(request: Asked) -> Found | None:
    """With an allowance for thinking, the loop whose results come back must open with a thought.

    A tool loop is one turn: later messages of it need no thought, and a new prompt begins another turn.
    """
    head = loop_head(request) if thinking_type(request) == "enabled" else None
    if head is None:
        return None
    first = next((block.get("type") for block in blocks(messages(request)[head])), "")
    return None if first in ("thinking", "redacted_thinking") else {"index": head, "type": first}


def _prefill(request: Asked) -> Found | None:
    if request.abilities is None or request.abilities.prefill:
        return None
    said = messages(request)
    # A summary is not gone on with, so it may end with anybody.
    if not said or said[-1].get("role") != "assistant" or field(request, "compaction") is not None:
        return None
    # What broke off in the middle of the provider's own doings is sent back to be gone on with.
    return None if any(block.get("type") in GONE_ON_WITH for block in blocks(said[-1])) else {}


_FIRST = (
    "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{type}`."
    " When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include"
    " thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
)
_LOOK = {"tools": [tool()]}
_LOOKED = [user("Look"), assistant(call()), user(result())]
_THOUGHT = {"type": "thinking", "thinking": "I look.", "signature": "c2ln"}
_THINKS_ONCE = [user("Look"), assistant(_THOUGHT, call()), user(result())]
_LOOKED_AGAIN = [assistant(call("toolu_2")), user(result("toolu_2"))]
_THINKS_LATE = [assistant(_THOUGHT, call("toolu_2")), user(result("toolu_2"))]
_BUDGET = {"type": "enabled", "budget_tokens": 2048}

MODEL_RULES = (
    rule(
        "sampling-gone",
        _sampling,
        "{name}: Extra inputs are not permitted",
        evidence="S",
        models="all, since version 2026-10-21",
        passes=under(OLD_VERSION, to(PREFILLS, asked(temperature=0.2))),
        offends=to(PREFILLS, asked(temperature=1.0)),
        says="temperature: Extra inputs are not permitted",
    ),
    rule(
        "sampling-thinking",
        _hot_thinking,
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        evidence="S",
        passes=under(OLD_VERSION, to(BUDGETS, asked(thinking={"type": "adaptive"}, temperature=1))),
        offends=under(OLD_VERSION, to(BUDGETS, asked(thinking={"type": "adaptive"}, temperature=0))),
    ),
    rule(
        "sampling-model",
        _unsupported_temperature,
        "`temperature` is not supported for this model.",
        evidence="F",
        models="without `enabled` thinking",
        passes=under(OLD_VERSION, asked(temperature=1)),
        offends=under(OLD_VERSION, asked(temperature=0.5)),
    ),
    rule(
        "sampling-one",
        _two_samplings,
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        evidence="S",
        models="that think",
        passes=to(PREFILLS, under(OLD_VERSION, asked(temperature=0.5))),
        offends=to(PREFILLS, under(OLD_VERSION, asked(temperature=0.5, top_p=0.9))),
        also=(
            (to(Abilities(), under(OLD_VERSION, asked(temperature=0.5, top_p=0.9))), ""),
            (to(None, under(OLD_VERSION, asked(temperature=0.5, top_p=0.9))), ""),
        ),
    ),
    rule(
        "effort-none",
        _no_effort,
        "This model does not support the effort parameter.",
        evidence="S",
        models="without efforts",
        passes=asked(output_config={"effort": "low"}),
        offends=to(PREFILLS, asked(output_config={"effort": "low"})),
    ),
    rule(
        "effort-level",
        _bad_effort,
        "This model does not support effort level '{effort}'. Supported levels: {levels}.",
        evidence="S",
        passes=to(BUDGETS, asked(output_config={"effort": "max"})),
        offends=to(BUDGETS, asked(output_config={"effort": "xhigh"})),
        says="This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium.",
        also=((to(PREFILLS, asked(output_config={"effort": "low"})), ""),),
    ),
    _thinking_refused(
        "enabled",
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
        ' "output_config.effort" to control thinking behavior.',
        passes=PREFILLS,
        offends=NEWEST,
    ),
    _thinking_refused(
        "adaptive",
        "adaptive thinking is not supported on this model",
        passes=NEWEST,
        offends=PREFILLS,
        evidence="S",
    ),
    _thinking_refused(
        "disabled",
        '"thinking.type.disabled" is not supported for this model.',
        passes=FORCEABLE,
        offends=ALWAYS_THINKS,
    ),
    _thinking_refused(
        "between_tools",
        '"thinking.type.between_tools" is not supported for this model.',
        passes=NEWEST,
        offends=ALWAYS_THINKS,
        evidence="F",
    ),
    rule(
        "thinking-budget",
        _small_allowance,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        evidence="F",
        passes=to(PREFILLS, asked(thinking={"type": "enabled", "budget_tokens": 1024})),
        offends=to(PREFILLS, asked(thinking={"type": "enabled", "budget_tokens": 1023})),
        also=((asked(thinking={"type": "adaptive", "budget_tokens": 5}), ""),),
    ),
    rule(
        "thinking-room",
        _no_room_to_answer,
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        evidence="F",
        passes=to(PREFILLS, asked(thinking=_BUDGET, max_tokens=2049)),
        offends=to(PREFILLS, asked(thinking=_BUDGET, max_tokens=2048)),
        also=(
            (
                replace(
                    to(PREFILLS, asked(thinking=_BUDGET, max_tokens=2048)),
                    headers={"anthropic-beta": "interleaved-thinking-2025-05-14"},
                ),
                "",
            ),
        ),
    ),
    rule(
        "thinking-forced",
        _forced_while_thinking,
        "Thinking may not be enabled when tool_choice forces tool use.",
        evidence="S",
        passes=to(PREFILLS, asked(thinking=_BUDGET, tool_choice={"type": "auto"}, **_LOOK)),
        offends=to(PREFILLS, asked(thinking=_BUDGET, tool_choice={"type": "any"}, **_LOOK)),
    ),
    rule(
        "thinking-first",
        _thoughtless,
        _FIRST,
        evidence="S",
        passes=to(
            PREFILLS,
            asked(
                thinking=_BUDGET,
                messages=_THINKS_ONCE,
                **_LOOK,
            ),
        ),
        offends=to(PREFILLS, asked(thinking=_BUDGET, messages=_LOOKED, **_LOOK)),
        says=_FIRST.format(index=1, type="tool_use"),
        also=(
            (
                to(PREFILLS, asked(thinking=_BUDGET, messages=[assistant(call()), user(result())])),
                _FIRST.format(index=0, type="tool_use"),
            ),
            (to(PREFILLS, asked(thinking=_BUDGET, messages=[user("Look"), user(result())])), ""),
            (to(PREFILLS, asked(thinking=_BUDGET, messages=[assistant("Hm."), user("Bye")])), ""),
            (to(PREFILLS, asked(thinking=_BUDGET, messages=[*_THINKS_ONCE, *_LOOKED_AGAIN], **_LOOK)), ""),
            (
                to(PREFILLS, asked(thinking=_BUDGET, messages=[*_LOOKED, *_THINKS_LATE], **_LOOK)),
                _FIRST.format(index=1, type="tool_use"),
            ),
            (
                to(PREFILLS, asked(thinking=_BUDGET, messages=[*_LOOKED[:2], user(result(), text("So?"))])),
                "",
            ),
            (to(PREFILLS, asked(thinking=_BUDGET, messages=[*_LOOKED, assistant("Seen.")])), ""),
        ),
    ),
    rule(
        "forced-tools",
        _forced,
        'tool_choice: type "tool" and "any" are not supported for this model.',
        evidence="D",
        models="that cannot be forced",
        passes=to(FORCEABLE, asked(tool_choice={"type": "any"}, **_LOOK)),
        offends=asked(tool_choice={"type": "any"}, **_LOOK),
    ),
    rule(
        "prefill",
        _prefill,
        "This model does not support assistant message prefill."
        " The conversation must end with a user message.",
        evidence="S",
        models="that take no prefill",
        passes=to(PREFILLS, asked(messages=[user("Count"), assistant("One")])),
        offends=asked(messages=[user("Count"), assistant(text("One"))]),
        also=(
            (asked(messages=[]), ""),
            (asked(messages=[user("Count"), assistant({"type": "server_tool_use"}, text("One"))]), ""),
            (asked(messages=[assistant({"type": "server_tool_use"}), user("Go on")]), ""),
            (asked(messages=[user("Count"), assistant({"type": "compaction"})]), ""),
            (asked(messages=[user("Count"), assistant("One")], compaction={"type": "summarize"}), ""),
        ),
    ),
)
