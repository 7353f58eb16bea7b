"""Messages of the Chat Completions wire: each by itself, and calls with their results."""

from collections.abc import Iterator
from typing import NamedTuple

from bridle.sim.openai.error_style import rule
from bridle.sim.openai.rules_tools import NAME
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import JsonObject

from .request import (
    FIELD_CHECKS,
    assistant,
    call,
    calling_message,
    calls,
    example,
    image,
    messages,
    parts,
    result,
    text,
    user,
)

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")


class CallTurn(NamedTuple):
    """A message that calls, and the results right behind it."""

    call_ids: list[str]
    results: list[JsonObject]


def list_call_turns(request: RawRequest) -> Iterator[CallTurn]:
    """Every run of results with the message before it; that one need not have called anything."""
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


def _check_result_id_required(request: RawRequest) -> RuleFinding | None:
    found = any(item.get("role") == "tool" and not item.get("tool_call_id") for item in messages(request))
    return {} if found else None


def _check_content_null(request: RawRequest) -> RuleFinding | None:
    for message in messages(request):
        instead = any(message.get(name) for name in ("tool_calls", "function_call", "refusal", "audio"))
        if message.get("content") is None and not instead:
            return {}
    return None


def _check_image_user(request: RawRequest) -> RuleFinding | None:
    for index, message in enumerate(messages(request)):
        pictures = any(part.get("type") == "image_url" for part in parts(message))
        if pictures and message.get("role") != "user":
            return {"index": index, "role": message.get("role")}
    return None


_LOOKED = [user("Look"), calling_message(), result()]
_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
)
_ORPHAN = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'."
)

MESSAGE_RULES = (
    FIELD_CHECKS.not_empty(
        "messages",
        example(),
        FieldRow(
            id="messages-some",
            evidence="S",
            says="Invalid 'messages': empty array. Expected an array with minimum length 1,"
            " but got an empty array instead.",
        ),
        refuses=example(messages=[]),
    ),
    FIELD_CHECKS.of_type(
        "messages",
        "array",
        example(),
        example(messages="Hello"),
        FieldRow(
            id="messages-type",
            evidence="S",
            says="Invalid type for 'messages': expected an array of objects, but got a string instead.",
        ),
    ),
    FIELD_CHECKS.of_type(
        "messages[]",
        "object",
        example(),
        example(messages=[user("Hello"), "Hello"]),
        FieldRow(
            id="message-type",
            evidence="S",
            says="Invalid type for 'messages[1]': expected an object, but got a string instead.",
        ),
    ),
    FIELD_CHECKS.required(
        "messages[].role",
        example(),
        FieldRow(id="role-required", evidence="S", says="Missing required parameter: 'messages[0].role'."),
        refuses=example(messages=[{"content": "Hello"}]),
    ),
    FIELD_CHECKS.one_of(
        "messages[].role",
        ROLES,
        example(messages=[{"role": "developer", "content": "Be brief."}, user("Hello")]),
        example(messages=[{"role": "model", "content": "Hello"}]),
        FieldRow(
            id="role",
            evidence="S",
            says="Invalid value: 'model'. Supported values are: 'system', 'assistant', 'user', 'function',"
            " 'tool', and 'developer'.",
        ),
    ),
    FIELD_CHECKS.of_type(
        "messages[].content",
        "string|array|null",
        example(messages=[user([text()])]),
        example(messages=[user(7)]),
        FieldRow(
            id="content-type",
            evidence="S",
            says="Invalid type for 'messages[0].content': expected one of a string or array of objects,"
            " but got an integer instead.",
        ),
    ),
    FIELD_CHECKS.of_type(
        "messages[].content[]",
        "object",
        example(messages=[user([text()])]),
        example(messages=[user(["Hello"])]),
        FieldRow(
            id="part-object",
            evidence="S",
            says="Invalid type for 'messages[0].content[0]': expected an object, but got a string instead.",
        ),
    ),
    FIELD_CHECKS.required(
        "messages[].content[].type",
        example(messages=[user([text()])]),
        FieldRow(
            id="part-type-required",
            evidence="S",
            says="Missing required parameter: 'messages[1].content[0].type'.",
        ),
        refuses=example(messages=[user("Hello"), user([{"text": "Hello"}])]),
    ),
    FIELD_CHECKS.one_of(
        "messages[].content[].type",
        PARTS,
        example(messages=[user([text(), image()])]),
        example(messages=[user([{"type": "input_text", "text": "Hello"}])]),
        FieldRow(
            id="part-type",
            evidence="S",
            says="Invalid value: 'input_text'. Supported values are: 'text', 'image_url', 'input_audio',"
            " 'refusal', 'audio', and 'file'.",
        ),
    ),
    FIELD_CHECKS.of_type(
        "messages[].content[].image_url",
        "object",
        example(messages=[user([text(), image()])]),
        example(messages=[user([text(), {"type": "image_url", "image_url": "https://host/a.png"}])]),
        FieldRow(
            id="image-object",
            evidence="S",
            says="Invalid type for 'messages[0].content[1].image_url': expected an object,"
            " but got a string instead.",
        ),
    ),
    FIELD_CHECKS.pattern(
        "messages[].name",
        r"^[^\s<|\\/>]+$",
        example(messages=[{**user("Hello"), "name": "Ann-1"}]),
        example(messages=[{**user("Hello"), "name": "Ann B"}]),
        FieldRow(
            id="message-name",
            evidence="S",
            says="Invalid 'messages[0].name': string does not match pattern. Expected a string that"
            " matches the"
            r" pattern '^[^\s<|\\/>]+$'.",
        ),
    ),
    FIELD_CHECKS.not_empty(
        "messages[].tool_calls",
        example(messages=_LOOKED),
        FieldRow(
            id="calls-some",
            evidence="S",
            says="Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1,"
            " but got an empty array instead.",
        ),
        refuses=example(messages=[user("Hello"), assistant("Hello", tool_calls=[]), user("Bye")]),
    ),
    FIELD_CHECKS.of_type(
        "messages[].tool_calls[].id",
        "string",
        example(messages=_LOOKED),
        example(messages=[user("Look"), assistant(tool_calls=[call(None)]), result()]),
        FieldRow(
            id="call-id-type",
            evidence="S",
            says="Invalid type for 'messages[1].tool_calls[0].id': expected a string, but got null instead.",
        ),
    ),
    FIELD_CHECKS.max_length(
        "messages[].tool_calls[].id",
        40,
        example(messages=[user("Look"), calling_message("c" * 40), result("c" * 40)]),
        example(messages=[user("Look"), calling_message("c" * 41), result("c" * 41)]),
        FieldRow(
            id="call-id-length",
            evidence="S",
            says="Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with"
            " maximum length"
            " 40, but got a string with length 41 instead.",
        ),
    ),
    FIELD_CHECKS.pattern(
        "messages[].tool_calls[].function.name",
        NAME,
        example(messages=_LOOKED),
        example(messages=[user("Look"), assistant(tool_calls=[call(name="look.up")]), result()]),
        FieldRow(
            id="call-name",
            evidence="S",
            says="Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern."
            " Expected a"
            " string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        ),
    ),
    FIELD_CHECKS.max_length(
        "messages[].tool_calls[].function.name",
        64,
        example(messages=[user("Look"), assistant(tool_calls=[call(name="t" * 64)]), result()]),
        example(messages=[user("Look"), assistant(tool_calls=[call(name="t" * 65)]), result()]),
        FieldRow(
            id="call-name-length",
            evidence="S",
            says="Invalid 'messages[1].tool_calls[0].function.name': string too long. Expected a string with"
            " maximum length 64, but got a string with length 65 instead.",
        ),
    ),
    FIELD_CHECKS.of_type(
        "messages[].tool_calls[].function.arguments",
        "string",
        example(messages=_LOOKED),
        example(messages=[user("Look"), assistant(tool_calls=[call(arguments={"a": 1})]), result()]),
        FieldRow(
            id="arguments-type",
            evidence="S",
            says="Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string,"
            " but got an object instead.",
        ),
    ),
)

CALL_RULES = (
    rule(
        "result-id-required",
        _check_result_id_required,
        "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
        evidence="S",
        passes=example(messages=_LOOKED),
        offends=example(messages=[user("Look"), calling_message(), {"role": "tool", "content": "seen"}]),
    ),
    rule(
        "content-null",
        _check_content_null,
        "Invalid value for 'content': expected a string, got null.",
        evidence="S",
        passes=example(messages=_LOOKED),
        offends=example(messages=[user("Hello"), assistant(), user("Bye")]),
        also=(
            (example(messages=[user("Look"), calling_message(), result(content="")]), ""),
            (example(messages=[user("Hello"), assistant(refusal="No."), user("Bye")]), ""),
        ),
    ),
    rule(
        "image-user",
        _check_image_user,
        "Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role 'user', but this"
        " message with role '{role}' contains an image URL.",
        param="messages[{index}]",
        evidence="S",
        passes=example(messages=[user([text(), image()])]),
        offends=example(messages=[user("Look"), calling_message(), result(content=[image()])]),
        says="Invalid 'messages[2]'. Image URLs are only allowed for messages with role 'user', but this"
        " message with role 'tool' contains an image URL.",
        code="invalid_value",
    ),
    rule(
        "result-missing",
        check_result_missing,
        _UNANSWERED,
        evidence="S",
        passes=example(messages=[calling_message("call_1", "call_2"), result("call_2"), result("call_1")]),
        offends=example(
            messages=[user("Look"), calling_message("call_1", "call_2"), result("call_1"), user("Well?")]
        ),
        says=_UNANSWERED.format(ids="call_2"),
        also=(
            (example(messages=[user("Look"), calling_message("a", "b")]), _UNANSWERED.format(ids="a, b")),
            (
                example(messages=[calling_message("a"), user("Wait"), result("a")]),
                _UNANSWERED.format(ids="a"),
            ),
        ),
    ),
    rule(
        "result-orphan",
        check_result_orphan,
        _ORPHAN,
        evidence="S",
        passes=example(messages=_LOOKED),
        offends=example(messages=[user("Look"), result()]),
        also=((example(messages=[result(), user("Look")]), _ORPHAN),),
    ),
    rule(
        "result-stranger",
        _check_result_stranger,
        "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
        evidence="F",
        passes=example(messages=_LOOKED),
        offends=example(messages=[user("Look"), calling_message(), result(), result("call_2")]),
        says="Invalid parameter: 'tool_call_id' of 'call_2' not found in 'tool_calls' of previous message.",
        also=(
            (example(messages=[user("Look"), result()]), ""),
            (example(messages=[*_LOOKED, user("Well?")]), ""),
            (example(messages=[calling_message("a", "b"), result("a"), result("b"), user("Well?")]), ""),
        ),
    ),
)
