"""Messages of the Chat Completions wire: each by itself, and calls with their results."""

from collections.abc import Iterator
from typing import NamedTuple

from ._rules_openai_chat_shape import (
    SHAPES,
    asked,
    assistant,
    call,
    calling,
    calls,
    image,
    messages,
    parts,
    result,
    text,
    user,
)
from ._rules_openai_shape import (
    rule,
)
from ._rules_openai_tools import NAME
from ._rules_reading import (
    Block,
)
from ._rules_shapes import (
    Row,
)
from .rules import Asked, Found

ROLES = ("system", "assistant", "user", "function", "tool", "developer")
PARTS = ("text", "image_url", "input_audio", "refusal", "audio", "file")


class Turn(NamedTuple):
    """A message that calls, and the results right behind it."""

    called: list[str]
    results: list[Block]


def turns(request: Asked) -> Iterator[Turn]:
    """Every run of results with the message before it; that one need not have called anything."""
    said = messages(request)
    index = 0
    while index < len(said):
        end = index + 1
        while end < len(said) and said[end].get("role") == "tool":
            end += 1
        called = [str(item.get("id")) for item in calls(said[index])]
        yield Turn(called, said[index + 1 : end])
        index = end


def unanswered(request: Asked) -> Found | None:
    for turn in turns(request):
        answered = [str(message.get("tool_call_id")) for message in turn.results]
        missing = [id_ for id_ in turn.called if id_ not in answered]
        if missing:
            return {"ids": ", ".join(missing)}
    return None


def orphan(request: Asked) -> Found | None:
    said = messages(request)
    if said and said[0].get("role") == "tool":
        return {}
    return {} if any(turn.results and not turn.called for turn in turns(request)) else None


def _stranger(request: Asked) -> Found | None:
    for turn in turns(request):
        for message in turn.results:
            id_ = message.get("tool_call_id")
            if turn.called and str(id_) not in turn.called:
                return {"id": id_}
    return None


def _nameless_result(request: Asked) -> Found | None:
    found = any(item.get("role") == "tool" and not item.get("tool_call_id") for item in messages(request))
    return {} if found else None


def _said_nothing(request: Asked) -> Found | None:
    for message in messages(request):
        instead = any(message.get(name) for name in ("tool_calls", "function_call", "refusal", "audio"))
        if message.get("content") is None and not instead:
            return {}
    return None


def _misplaced_image(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        pictures = any(part.get("type") == "image_url" for part in parts(message))
        if pictures and message.get("role") != "user":
            return {"index": index, "role": message.get("role")}
    return None


_LOOKED = [user("Look"), calling(), result()]
_UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each"
    " 'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
)
_ORPHAN = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with"
    " 'tool_calls'."
)

MESSAGE_RULES = (
    SHAPES.some(
        "messages",
        asked(),
        Row(
            id="messages-some",
            evidence="S",
            says="Invalid 'messages': empty array. Expected an array with minimum length 1,"
            " but got an empty array instead.",
        ),
        refuses=asked(messages=[]),
    ),
    SHAPES.typed(
        "messages",
        "array",
        asked(),
        asked(messages="Hello"),
        Row(
            id="messages-type",
            evidence="S",
            says="Invalid type for 'messages': expected an array of objects, but got a string instead.",
        ),
    ),
    SHAPES.typed(
        "messages[]",
        "object",
        asked(),
        asked(messages=[user("Hello"), "Hello"]),
        Row(
            id="message-type",
            evidence="S",
            says="Invalid type for 'messages[1]': expected an object, but got a string instead.",
        ),
    ),
    SHAPES.required(
        "messages[].role",
        asked(),
        Row(id="role-required", evidence="S", says="Missing required parameter: 'messages[0].role'."),
        refuses=asked(messages=[{"content": "Hello"}]),
    ),
    SHAPES.one_of(
        "messages[].role",
        ROLES,
        asked(messages=[{"role": "developer", "content": "Be brief."}, user("Hello")]),
        asked(messages=[{"role": "model", "content": "Hello"}]),
        Row(
            id="role",
            evidence="S",
            says="Invalid value: 'model'. Supported values are: 'system', 'assistant', 'user', 'function',"
            " 'tool', and 'developer'.",
        ),
    ),
    SHAPES.typed(
        "messages[].content",
        "string|array|null",
        asked(messages=[user([text()])]),
        asked(messages=[user(7)]),
        Row(
            id="content-type",
            evidence="S",
            says="Invalid type for 'messages[0].content': expected one of a string or array of objects,"
            " but got an integer instead.",
        ),
    ),
    SHAPES.typed(
        "messages[].content[]",
        "object",
        asked(messages=[user([text()])]),
        asked(messages=[user(["Hello"])]),
        Row(
            id="part-object",
            evidence="S",
            says="Invalid type for 'messages[0].content[0]': expected an object, but got a string instead.",
        ),
    ),
    SHAPES.required(
        "messages[].content[].type",
        asked(messages=[user([text()])]),
        Row(
            id="part-type-required",
            evidence="S",
            says="Missing required parameter: 'messages[1].content[0].type'.",
        ),
        refuses=asked(messages=[user("Hello"), user([{"text": "Hello"}])]),
    ),
    SHAPES.one_of(
        "messages[].content[].type",
        PARTS,
        asked(messages=[user([text(), image()])]),
        asked(messages=[user([{"type": "input_text", "text": "Hello"}])]),
        Row(
            id="part-type",
            evidence="S",
            says="Invalid value: 'input_text'. Supported values are: 'text', 'image_url', 'input_audio',"
            " 'refusal', 'audio', and 'file'.",
        ),
    ),
    SHAPES.typed(
        "messages[].content[].image_url",
        "object",
        asked(messages=[user([text(), image()])]),
        asked(messages=[user([text(), {"type": "image_url", "image_url": "https://host/a.png"}])]),
        Row(
            id="image-object",
            evidence="S",
            says="Invalid type for 'messages[0].content[1].image_url': expected an object,"
            " but got a string instead.",
        ),
    ),
    SHAPES.matching(
        "messages[].name",
        r"^[^\s<|\\/>]+$",
        asked(messages=[{**user("Hello"), "name": "Ann-1"}]),
        asked(messages=[{**user("Hello"), "name": "Ann B"}]),
        Row(
            id="message-name",
            evidence="S",
            says="Invalid 'messages[0].name': string does not match pattern. Expected a string that"
            " matches the"
            r" pattern '^[^\s<|\\/>]+$'.",
        ),
    ),
    SHAPES.some(
        "messages[].tool_calls",
        asked(messages=_LOOKED),
        Row(
            id="calls-some",
            evidence="S",
            says="Invalid 'messages[1].tool_calls': empty array. Expected an array with minimum length 1,"
            " but got an empty array instead.",
        ),
        refuses=asked(messages=[user("Hello"), assistant("Hello", tool_calls=[]), user("Bye")]),
    ),
    SHAPES.typed(
        "messages[].tool_calls[].id",
        "string",
        asked(messages=_LOOKED),
        asked(messages=[user("Look"), assistant(tool_calls=[call(None)]), result()]),
        Row(
            id="call-id-type",
            evidence="S",
            says="Invalid type for 'messages[1].tool_calls[0].id': expected a string, but got null instead.",
        ),
    ),
    SHAPES.shorter(
        "messages[].tool_calls[].id",
        40,
        asked(messages=[user("Look"), calling("c" * 40), result("c" * 40)]),
        asked(messages=[user("Look"), calling("c" * 41), result("c" * 41)]),
        Row(
            id="call-id-length",
            evidence="S",
            says="Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with"
            " maximum length"
            " 40, but got a string with length 41 instead.",
        ),
    ),
    SHAPES.matching(
        "messages[].tool_calls[].function.name",
        NAME,
        asked(messages=_LOOKED),
        asked(messages=[user("Look"), assistant(tool_calls=[call(name="look.up")]), result()]),
        Row(
            id="call-name",
            evidence="S",
            says="Invalid 'messages[1].tool_calls[0].function.name': string does not match pattern."
            " Expected a"
            " string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        ),
    ),
    SHAPES.shorter(
        "messages[].tool_calls[].function.name",
        64,
        asked(messages=[user("Look"), assistant(tool_calls=[call(name="t" * 64)]), result()]),
        asked(messages=[user("Look"), assistant(tool_calls=[call(name="t" * 65)]), result()]),
        Row(
            id="call-name-length",
            evidence="S",
            says="Invalid 'messages[1].tool_calls[0].function.name': string too long. Expected a string with"
            " maximum length 64, but got a string with length 65 instead.",
        ),
    ),
    SHAPES.typed(
        "messages[].tool_calls[].function.arguments",
        "string",
        asked(messages=_LOOKED),
        asked(messages=[user("Look"), assistant(tool_calls=[call(arguments={"a": 1})]), result()]),
        Row(
            id="arguments-type",
            evidence="S",
            says="Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string,"
            " but got an object instead.",
        ),
    ),
)

TALK_RULES = (
    rule(
        "result-id-required",
        _nameless_result,
        "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'.",
        evidence="S",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Look"), calling(), {"role": "tool", "content": "seen"}]),
    ),
    rule(
        "content-null",
        _said_nothing,
        "Invalid value for 'content': expected a string, got null.",
        evidence="S",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Hello"), assistant(), user("Bye")]),
        also=(
            (asked(messages=[user("Look"), calling(), result(content="")]), ""),
            (asked(messages=[user("Hello"), assistant(refusal="No."), user("Bye")]), ""),
        ),
    ),
    rule(
        "image-user",
        _misplaced_image,
        "Invalid 'messages[{index}]'. Image URLs are only allowed for messages with role 'user', but this"
        " message with role '{role}' contains an image URL.",
        param="messages[{index}]",
        evidence="S",
        passes=asked(messages=[user([text(), image()])]),
        offends=asked(messages=[user("Look"), calling(), result(content=[image()])]),
        says="Invalid 'messages[2]'. Image URLs are only allowed for messages with role 'user', but this"
        " message with role 'tool' contains an image URL.",
        code="invalid_value",
    ),
    rule(
        "result-missing",
        unanswered,
        _UNANSWERED,
        evidence="S",
        passes=asked(messages=[calling("call_1", "call_2"), result("call_2"), result("call_1")]),
        offends=asked(messages=[user("Look"), calling("call_1", "call_2"), result("call_1"), user("Well?")]),
        says=_UNANSWERED.format(ids="call_2"),
        also=(
            (asked(messages=[user("Look"), calling("a", "b")]), _UNANSWERED.format(ids="a, b")),
            (asked(messages=[calling("a"), user("Wait"), result("a")]), _UNANSWERED.format(ids="a")),
        ),
    ),
    rule(
        "result-orphan",
        orphan,
        _ORPHAN,
        evidence="S",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Look"), result()]),
        also=((asked(messages=[result(), user("Look")]), _ORPHAN),),
    ),
    rule(
        "result-stranger",
        _stranger,
        "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
        evidence="F",
        passes=asked(messages=_LOOKED),
        offends=asked(messages=[user("Look"), calling(), result(), result("call_2")]),
        says="Invalid parameter: 'tool_call_id' of 'call_2' not found in 'tool_calls' of previous message.",
        also=(
            (asked(messages=[user("Look"), result()]), ""),
            (asked(messages=[*_LOOKED, user("Well?")]), ""),
            (asked(messages=[calling("a", "b"), result("a"), result("b"), user("Well?")]), ""),
        ),
    ),
)
