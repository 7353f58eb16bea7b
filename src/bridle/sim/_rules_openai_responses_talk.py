"""Input of the Responses wire: ids, calls with their outputs, and thoughts with what they led to."""

from ._rules_openai_responses_items import is_message
from ._rules_openai_responses_shape import asked, call, items, output, thought, user
from ._rules_openai_shape import (
    rule,
)
from ._rules_reading import (
    Block,
    field,
)
from .rules import Asked, Found

PREFIXES = {
    "function_call": "fc",
    "message": "msg",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
}
"""How the id of an item begins, by its type."""
CALLS = {
    "function_call": "function call",
    "custom_tool_call": "custom tool call",
    "computer_call": "computer call",
    "apply_patch_call": "apply patch call",
    "shell_call": "shell call",
}
"""Calls that the client answers, by type, as the refusals name them."""
OUTPUTS = {f"{type_}_output": f"{named} output" for type_, named in CALLS.items()}


def _bad_id(request: Asked) -> Found | None:
    for index, item in enumerate(items(request)):
        prefix, id_ = PREFIXES.get(str(item.get("type"))), item.get("id")
        if prefix and isinstance(id_, str) and not id_.startswith(prefix):
            return {"index": index, "id": id_, "prefix": prefix}
    return None


def _same_id(request: Asked) -> Found | None:
    seen: set[object] = set()
    for item in items(request):
        id_ = item.get("id")
        if isinstance(id_, str) and id_ in seen:
            return {"id": id_}
        seen.add(str(id_))
    return None


def _elsewhere(request: Asked) -> bool:
    """Whether part of the conversation is with the provider, where a rule about one request cannot look."""
    kept = field(request, "previous_response_id") or field(request, "conversation")
    return bool(kept) or any(item.get("type") == "item_reference" for item in items(request))


def _orphan(request: Asked) -> Found | None:
    """An output answers a call before it that nothing has answered yet."""
    open_calls: set[object] = set()
    for item in items(request):
        type_, id_ = str(item.get("type")), str(item.get("call_id"))
        if type_ in CALLS:
            open_calls.add((f"{type_}_output", id_))
        elif type_ in OUTPUTS:
            if (type_, id_) not in open_calls and not _elsewhere(request):
                return {"kind": OUTPUTS[type_], "id": item.get("call_id")}
            open_calls.discard((type_, id_))
    return None


def _unanswered(request: Asked) -> Found | None:
    answered = [(item.get("type"), str(item.get("call_id"))) for item in items(request)]
    for item in items(request):
        late = item.get("async") is True or _elsewhere(request)
        type_, id_ = str(item.get("type")), str(item.get("call_id"))
        if type_ in CALLS and (f"{type_}_output", id_) not in answered and not late:
            return {"kind": CALLS[type_], "id": item.get("call_id")}
    return None


def _dangling(request: Asked) -> Found | None:
    """Thoughts led to something the model did; that has to come right behind them."""
    said = items(request)
    for index, item in enumerate(said):
        if item.get("type") != "reasoning" or not item.get("id"):
            continue
        following = next((other for other in said[index:] if other.get("type") != "reasoning"), None)
        if following is None or _theirs(following):
            return {"id": item.get("id")}
    return None


def _theirs(item: Block) -> bool:
    """Whether it comes from the caller's side."""
    if is_message(item):
        return item.get("role") != "assistant"
    return str(item.get("type")).endswith("_output")


_DANGLING = "Item '{id}' of type 'reasoning' was provided without its required following item."
_LOOKED = [user("Look"), call(), output()]
_PATCH = {"type": "custom_tool_call", "call_id": "call_p", "name": "apply_patch", "input": "*** Begin Patch"}
_PATCHED = {"type": "custom_tool_call_output", "call_id": "call_p", "output": "Done"}
_CLICK = {
    "type": "computer_call",
    "call_id": "call_c",
    "actions": [{"type": "screenshot"}],
    "pending_safety_checks": [],
}
_CLICKED = {
    "type": "computer_call_output",
    "call_id": "call_c",
    "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,iVBORw0KGgo="},
}

TALK_RULES = (
    rule(
        "item-id-prefix",
        _bad_id,
        "Invalid 'input[{index}].id': '{id}'. Expected an ID that begins with '{prefix}'.",
        param="input[{index}].id",
        evidence="S",
        passes=asked(input=[user("Look"), thought(), call(id="fc_1"), output()]),
        offends=asked(input=[user("Look"), thought(), call(id="call_1"), output()]),
        says="Invalid 'input[2].id': 'call_1'. Expected an ID that begins with 'fc'.",
        code="invalid_value",
        also=(
            (asked(input=[{"type": "item_reference", "id": "msg_1"}, user("Hello")]), ""),
            (asked(input=_LOOKED), ""),
        ),
    ),
    rule(
        "item-ids-unique",
        _same_id,
        "Duplicate item found with id {id}. Remove duplicate items from your input and try again.",
        param="input",
        evidence="S",
        passes=asked(input=[user("Look"), thought("rs_1"), thought("rs_2"), call(), output()]),
        offends=asked(input=[user("Look"), thought("rs_1"), thought("rs_1"), call(), output()]),
        says="Duplicate item found with id rs_1. Remove duplicate items from your input and try again.",
    ),
    rule(
        "output-orphan",
        _orphan,
        "No tool call found for {kind} with call_id {id}.",
        param="input",
        evidence="S",
        passes=asked(input=_LOOKED),
        offends=asked(input=[user("Look"), output()]),
        says="No tool call found for function call output with call_id call_1.",
        also=(
            (asked(input=[output()], previous_response_id="resp_1"), ""),
            (asked(input=[output()], conversation="conv_1"), ""),
            (asked(input=[{"type": "item_reference", "id": "fc_1"}, output()]), ""),
            (
                asked(input=[user("Look"), output(), call()]),
                "No tool call found for function call output with call_id call_1.",
            ),
            (asked(input=[user("Look"), _PATCH, _PATCHED]), ""),
            (
                asked(input=[user("Look"), _PATCH, output("call_p")]),
                "No tool call found for function call output with call_id call_p.",
            ),
            (
                asked(input=[user("Look"), _PATCHED]),
                "No tool call found for custom tool call output with call_id call_p.",
            ),
            (
                asked(input=[user("Look"), call(), output(), output()]),
                "No tool call found for function call output with call_id call_1.",
            ),
        ),
    ),
    rule(
        "call-unanswered",
        _unanswered,
        "No tool output found for {kind} {id}.",
        param="input",
        evidence="S",
        passes=asked(
            input=[user("Look"), call("call_1"), call("call_2"), output("call_2"), output("call_1")]
        ),
        offends=asked(input=[user("Look"), call("call_1"), call("call_2"), output("call_1"), user("Well?")]),
        says="No tool output found for function call call_2.",
        also=(
            (asked(input=[user("Look"), {**call(), "async": True}, user("Well?")]), ""),
            (asked(input=[call(), {"type": "item_reference", "id": "fc_1"}]), ""),
            (asked(input=[_PATCH, user("Well?")]), "No tool output found for custom tool call call_p."),
            (asked(input=[_CLICK, user("Well?")]), "No tool output found for computer call call_c."),
            (asked(input=[user("Click"), _CLICK, _CLICKED]), ""),
            (
                asked(input=[user("Look"), {**call(), "async": False}]),
                "No tool output found for function call call_1.",
            ),
        ),
    ),
    rule(
        "reasoning-followed",
        _dangling,
        _DANGLING,
        param="input",
        evidence="S",
        passes=asked(input=[user("Look"), thought(), call(), output()]),
        offends=asked(input=[user("Look"), thought(), user("Well?")]),
        says=_DANGLING.format(id="rs_1"),
        also=(
            (asked(input=[user("Look"), thought()]), _DANGLING.format(id="rs_1")),
            (asked(input=[call(), thought(), output()]), _DANGLING.format(id="rs_1")),
            (asked(input=[user("Look"), {**thought(), "id": None}, user("Well?")]), ""),
            (asked(input=[{"role": "assistant", "id": "msg_1", "content": "Hm."}, user("Well?")]), ""),
            (asked(input=[thought(), {"role": "assistant", "content": "Hm."}]), ""),
            (asked(input=[{"role": "user", "id": "msg_1", "content": "Hm."}]), ""),
        ),
    ),
)
