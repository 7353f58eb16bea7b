"""Rules of the model behind the service, with its vendor's messages after the service's prefix."""

from bridle.sim.claude.model_rules import ModelWire, make_model_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, messages

from .request import (
    MODEL_ERROR_PREFIX,
    blocks,
    find_tool_loop,
    inference_setting,
    is_tool_forced,
    list_tool_specs,
    rule,
    thinking_config,
    tool_choice,
    tools,
)

MARKS_MAX = 4
BLOCK_TYPES = {"toolUse": "tool_use", "reasoningContent": "thinking"}
"""Names of blocks in the vendor's own messages."""


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


def _check_effort_level(request: RawRequest) -> RuleFinding | None:
    wanted, abilities = as_mapping(field(request, "outputConfig")).get("effort"), request.abilities
    if abilities is None or not isinstance(wanted, str) or not abilities.thinking:
        return None
    return None if abilities.takes_effort(wanted) else {"effort": wanted}


def _check_thought_last(request: RawRequest) -> RuleFinding | None:
    for index, message in enumerate(messages(request)):
        content = blocks(message)
        if message.get("role") == "assistant" and content and "reasoningContent" in content[-1]:
            return {"index": index}
    return None


def _find_first_type(request: RawRequest) -> tuple[int, object] | None:
    head = find_tool_loop(request)
    if head is None:
        return None
    first = next(iter((blocks(messages(request)[head]) or [{}])[0]), "")
    return head, BLOCK_TYPES.get(first, first)


def _is_prefilled(request: RawRequest) -> bool:
    return [message.get("role") for message in messages(request)[-1:]] == ["assistant"]


_SHARED = make_model_rules(
    ModelWire(
        rule=rule,
        find_thinking=thinking_config,
        find_budget=lambda request: thinking_config(request).get("budget_tokens"),
        find_room=lambda request: inference_setting(request, "maxTokens"),
        find_temperature=lambda request: inference_setting(request, "temperature"),
        is_tool_forced=is_tool_forced,
        find_first_type=_find_first_type,
        is_prefilled=_is_prefilled,
        prefix=MODEL_ERROR_PREFIX,
        serves_others=True,
    ),
    evidence_of_adaptive="D",
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
    _SHARED["sampling-thinking"],
    _SHARED["thinking-enabled"],
    _SHARED["thinking-adaptive"],
    _SHARED["thinking-disabled"],
    _SHARED["thinking-budget"],
    rule(
        "effort-level",
        _check_effort_level,
        MODEL_ERROR_PREFIX + "This model does not support effort level '{effort}'.",
        evidence="K",
        models="that think",
    ),
    _SHARED["thinking-room"],
    _SHARED["thinking-forced"],
    _SHARED["thinking-first"],
    rule(
        "thought-last",
        _check_thought_last,
        MODEL_ERROR_PREFIX
        + "messages.{index}: The final block in an assistant message cannot be `thinking`.",
        evidence="S",
    ),
    _SHARED["forced-tools"],
    _SHARED["prefill"],
)
