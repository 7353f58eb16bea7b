"""Rules about the conversation: the order of roles, content, and a result for every call."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, messages

from .request import MODEL_ERROR_PREFIX, blocks, list_calls, list_held, list_results, list_tool_specs, rule
from .rules_fields import BLOCKS, refuse

IN_TIME = frozenset({"toolResult", "cachePoint"})
_UNANSWERED = (
    MODEL_ERROR_PREFIX
    + "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after:"
    " {ids}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)
_EXCESS = (
    "The number of toolResult blocks at messages.{index}.content exceeds the number of toolUse blocks of"
    " previous turn."
)
_OPENING = (
    "A conversation must start with a user message. Try again with a conversation that starts with a user"
    " message."
)
_FORMAT = "The format of the value at {at} is invalid. Provide a json object for the field and try again."


def _list_turns(request: RawRequest) -> list[tuple[int, JsonObject]]:
    """List user and assistant messages; messages in between from neither do not count."""
    return [
        (index, message)
        for index, message in enumerate(messages(request))
        if message.get("role") in ("user", "assistant")
    ]


def _check_user_first(request: RawRequest) -> RuleFinding | None:
    turns = _list_turns(request)
    return None if turns and turns[0][1].get("role") == "user" else {}


def _check_turns(request: RawRequest) -> RuleFinding | None:
    roles = [message.get("role") for _, message in _list_turns(request)]
    return {} if any(one == next_ for one, next_ in pairwise(roles)) else None


def _check_tools_configured(request: RawRequest) -> RuleFinding | None:
    used = any(
        list_held(message, kind) for message in messages(request) for kind in ("toolUse", "toolResult")
    )
    return {} if used and field(request, "toolConfig") is None else None


def _list_json_objects(request: RawRequest) -> Iterator[tuple[str, object]]:
    for index, spec in list_tool_specs(request):
        yield (
            f"toolConfig.tools.{index}.toolSpec.inputSchema.json",
            as_mapping(spec.get("inputSchema")).get("json"),
        )
    for index, message in enumerate(messages(request)):
        for inner, item in list_held(message, "toolUse"):
            yield f"messages.{index}.content.{inner}.toolUse.input", item.get("input")
        for inner, item in list_held(message, "toolResult"):
            for place, told in enumerate(as_list(item.get("content"))):
                if "json" in as_mapping(told):
                    at = f"messages.{index}.content.{inner}.toolResult.content.{place}.json"
                    yield at, as_mapping(told)["json"]


def _check_json_object(request: RawRequest) -> RuleFinding | None:
    return next(
        ({"at": place} for place, value in _list_json_objects(request) if not isinstance(value, dict)), None
    )


def _has_other_schema(tool: JsonObject) -> bool:
    spec = tool.get("toolSpec")
    schema = as_mapping(as_mapping(as_mapping(spec).get("inputSchema")).get("json"))
    return isinstance(spec, dict) and schema.get("type") != "object"


def _find_repeated_ids(request: RawRequest, kind: str) -> RuleFinding | None:
    for index, message in enumerate(messages(request)):
        found = list_calls(message) if kind == "toolUse" else list_results(message)
        counted = Counter(str(item.get("toolUseId")) for _, item in found)
        twice = [id_ for id_, times in counted.items() if times > 1]
        if twice:
            return {"kind": kind, "index": index, "ids": ", ".join(twice)}
    return None


def _list_call_answers(request: RawRequest) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield each message, and the end, with the ids called just before it and the ids it answers."""
    outside: tuple[int, JsonObject] = (len(messages(request)), {})
    for (_, before), (index, message) in pairwise([outside, *_list_turns(request), outside]):
        yield (
            index,
            [str(item.get("toolUseId")) for _, item in list_calls(before)],
            [str(item.get("toolUseId")) for _, item in list_results(message)],
        )


def _check_result_missing(request: RawRequest) -> RuleFinding | None:
    for index, wanted, given in _list_call_answers(request):
        missing = [id_ for id_ in wanted if id_ not in given]
        if missing:
            return {"index": index, "ids": ", ".join(missing)}
    return None


def _check_results_most(request: RawRequest) -> RuleFinding | None:
    for index, wanted, given in _list_call_answers(request):
        if len(given) > len(wanted):
            return {"index": index}
    return None


def _check_result_first(request: RawRequest) -> RuleFinding | None:
    """Accept results only before any other content of their message."""
    for index, message in enumerate(messages(request)):
        has_other_content = False
        late: list[str] = []
        for block in blocks(message):
            if (
                has_other_content
                and message.get("role") == "user"
                and isinstance(block.get("toolResult"), dict)
            ):
                late.append(str(as_mapping(block["toolResult"]).get("toolUseId")))
            has_other_content = has_other_content or not IN_TIME & block.keys()
        if late:
            return {"index": index - 1, "ids": ", ".join(late)}
    return None


def _check_call_last(request: RawRequest) -> RuleFinding | None:
    """Require that no text follows a call."""
    for index, message in enumerate(messages(request)):
        called = list_calls(message)
        if called and any("text" in block for block in blocks(message)[called[0][0] :]):
            return {"index": index, "ids": ", ".join(str(item.get("toolUseId")) for _, item in called)}
    return None


def _check_failure_told(request: RawRequest) -> RuleFinding | None:
    for index, message in enumerate(messages(request)):
        for inner, item in list_results(message):
            if item.get("status") == "error" and not as_list(item.get("content")):
                return {"at": f"messages.{index}.content.{inner}.toolResult"}
    return None


MESSAGE_RULES = (
    rule("user-first", _check_user_first, _OPENING, evidence="S"),
    rule(
        "turns",
        _check_turns,
        "A conversation must alternate between user and assistant roles. Make sure the conversation"
        " alternates between user and assistant roles and try again.",
        evidence="S",
    ),
    refuse(
        "content-some",
        "messages[]",
        lambda message: not blocks(message),
        "The content field in the Message object at messages.{index} is empty. Add a ContentBlock object to"
        " the content field and try again.",
        evidence="S",
    ),
    refuse(
        "text-blank",
        BLOCKS,
        lambda block: block.get("text") == "",
        "The text field in the ContentBlock object at {at} is blank. Add text to the text field, and try"
        " again.",
        evidence="S",
    ),
    rule(
        "tools-configured",
        _check_tools_configured,
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        evidence="S",
    ),
    rule("json-object", _check_json_object, _FORMAT, evidence="S"),
    refuse(
        "tool-schema",
        "toolConfig.tools[]",
        _has_other_schema,
        "The value at {at}.toolSpec.inputSchema.json.type must be one of the following: object.",
        evidence="S",
    ),
    rule(
        "call-ids-unique",
        lambda request: _find_repeated_ids(request, "toolUse"),
        "The {kind} blocks at messages.{index}.content contain duplicate Ids: {ids}",
        evidence="S",
    ),
    rule(
        "result-once",
        lambda request: _find_repeated_ids(request, "toolResult"),
        "The {kind} blocks at messages.{index}.content contain duplicate Ids: {ids}",
        evidence="S",
    ),
    rule(
        "result-missing",
        _check_result_missing,
        "Expected toolResult blocks at messages.{index}.content for the following Ids: {ids}",
        evidence="S",
    ),
    rule("results-most", _check_results_most, _EXCESS, evidence="S"),
    rule("result-first", _check_result_first, _UNANSWERED, evidence="S"),
    rule("call-last", _check_call_last, _UNANSWERED, evidence="S"),
    rule(
        "failure-told",
        _check_failure_told,
        "The content field at {at} cannot be empty when status value is error.",
        evidence="S",
    ),
)
