"""What the model behind the service objects to, in its maker's words after the service's sentence."""

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_bedrock_converse_shape import (
    BUDGETS,
    FORCEABLE,
    MODEL_SAYS,
    NEWEST,
    PREFILLS,
    asked,
    assistant,
    blocks,
    call,
    choice,
    forced,
    inference,
    loop_head,
    messages,
    offering,
    result,
    rule,
    specs,
    text,
    thinking,
    thinks,
    thought,
    tool,
    tools,
    user,
)
from ._rules_reading import (
    Block,
    field,
    listed,
    mapping,
    to,
)
from .rules import Asked, Found, Rule

MARKS_MAX = 4
THINKING_TOKENS_MIN = 1024
_FIRST = (
    MODEL_SAYS + "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found"
    " `{type}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking"
    " blocks from previous turns. To avoid this requirement, disable `thinking`."
)


def _same_tools(request: Asked) -> Found | None:
    names = [spec.get("name") for _, spec in specs(request)]
    return {} if any(names.count(name) > 1 for name in names) else None


def _unknown_choice(request: Asked) -> Found | None:
    wanted = mapping(choice(request).get("tool")).get("name")
    known = {spec.get("name") for _, spec in specs(request)}
    return {"name": wanted} if wanted is not None and wanted not in known else None


def _marks(request: Asked) -> int:
    places: list[Block] = [*tools(request), *map(mapping, listed(field(request, "system")))]
    for message in messages(request):
        places += blocks(message)
    return sum("cachePoint" in place for place in places)


def _many_marks(request: Asked) -> Found | None:
    return {"count": _marks(request)} if _marks(request) > MARKS_MAX else None


def _sampled(request: Asked) -> Found | None:
    # `Abilities.sampling` speaks of another wire; here temperature goes together with the allowance for
    # thinking, in the same models.
    abilities = request.abilities
    if abilities is None or not abilities.thinking or "enabled" in abilities.thinking:
        return None
    names = {"temperature": "temperature", "topP": "top_p"}
    return next(
        ({"name": told} for name, told in names.items() if inference(request, name) is not None), None
    )


def _hot_thinking(request: Asked) -> Found | None:
    thinks_now = thinking(request).get("type") in ("enabled", "adaptive")
    return {} if thinks_now and inference(request, "temperature") not in (None, 1) else None


def _small_allowance(request: Asked) -> Found | None:
    wanted = thinking(request).get("budget_tokens")
    return {} if isinstance(wanted, int) and wanted < THINKING_TOKENS_MIN else None


def _effort_level(request: Asked) -> Found | None:
    wanted, abilities = mapping(field(request, "outputConfig")).get("effort"), request.abilities
    if abilities is None or not isinstance(wanted, str) or not abilities.thinking:
        return None
    return None if abilities.takes_effort(wanted) else {"effort": wanted}


def _no_room(request: Asked) -> Found | None:
    wanted, room = thinking(request).get("budget_tokens"), inference(request, "maxTokens")
    return {} if isinstance(wanted, int) and isinstance(room, int) and room <= wanted else None


def _forced_while_thinking(request: Asked) -> Found | None:
    return {} if forced(request) and thinking(request).get("type") == "enabled" else None


def _forced(request: Asked) -> Found | None:
    return {} if forced(request) and request.abilities and not request.abilities.forced_tools else None


def _thoughtless(request: Asked) -> Found | None:
    """The loop whose results come back must open with a thought; a later message of it needs none."""
    head = loop_head(request) if thinking(request).get("type") == "enabled" else None
    if head is None:
        return None
    first = next(iter((blocks(messages(request)[head]) or [{}])[0]), "")
    told = {"toolUse": "tool_use"}.get(first, first)
    return None if first == "reasoningContent" else {"index": head, "type": told}


def _thought_last(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        said = blocks(message)
        if message.get("role") == "assistant" and said and "reasoningContent" in said[-1]:
            return {"index": index}
    return None


def _prefilled(request: Asked) -> Found | None:
    said, abilities = messages(request), request.abilities
    if abilities is None or abilities.prefill or not said:
        return None
    return {} if said[-1].get("role") == "assistant" else None


def _thinking_refused(mode: str, wording: str, *, passes: Abilities, offends: Abilities) -> Rule:
    def find(request: Asked) -> Found | None:
        abilities = request.abilities
        if abilities is None or not abilities.thinking or thinking(request).get("type") != mode:
            return None
        return None if mode in abilities.thinking else {}

    setting = {"type": mode} | ({"budget_tokens": THINKING_TOKENS_MIN} if mode == "enabled" else {})
    return rule(
        f"thinking-{mode}",
        find,
        MODEL_SAYS + wording,
        evidence="D",
        models=f"without `{mode}` thinking",
        passes=to(passes, asked(**thinks(**setting))),
        offends=to(offends, asked(**thinks(**setting))),
        also=((to(Abilities(), asked(**thinks(**setting))), ""),),
    )


_ALLOWED = thinks(type="enabled", budget_tokens=1024)
_MARK = {"cachePoint": {"type": "default"}}
_LOOK = offering()
_LOOKED = [user("Look"), assistant(call()), user(result())]
_THINKS_ONCE = [user("Look"), assistant(thought(), call()), user(result())]
_AGAIN = [assistant(call("tooluse_2")), user(result("tooluse_2"))]
_THINKS_LATE = [assistant(thought(), call("tooluse_2")), user(result("tooluse_2"))]

MODEL_RULES = (
    rule(
        "tool-names-unique",
        _same_tools,
        MODEL_SAYS + "tools: Tool names must be unique.",
        evidence="F",
        passes=asked(**offering(tool(), tool("find"))),
        offends=asked(**offering(tool(), tool())),
    ),
    rule(
        "choice-known",
        _unknown_choice,
        MODEL_SAYS + "Tool '{name}' not found in provided tools",
        evidence="F",
        passes=to(FORCEABLE, asked(**offering(toolChoice={"tool": {"name": "look"}}))),
        offends=to(FORCEABLE, asked(**offering(toolChoice={"tool": {"name": "find"}}))),
        says=MODEL_SAYS + "Tool 'find' not found in provided tools",
    ),
    rule(
        "marks-most",
        _many_marks,
        MODEL_SAYS + "A maximum of 4 blocks with cache_control may be provided. Found {count}.",
        evidence="S",
        passes=asked(system=[text("Be brief."), _MARK], messages=[user("Hello", *[_MARK] * 3)]),
        offends=asked(
            system=[text("Be brief."), _MARK], messages=[user("Hello", _MARK, _MARK, _MARK, _MARK)]
        ),
        says=MODEL_SAYS + "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    rule(
        "sampling-model",
        _sampled,
        MODEL_SAYS + "`{name}` is deprecated for this model.",
        evidence="S",
        models="without `enabled` thinking",
        passes=to(BUDGETS, asked(inferenceConfig={"temperature": 0.5})),
        offends=asked(inferenceConfig={"temperature": 0.5}),
        says=MODEL_SAYS + "`temperature` is deprecated for this model.",
        also=(
            (to(Abilities(), asked(inferenceConfig={"temperature": 0.5})), ""),
            (asked(inferenceConfig={"topP": 1}), MODEL_SAYS + "`top_p` is deprecated for this model."),
        ),
    ),
    rule(
        "sampling-thinking",
        _hot_thinking,
        MODEL_SAYS + "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
        evidence="S",
        passes=to(BUDGETS, asked(inferenceConfig={"temperature": 1}, **_ALLOWED)),
        offends=to(BUDGETS, asked(inferenceConfig={"temperature": 0.5}, **_ALLOWED)),
    ),
    _thinking_refused(
        "enabled",
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
        ' "output_config.effort" to control thinking behavior.',
        passes=BUDGETS,
        offends=FORCEABLE,
    ),
    _thinking_refused(
        "adaptive", "adaptive thinking is not supported on this model", passes=BUDGETS, offends=PREFILLS
    ),
    _thinking_refused(
        "disabled",
        '"thinking.type.disabled" is not supported for this model.',
        passes=FORCEABLE,
        offends=NEWEST,
    ),
    rule(
        "thinking-budget",
        _small_allowance,
        MODEL_SAYS + "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
        evidence="F",
        passes=to(BUDGETS, asked(**_ALLOWED)),
        offends=to(BUDGETS, asked(**thinks(type="enabled", budget_tokens=1023))),
    ),
    rule(
        "effort-level",
        _effort_level,
        MODEL_SAYS + "This model does not support effort level '{effort}'.",
        evidence="K",
        models="that think",
        passes=asked(outputConfig={"effort": "max"}),
        offends=asked(outputConfig={"effort": "minimal"}),
        says=MODEL_SAYS + "This model does not support effort level 'minimal'.",
        also=(
            (to(replace(NEWEST, thinking=()), asked(outputConfig={"effort": "minimal"})), ""),
            (to(None, asked(outputConfig={"effort": "minimal"})), ""),
            (
                to(replace(NEWEST, efforts=()), asked(outputConfig={"effort": "low"})),
                MODEL_SAYS + "This model does not support effort level 'low'.",
            ),
        ),
    ),
    rule(
        "thinking-room",
        _no_room,
        MODEL_SAYS + "`max_tokens` must be greater than `thinking.budget_tokens`.",
        evidence="F",
        passes=to(BUDGETS, asked(inferenceConfig={"maxTokens": 1025}, **_ALLOWED)),
        offends=to(BUDGETS, asked(inferenceConfig={"maxTokens": 1024}, **_ALLOWED)),
    ),
    rule(
        "thinking-forced",
        _forced_while_thinking,
        MODEL_SAYS + "Thinking may not be enabled when tool_choice forces tool use.",
        evidence="S",
        passes=to(BUDGETS, asked(**offering(toolChoice={"auto": {}}), **_ALLOWED)),
        offends=to(BUDGETS, asked(**offering(toolChoice={"any": {}}), **_ALLOWED)),
    ),
    rule(
        "thinking-first",
        _thoughtless,
        _FIRST,
        evidence="S",
        passes=to(
            BUDGETS,
            asked(messages=_THINKS_ONCE, **_LOOK, **_ALLOWED),
        ),
        offends=to(
            BUDGETS, asked(messages=[user("Look"), assistant(call()), user(result())], **_LOOK, **_ALLOWED)
        ),
        says=_FIRST.format(index=1, type="tool_use"),
        also=(
            (to(BUDGETS, asked(messages=[], **_ALLOWED)), ""),
            (to(BUDGETS, asked(messages=[user("Look"), assistant(call()), user("So?")], **_ALLOWED)), ""),
            (
                to(
                    BUDGETS,
                    asked(messages=[user("Look"), assistant("I", call()), user(result())], **_ALLOWED),
                ),
                _FIRST.format(index=1, type="text"),
            ),
            (
                to(BUDGETS, asked(messages=[assistant(call()), user(result())], **_ALLOWED)),
                _FIRST.format(index=0, type="tool_use"),
            ),
            (
                to(BUDGETS, asked(messages=[assistant(), user(result())], **_ALLOWED)),
                _FIRST.format(index=0, type=""),
            ),
            (to(BUDGETS, asked(messages=[user(result())], **_ALLOWED)), ""),
            (to(BUDGETS, asked(messages=[*_THINKS_ONCE, *_AGAIN], **_LOOK, **_ALLOWED)), ""),
            (
                to(BUDGETS, asked(messages=[*_LOOKED, *_THINKS_LATE], **_LOOK, **_ALLOWED)),
                _FIRST.format(index=1, type="tool_use"),
            ),
            (
                to(BUDGETS, asked(messages=[*_LOOKED[:2], user(result(), "So?")], **_LOOK, **_ALLOWED)),
                "",
            ),
            (
                to(BUDGETS, asked(messages=[*_LOOKED[:2], user(result(), _MARK)], **_LOOK, **_ALLOWED)),
                _FIRST.format(index=1, type="tool_use"),
            ),
            (
                to(
                    BUDGETS,
                    asked(
                        messages=[user("Look"), assistant(call()), user(result())],
                        additionalModelRequestFields={"reasoning_config": {"type": "enabled"}},
                    ),
                ),
                _FIRST.format(index=1, type="tool_use"),
            ),
        ),
    ),
    rule(
        "thought-last",
        _thought_last,
        MODEL_SAYS + "messages.{index}: The final block in an assistant message cannot be `thinking`.",
        evidence="S",
        passes=asked(messages=[user("Hello"), assistant(thought(), "Hello"), user("Bye")]),
        offends=asked(messages=[user("Hello"), assistant("Hello", thought()), user("Bye")]),
        says=MODEL_SAYS + "messages.1: The final block in an assistant message cannot be `thinking`.",
        also=((asked(messages=[user("Hello", thought())]), ""),),
    ),
    rule(
        "forced-tools",
        _forced,
        MODEL_SAYS + 'tool_choice: type "tool" and "any" are not supported for this model.',
        evidence="D",
        models="that cannot be forced",
        passes=to(FORCEABLE, asked(**offering(toolChoice={"any": {}}))),
        offends=asked(**offering(toolChoice={"any": {}})),
        also=((to(None, asked(**offering(toolChoice={"any": {}}))), ""),),
    ),
    rule(
        "prefill",
        _prefilled,
        MODEL_SAYS + "This model does not support assistant message prefill. The conversation must end with a"
        " user message.",
        evidence="S",
        models="that take no prefill",
        passes=to(PREFILLS, asked(messages=[user("Count"), assistant("One,")])),
        offends=asked(messages=[user("Count"), assistant("One,")]),
        also=((asked(messages=[]), ""),),
    ),
)
