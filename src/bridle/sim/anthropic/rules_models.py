"""Rules about what a model supports: sampling, effort, thinking, forced calls, prefill."""

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import as_mapping, field

from .request import (
    NEW_VERSION,
    blocks,
    find_tool_loop,
    is_tool_forced,
    messages,
    rule,
    thinking_type,
    version,
)

SAMPLING = ("temperature", "top_p", "top_k")
THINKING_TOKENS_MIN = 1024
GONE_ON_WITH = ("server_tool_use", "mcp_tool_use", "compaction")
INTERLEAVED = "interleaved-thinking"


def _check_sampling_gone(request: RawRequest) -> RuleFinding | None:
    if version(request) < NEW_VERSION:
        return None
    return next(({"name": name} for name in SAMPLING if field(request, name) is not None), None)


def _check_sampling_thinking(request: RawRequest) -> RuleFinding | None:
    thinks = thinking_type(request) in ("enabled", "adaptive")
    return {} if thinks and field(request, "temperature") not in (None, 1) else None


def _check_sampling_model(request: RawRequest) -> RuleFinding | None:
    # `Abilities.sampling` describes the current version; under the old one, temperature was allowed together
    # with a thinking allowance, in the same models.
    if request.abilities is None or "enabled" in request.abilities.thinking:
        return None
    return {} if field(request, "temperature") not in (None, 1) else None


def _check_sampling_one(request: RawRequest) -> RuleFinding | None:
    both = all(field(request, name) is not None for name in ("temperature", "top_p"))
    return {} if both and request.abilities is not None and request.abilities.thinking else None


def _requested_effort(request: RawRequest) -> str:
    return str(as_mapping(field(request, "output_config")).get("effort") or "")


def _check_effort_none(request: RawRequest) -> RuleFinding | None:
    return {} if _requested_effort(request) and request.abilities and not request.abilities.efforts else None


def _check_effort_level(request: RawRequest) -> RuleFinding | None:
    wanted, abilities = _requested_effort(request), request.abilities
    if not wanted or abilities is None or not abilities.efforts or abilities.takes_effort(wanted):
        return None
    return {"effort": wanted, "levels": ", ".join(sorted(abilities.efforts))}


def _thinking_mode_rule(mode: str, wording: str, *, evidence: str = "D") -> ProviderRule:
    def find(request: RawRequest) -> RuleFinding | None:
        if request.abilities is None or thinking_type(request) != mode:
            return None
        return None if mode in request.abilities.thinking else {}

    return rule(
        f"thinking-{mode.replace('_', '-')}",
        find,
        wording,
        evidence=evidence,
        models=f"without `{mode}` thinking",
    )


def _thinking_budget(request: RawRequest) -> int | None:
    wanted = as_mapping(field(request, "thinking")).get("budget_tokens")
    return wanted if thinking_type(request) == "enabled" and isinstance(wanted, int) else None


def _check_thinking_budget(request: RawRequest) -> RuleFinding | None:
    wanted = _thinking_budget(request)
    return {} if wanted is not None and wanted < THINKING_TOKENS_MIN else None


def _check_thinking_room(request: RawRequest) -> RuleFinding | None:
    wanted, room = _thinking_budget(request), field(request, "max_tokens")
    if (
        wanted is None
        or not isinstance(room, int)
        or INTERLEAVED in request.headers.get("anthropic-beta", "")
    ):
        return None
    return {} if room <= wanted else None


def _check_thinking_forced(request: RawRequest) -> RuleFinding | None:
    return {} if is_tool_forced(request) and thinking_type(request) == "enabled" else None


def _check_forced_tools(request: RawRequest) -> RuleFinding | None:
    return (
        {} if is_tool_forced(request) and request.abilities and not request.abilities.forced_tools else None
    )


def _check_thinking_first(request: RawRequest) -> RuleFinding | None:
    """With a thinking allowance, require reasoning at the start of the current tool loop.

    A tool loop is one turn: its later messages need no reasoning, and a new prompt begins another turn.
    """
    head = find_tool_loop(request) if thinking_type(request) == "enabled" else None
    if head is None:
        return None
    first = next((block.get("type") for block in blocks(messages(request)[head])), "")
    return None if first in ("thinking", "redacted_thinking") else {"index": head, "type": first}


def _check_prefill(request: RawRequest) -> RuleFinding | None:
    if request.abilities is None or request.abilities.prefill:
        return None
    sent = messages(request)
    # A summary is not continued, so it may end with any role.
    if not sent or sent[-1].get("role") != "assistant" or field(request, "compaction") is not None:
        return None
    # A turn that was paused inside the provider's own tools is sent back to be continued.
    return None if any(block.get("type") in GONE_ON_WITH for block in blocks(sent[-1])) else {}


_FIRST = (
    "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{type}`."
    " When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include"
    " thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
)

MODEL_RULES = (
    rule(
        "sampling-gone",
        _check_sampling_gone,
        "{name}: Extra inputs are not permitted",
        evidence="S",
        models="all, since version 2026-10-21",
    ),
    rule(
        "sampling-thinking",
        _check_sampling_thinking,
        "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        evidence="S",
    ),
    rule(
        "sampling-model",
        _check_sampling_model,
        "`temperature` is not supported for this model.",
        evidence="F",
        models="without `enabled` thinking",
    ),
    rule(
        "sampling-one",
        _check_sampling_one,
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        evidence="S",
        models="that think",
    ),
    rule(
        "effort-none",
        _check_effort_none,
        "This model does not support the effort parameter.",
        evidence="S",
        models="without efforts",
    ),
    rule(
        "effort-level",
        _check_effort_level,
        "This model does not support effort level '{effort}'. Supported levels: {levels}.",
        evidence="S",
    ),
    _thinking_mode_rule(
        "enabled",
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
        ' "output_config.effort" to control thinking behavior.',
    ),
    _thinking_mode_rule("adaptive", "adaptive thinking is not supported on this model", evidence="S"),
    _thinking_mode_rule("disabled", '"thinking.type.disabled" is not supported for this model.'),
    _thinking_mode_rule(
        "between_tools", '"thinking.type.between_tools" is not supported for this model.', evidence="F"
    ),
    rule(
        "thinking-budget",
        _check_thinking_budget,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        evidence="F",
    ),
    rule(
        "thinking-room",
        _check_thinking_room,
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
        evidence="F",
    ),
    rule(
        "thinking-forced",
        _check_thinking_forced,
        "Thinking may not be enabled when tool_choice forces tool use.",
        evidence="S",
    ),
    rule("thinking-first", _check_thinking_first, _FIRST, evidence="S"),
    rule(
        "forced-tools",
        _check_forced_tools,
        'tool_choice: type "tool" and "any" are not supported for this model.',
        evidence="D",
        models="that cannot be forced",
    ),
    rule(
        "prefill",
        _check_prefill,
        "This model does not support assistant message prefill."
        " The conversation must end with a user message.",
        evidence="S",
        models="that take no prefill",
    ),
)
