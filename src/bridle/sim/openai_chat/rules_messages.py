"""Rules about messages of Chat Completions: each one, and calls with their results."""

from collections.abc import Iterator
from typing import NamedTuple

from bridle.sim.openai.error_style import FIELD_CHECKS, refuse, rule
from bridle.sim.openai.rules_media import media_rules
from bridle.sim.openai.rules_tools import NAME
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import JsonObject, as_mapping, messages

from .request import calls, parts

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")


class CallTurn(NamedTuple):
    """A message that makes calls, and the results directly after it."""

    call_ids: list[str]
    results: list[JsonObject]


def list_call_turns(request: RawRequest) -> Iterator[CallTurn]:
    """Yield every run of results with the message before it, which need not have made calls."""
    said = messages(request)
    index = 0
    while index < len(said):
        end = index + 1
        while end < len(said) and said[end].get("role") == "tool":
            end += 1
        called = [str(item.get("id")) for item in calls(said[index])]
        yield CallTurn(called, said[index + 1 : end])
        index = end


def check_result_missing(request: RawRequest) -> RuleFinding | None:
    for turn in list_call_turns(request):
        answered = [str(message.get("tool_call_id")) for message in turn.results]
        missing = [id_ for id_ in turn.call_ids if id_ not in answered]
        if missing:
            return {"ids": ", ".join(missing)}
    return None


def check_result_orphan(request: RawRequest) -> RuleFinding | None:
    said = messages(request)
    if said and said[0].get("role") == "tool":
        return {}
    return {} if any(turn.results and not turn.call_ids for turn in list_call_turns(request)) else None


def _check_result_stranger(request: RawRequest) -> RuleFinding | None:
    for turn in list_call_turns(request):
        for message in turn.results:
            id_ = message.get("tool_call_id")
            if turn.call_ids and str(id_) not in turn.call_ids:
                return {"id": id_}
    return None


def _lacks_content(message: JsonObject) -> bool:
    instead = any(message.get(name) for name in ("tool_calls", "function_call", "refusal", "audio"))
    return message.get("content") is None and not instead


def _find_misplaced_image(message: JsonObject) -> RuleFinding | None:
    pictures = any(part.get("type") == "image_url" for part in parts(message))
    role = message.get("role")
    return {"role": role} if pictures and role != "user" else None


_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
)
_ORPHAN = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'."
)

MESSAGE_RULES = (
    FIELD_CHECKS.not_empty("messages", FieldRow(id="messages-some", evidence="S")),
    FIELD_CHECKS.of_type("messages", "array", FieldRow(id="messages-type", evidence="S")),
    FIELD_CHECKS.of_type("messages[]", "object", FieldRow(id="message-type", evidence="S")),
    FIELD_CHECKS.required("messages[].role", FieldRow(id="role-required", evidence="S")),
    FIELD_CHECKS.one_of("messages[].role", ROLES, FieldRow(id="role", evidence="S")),
    FIELD_CHECKS.of_type(
        "messages[].content", "string|array|null", FieldRow(id="content-type", evidence="S")
    ),
    FIELD_CHECKS.of_type("messages[].content[]", "object", FieldRow(id="part-object", evidence="S")),
    FIELD_CHECKS.required("messages[].content[].type", FieldRow(id="part-type-required", evidence="S")),
    FIELD_CHECKS.one_of("messages[].content[].type", PARTS, FieldRow(id="part-type", evidence="S")),
    FIELD_CHECKS.of_type(
        "messages[].content[].image_url", "object", FieldRow(id="image-object", evidence="S")
    ),
    FIELD_CHECKS.pattern("messages[].name", r"^[^\s<|\\/>]+$", FieldRow(id="message-name", evidence="S")),
    FIELD_CHECKS.not_empty("messages[].tool_calls", FieldRow(id="calls-some", evidence="S")),
    FIELD_CHECKS.of_type("messages[].tool_calls[].id", "string", FieldRow(id="call-id-type", evidence="S")),
    FIELD_CHECKS.max_length("messages[].tool_calls[].id", 40, FieldRow(id="call-id-length", evidence="S")),
    FIELD_CHECKS.pattern(
        "messages[].tool_calls[].function.name", NAME, FieldRow(id="call-name", evidence="S")
    ),
    FIELD_CHECKS.max_length(
        "messages[].tool_calls[].function.name", 64, FieldRow(id="call-name-length", evidence="S")
    ),
    FIELD_CHECKS.of_type(
        "messages[].tool_calls[].function.arguments", "string", FieldRow(id="arguments-type", evidence="S")
    ),
)

CALL_RULES = (
    refuse(
        "result-id-required",
        "messages[]",
        lambda message: message.get("role") == "tool" and not message.get("tool_call_id"),
        "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
        evidence="S",
    ),
    refuse(
        "content-null",
        "messages[]",
        _lacks_content,
        "Invalid value for 'content': expected a string, got null.",
        evidence="S",
    ),
    refuse(
        "image-user",
        "messages[]",
        _find_misplaced_image,
        "Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role 'user', but this"
        " message with role '{role}' contains an image URL.",
        param="messages[{index}]",
        evidence="S",
        code="invalid_value",
    ),
    rule("result-missing", check_result_missing, _UNANSWERED, evidence="S"),
    rule("result-orphan", check_result_orphan, _ORPHAN, evidence="S"),
    rule(
        "result-stranger",
        _check_result_stranger,
        "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
        evidence="F",
    ),
)


_NO_SOUND = "Invalid 'messages[{index}]'. Content blocks are expected to be either text or image_url type."


def _list_images(request: RawRequest) -> Iterator[tuple[str, str]]:
    for index, message in enumerate(messages(request)):
        for inner, part in enumerate(parts(message)):
            url = as_mapping(part.get("image_url")).get("url")
            if isinstance(url, str):
                yield f"messages[{index}].content[{inner}].image_url.url", url


MEDIA_RULES = (
    refuse(
        "audio-model",
        "messages[]",
        lambda message: any(part.get("type") == "input_audio" for part in parts(message)),
        _NO_SOUND,
        param="messages[{index}]",
        code="invalid_value",
        evidence="S",
        models="that take no audio",
        when=lambda able: not able.audio,
    ),
    *media_rules(
        _list_images,
        "Invalid image URL: '{at}'.",
    ),
)
