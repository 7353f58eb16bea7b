"""Rules of the model behind the service, with its vendor's messages after the service's prefix."""

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field

from .request import (
    MODEL_ERROR_PREFIX,
    blocks,
    find_tool_loop,
    inference_setting,
    is_tool_forced,
    list_tool_specs,
    messages,
    rule,
    thinking_config,
    tool_choice,
    tools,
)

MARKS_MAX = 4
THINKING_TOKENS_MIN = 1024
_FIRST = (
    MODEL_ERROR_PREFIX
    + "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
    " `{type}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking"
    " blocks from previous turns. To avoid this requirement, disable `thinking`."
)


def _check_tool_names_unique(request: RawRequest) -> RuleFinding | None:
    names = [spec.get("name") for _, spec in list_tool_specs(request)]
    return {} if any(names.count(name) > 1 for name in names) else None


def _check_choice_known(request: RawRequest) -> RuleFinding | None:
    wanted = as_mapping(tool_choice(request).get("tool")).get("name")
    known = {spec.get("name") for _, spec in list_tool_specs(request)}
    return {"name": wanted} if wanted is not None and wanted not in known else None


def _count_cache_points(request: RawRequest) -> int:
    places: list[JsonObject] = [*tools(request), *map(as_mapping, as_list(field(request, "system")))]
    for message in messages(request):
        places += blocks(message)
    return sum("cachePoint" in place for place in places)


def _check_marks_most(request: RawRequest) -> RuleFinding | None:
    return {"count": _count_cache_points(request)} if _count_cache_points(request) > MARKS_MAX else None


def _check_sampling_model(request: RawRequest) -> RuleFinding | None:
    # `Abilities.sampling` describes another wire; here temperature is allowed together with a thinking
    # allowance, in the same models.
    abilities = request.abilities
    if abilities is None or not abilities.thinking or "enabled" in abilities.thinking:
        return None
    names = {"temperature": "temperature", "topP": "top_p"}
    return next(
        ({"name": told} for name, told in names.items() if inference_setting(request, name) is not None), None
    )


def _check_sampling_thinking(request: RawRequest) -> RuleFinding | None:
    thinks_now = thinking_config(request).get("type") in ("enabled", "adaptive")
    return {} if thinks_now and inference_setting(request, "temperature") not in (None, 1) else None


def _check_thinking_budget(request: RawRequest) -> RuleFinding | None:
    wanted = thinking_config(request).get("budget_tokens")
    return {} if isinstance(wanted, int) and wanted < THINKING_TOKENS_MIN else None


def _check_effort_level(request: RawRequest) -> RuleFinding | None:
    wanted, abilities = as_mapping(field(request, "outputConfig")).get("effort"), request.abilities
    if abilities is None or not isinstance(wanted, str) or not abilities.thinking:
        return None
    return None if abilities.takes_effort(wanted) else {"effort": wanted}


def _check_thinking_room(request: RawRequest) -> RuleFinding | None:
    wanted, room = thinking_config(request).get("budget_tokens"), inference_setting(request, "maxTokens")
    return {} if isinstance(wanted, int) and isinstance(room, int) and room <= wanted else None


def _check_thinking_forced(request: RawRequest) -> RuleFinding | None:
    return {} if is_tool_forced(request) and thinking_config(request).get("type") == "enabled" else None


def _check_forced_tools(request: RawRequest) -> RuleFinding | None:
    return (
        {} if is_tool_forced(request) and request.abilities and not request.abilities.forced_tools else None
    )


def _check_thinking_first(request: RawRequest) -> RuleFinding | None:
    """Require reasoning at the start of the current tool loop; later messages of it need none."""
    head = find_tool_loop(request) if thinking_config(request).get("type") == "enabled" else None
    if head is None:
        return None
    first = next(iter((blocks(messages(request)[head]) or [{}])[0]), "")
    block_type = {"toolUse": "tool_use"}.get(first, first)
    return None if first == "reasoningContent" else {"index": head, "type": block_type}


def _check_thought_last(request: RawRequest) -> RuleFinding | None:
    for index, message in enumerate(messages(request)):
        content = blocks(message)
        if message.get("role") == "assistant" and content and "reasoningContent" in content[-1]:
            return {"index": index}
    return None


def _check_prefill(request: RawRequest) -> RuleFinding | None:
    sent, abilities = messages(request), request.abilities
    if abilities is None or abilities.prefill or not sent:
        return None
    return {} if sent[-1].get("role") == "assistant" else None


def _thinking_mode_rule(mode: str, wording: str) -> ProviderRule:
    def find(request: RawRequest) -> RuleFinding | None:
        abilities = request.abilities
        if abilities is None or not abilities.thinking or thinking_config(request).get("type") != mode:
            return None
        return None if mode in abilities.thinking else {}

    return rule(
        f"thinking-{mode}",
        find,
        MODEL_ERROR_PREFIX + wording,
        evidence="D",
        models=f"without `{mode}` thinking",
    )


MODEL_RULES = (
    rule(
        "tool-names-unique",
        _check_tool_names_unique,
        MODEL_ERROR_PREFIX + "tools: Tool names must be unique.",
        evidence="F",
    ),
    rule(
        "choice-known",
        _check_choice_known,
        MODEL_ERROR_PREFIX + "Tool '{name}' not found in provided tools",
        evidence="F",
    ),
    rule(
        "marks-most",
        _check_marks_most,
        MODEL_ERROR_PREFIX + "A maximum of 4 blocks with cache_control may be provided. Found {count}.",
        evidence="S",
    ),
    rule(
        "sampling-model",
        _check_sampling_model,
        MODEL_ERROR_PREFIX + "`{name}` is deprecated for this model.",
        evidence="S",
        models="without `enabled` thinking",
    ),
    rule(
        "sampling-thinking",
        _check_sampling_thinking,
        MODEL_ERROR_PREFIX
        + "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        evidence="S",
    ),
    _thinking_mode_rule(
        "enabled",
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
        ' "output_config.effort" to control thinking behavior.',
    ),
    _thinking_mode_rule("adaptive", "adaptive thinking is not supported on this model"),
    _thinking_mode_rule("disabled", '"thinking.type.disabled" is not supported for this model.'),
    rule(
        "thinking-budget",
        _check_thinking_budget,
        MODEL_ERROR_PREFIX + "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        evidence="F",
    ),
    rule(
        "effort-level",
        _check_effort_level,
        MODEL_ERROR_PREFIX + "This model does not support effort level '{effort}'.",
        evidence="K",
        models="that think",
    ),
    rule(
        "thinking-room",
        _check_thinking_room,
        MODEL_ERROR_PREFIX + "`max_tokens` must be greater than `thinking.budget_tokens`.",
        evidence="F",
    ),
    rule(
        "thinking-forced",
        _check_thinking_forced,
        MODEL_ERROR_PREFIX + "Thinking may not be enabled when tool_choice forces tool use.",
        evidence="S",
    ),
    rule("thinking-first", _check_thinking_first, _FIRST, evidence="S"),
    rule(
        "thought-last",
        _check_thought_last,
        MODEL_ERROR_PREFIX
        + "messages.{index}: The final block in an assistant message cannot be `thinking`.",
        evidence="S",
    ),
    rule(
        "forced-tools",
        _check_forced_tools,
        MODEL_ERROR_PREFIX + 'tool_choice: type "tool" and "any" are not supported for this model.',
        evidence="D",
        models="that cannot be forced",
    ),
    rule(
        "prefill",
        _check_prefill,
        MODEL_ERROR_PREFIX
        + "This model does not support assistant message prefill. The conversation must end with a"
        " user message.",
        evidence="S",
        models="that take no prefill",
    ),
)
