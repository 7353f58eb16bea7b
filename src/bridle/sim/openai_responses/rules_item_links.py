"""Rules about input items: ids, calls with their outputs, and reasoning with its results."""

from bridle.sim.openai.error_style import rule
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, field

from .request import items
from .rules_items import is_message

ID_PREFIXES = {
    "function_call": "fc",
    "message": "msg",
    "reasoning": "rs",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
}
"""Id prefixes by item type."""
CALL_NAMES = {
    "function_call": "function call",
    "custom_tool_call": "custom tool call",
    "computer_call": "computer call",
    "apply_patch_call": "apply patch call",
    "shell_call": "shell call",
}
"""Calls that the client answers, by type, as the refusals name them."""
OUTPUT_NAMES = {f"{type_}_output": f"{named} output" for type_, named in CALL_NAMES.items()}


def _check_item_id_prefix(request: RawRequest) -> RuleFinding | None:
    for index, item in enumerate(items(request)):
        prefix, id_ = ID_PREFIXES.get(str(item.get("type"))), item.get("id")
        if prefix and isinstance(id_, str) and not id_.startswith(prefix):
            return {"index": index, "id": id_, "prefix": prefix}
    return None


def _check_item_ids_unique(request: RawRequest) -> RuleFinding | None:
    seen: set[object] = set()
    for item in items(request):
        id_ = item.get("id")
        if isinstance(id_, str) and id_ in seen:
            return {"id": id_}
        seen.add(str(id_))
    return None


def _has_stored_history(request: RawRequest) -> bool:
    """True if the provider stores part of the conversation, which a rule cannot see."""
    kept = field(request, "previous_response_id") or field(request, "conversation")
    return bool(kept) or any(item.get("type") == "item_reference" for item in items(request))


def _check_output_orphan(request: RawRequest) -> RuleFinding | None:
    """Require that an output answers an earlier call without an output."""
    open_calls: set[object] = set()
    for item in items(request):
        type_, id_ = str(item.get("type")), str(item.get("call_id"))
        if type_ in CALL_NAMES:
            open_calls.add((f"{type_}_output", id_))
        elif type_ in OUTPUT_NAMES:
            if (type_, id_) not in open_calls and not _has_stored_history(request):
                return {"kind": OUTPUT_NAMES[type_], "id": item.get("call_id")}
            open_calls.discard((type_, id_))
    return None


def _check_call_unanswered(request: RawRequest) -> RuleFinding | None:
    answered = [(item.get("type"), str(item.get("call_id"))) for item in items(request)]
    for item in items(request):
        may_follow = item.get("async") is True or _has_stored_history(request)
        type_, id_ = str(item.get("type")), str(item.get("call_id"))
        if type_ in CALL_NAMES and (f"{type_}_output", id_) not in answered and not may_follow:
            return {"kind": CALL_NAMES[type_], "id": item.get("call_id")}
    return None


def _check_reasoning_followed(request: RawRequest) -> RuleFinding | None:
    """Require that reasoning with an id is followed by the item it led to."""
    sent = items(request)
    for index, item in enumerate(sent):
        if item.get("type") != "reasoning" or not item.get("id"):
            continue
        following = next((other for other in sent[index:] if other.get("type") != "reasoning"), None)
        if following is None or _is_from_client(following):
            return {"id": item.get("id")}
    return None


def _is_from_client(item: JsonObject) -> bool:
    """True if the item comes from the client."""
    if is_message(item):
        return item.get("role") != "assistant"
    return str(item.get("type")).endswith("_output")


_DANGLING = "Item '{id}' of type 'reasoning' was provided without its required following item."

LINK_RULES = (
    rule(
        "item-id-prefix",
        _check_item_id_prefix,
        "Invalid 'input[{index}].id': '{id}'. Expected an ID that begins with '{prefix}'.",
        param="input[{index}].id",
        evidence="S",
        code="invalid_value",
    ),
    rule(
        "item-ids-unique",
        _check_item_ids_unique,
        "Duplicate item found with id {id}. Remove duplicate items from your input and try again.",
        param="input",
        evidence="S",
    ),
    rule(
        "output-orphan",
        _check_output_orphan,
        "No tool call found for {kind} with call_id {id}.",
        param="input",
        evidence="S",
    ),
    rule(
        "call-unanswered",
        _check_call_unanswered,
        "No tool output found for {kind} {id}.",
        param="input",
        evidence="S",
    ),
    rule("reasoning-followed", _check_reasoning_followed, _DANGLING, param="input", evidence="S"),
)
