"""The conversation: who speaks when, that something is said, and that every call is answered."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from ._rules_bedrock_converse_shape import (
    MODEL_SAYS,
    asked,
    assistant,
    blocks,
    call,
    calls,
    held,
    messages,
    offering,
    result,
    results,
    rule,
    specs,
    text,
    tool,
    user,
)
from ._rules_reading import (
    Block,
    field,
    listed,
    mapping,
)
from .rules import Asked, Found

IN_TIME = frozenset({"toolResult", "cachePoint"})
_UNANSWERED = (
    MODEL_SAYS + "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after:"
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


def _spoken(request: Asked) -> list[tuple[int, Block]]:
    """What users and models said; what is told in between by neither of them does not count."""
    return [
        (index, message)
        for index, message in enumerate(messages(request))
        if message.get("role") in ("user", "assistant")
    ]


def _not_opened(request: Asked) -> Found | None:
    said = _spoken(request)
    return None if said and said[0][1].get("role") == "user" else {}


def _twice_in_a_row(request: Asked) -> Found | None:
    roles = [message.get("role") for _, message in _spoken(request)]
    return {} if any(one == next_ for one, next_ in pairwise(roles)) else None


def _nothing_said(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        if not blocks(message):
            return {"index": index}
    return None


def _blank(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message)):
            if block.get("text") == "":
                return {"at": f"messages.{index}.content.{inner}"}
    return None


def _unconfigured(request: Asked) -> Found | None:
    used = any(held(message, kind) for message in messages(request) for kind in ("toolUse", "toolResult"))
    return {} if used and field(request, "toolConfig") is None else None


def _objects(request: Asked) -> Iterator[tuple[str, object]]:
    for index, spec in specs(request):
        yield (
            f"toolConfig.tools.{index}.toolSpec.inputSchema.json",
            mapping(spec.get("inputSchema")).get("json"),
        )
    for index, message in enumerate(messages(request)):
        for inner, item in held(message, "toolUse"):
            yield f"messages.{index}.content.{inner}.toolUse.input", item.get("input")
        for inner, item in held(message, "toolResult"):
            for place, told in enumerate(listed(item.get("content"))):
                if "json" in mapping(told):
                    at = f"messages.{index}.content.{inner}.toolResult.content.{place}.json"
                    yield at, mapping(told)["json"]


def _no_object(request: Asked) -> Found | None:
    return next(({"at": place} for place, value in _objects(request) if not isinstance(value, dict)), None)


def _schema_type(request: Asked) -> Found | None:
    for index, spec in specs(request):
        if mapping(mapping(spec.get("inputSchema")).get("json")).get("type") != "object":
            return {"at": f"toolConfig.tools.{index}.toolSpec.inputSchema.json.type"}
    return None


def _same_ids(request: Asked, kind: str) -> Found | None:
    for index, message in enumerate(messages(request)):
        found = calls(message) if kind == "toolUse" else results(message)
        counted = Counter(str(item.get("toolUseId")) for _, item in found)
        twice = [id_ for id_, times in counted.items() if times > 1]
        if twice:
            return {"kind": kind, "index": index, "ids": ", ".join(twice)}
    return None


def _answered(request: Asked) -> Iterator[tuple[int, list[str], list[str]]]:
    """Each message, and the end, with the ids asked just before it and the ids it answers."""
    nobody: tuple[int, Block] = (len(messages(request)), {})
    for (_, before), (index, message) in pairwise([nobody, *_spoken(request), nobody]):
        yield (
            index,
            [str(item.get("toolUseId")) for _, item in calls(before)],
            [str(item.get("toolUseId")) for _, item in results(message)],
        )


def _unanswered(request: Asked) -> Found | None:
    for index, wanted, given in _answered(request):
        missing = [id_ for id_ in wanted if id_ not in given]
        if missing:
            return {"index": index, "ids": ", ".join(missing)}
    return None


def _too_many(request: Asked) -> Found | None:
    for index, wanted, given in _answered(request):
        if len(given) > len(wanted):
            return {"index": index}
    return None


def _late(request: Asked) -> Found | None:
    """Results count only as long as nothing was said before them."""
    for index, message in enumerate(messages(request)):
        said = False
        late: list[str] = []
        for block in blocks(message):
            if said and message.get("role") == "user" and isinstance(block.get("toolResult"), dict):
                late.append(str(mapping(block["toolResult"]).get("toolUseId")))
            said = said or not IN_TIME & block.keys()
        if late:
            return {"index": index - 1, "ids": ", ".join(late)}
    return None


def _talk_after_call(request: Asked) -> Found | None:
    """A call followed by words is not immediately followed by its result."""
    for index, message in enumerate(messages(request)):
        called = calls(message)
        if called and any("text" in block for block in blocks(message)[called[0][0] :]):
            return {"index": index, "ids": ", ".join(str(item.get("toolUseId")) for _, item in called)}
    return None


def _silent_failure(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        for inner, item in results(message):
            if item.get("status") == "error" and not listed(item.get("content")):
                return {"at": f"messages.{index}.content.{inner}.toolResult"}
    return None


def _silent(**fields: object) -> Block:
    return {"toolResult": {"toolUseId": "tooluse_1", "content": [], **fields}}


_PAIR = (assistant(call()), user(result()))
_LOOK = offering()

MESSAGE_RULES = (
    rule(
        "user-first",
        _not_opened,
        _OPENING,
        evidence="S",
        passes=asked(messages=[user("Hello"), assistant("Hello"), user("Bye")]),
        offends=asked(messages=[assistant("Hello"), user("Bye")]),
        also=((asked(messages=[]), _OPENING),),
    ),
    rule(
        "turns",
        _twice_in_a_row,
        "A conversation must alternate between user and assistant roles. Make sure the conversation"
        " alternates between user and assistant roles and try again.",
        evidence="S",
        passes=asked(messages=[user("Hello"), {"role": "system", "content": [text("Be brief.")]}]),
        offends=asked(messages=[user("Hello"), user("Bye")]),
    ),
    rule(
        "content-some",
        _nothing_said,
        "The content field in the Message object at messages.{index} is empty. Add a ContentBlock object to"
        " the content field and try again.",
        evidence="S",
        passes=asked(messages=[user("Hello"), assistant("Hello"), user("Bye")]),
        offends=asked(messages=[user("Hello"), assistant(), user("Bye")]),
        says="The content field in the Message object at messages.1 is empty. Add a ContentBlock object to"
        " the content field and try again.",
    ),
    rule(
        "text-blank",
        _blank,
        "The text field in the ContentBlock object at {at} is blank. Add text to the text field, and try"
        " again.",
        evidence="S",
        passes=asked(messages=[user("\n")]),
        offends=asked(messages=[user("Hello", "")]),
        says="The text field in the ContentBlock object at messages.0.content.1 is blank. Add text to the"
        " text field, and try again.",
    ),
    rule(
        "tools-configured",
        _unconfigured,
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
        evidence="S",
        passes=asked(messages=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(messages=[user("Look"), *_PAIR]),
    ),
    rule(
        "json-object",
        _no_object,
        _FORMAT,
        evidence="S",
        passes=asked(messages=[user("Look"), _PAIR[0], user(result("tooluse_1", {"json": {}}))], **_LOOK),
        offends=asked(messages=[user("Look"), _PAIR[0], user(result("tooluse_1", {"json": [1]}))], **_LOOK),
        says=_FORMAT.format(at="messages.2.content.0.toolResult.content.0.json"),
        also=(
            (
                asked(messages=[user("Look"), assistant(call(input="{}")), user(result())], **_LOOK),
                _FORMAT.format(at="messages.1.content.0.toolUse.input"),
            ),
        ),
    ),
    rule(
        "tool-schema",
        _schema_type,
        "The value at {at} must be one of the following: object.",
        evidence="S",
        passes=asked(**_LOOK),
        offends=asked(**offering(tool(), tool("find", inputSchema={"json": {"properties": {}}}))),
        says="The value at toolConfig.tools.1.toolSpec.inputSchema.json.type must be one of the following:"
        " object.",
    ),
    rule(
        "call-ids-unique",
        lambda request: _same_ids(request, "toolUse"),
        "The {kind} blocks at messages.{index}.content contain duplicate Ids: {ids}",
        evidence="S",
        passes=asked(messages=[user("Look"), *_PAIR, *_PAIR], **_LOOK),
        offends=asked(messages=[user("Look"), assistant(call(), call()), user(result())], **_LOOK),
        says="The toolUse blocks at messages.1.content contain duplicate Ids: tooluse_1",
    ),
    rule(
        "result-once",
        lambda request: _same_ids(request, "toolResult"),
        "The {kind} blocks at messages.{index}.content contain duplicate Ids: {ids}",
        evidence="S",
        passes=asked(messages=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(messages=[user("Look"), _PAIR[0], user(result(), result())], **_LOOK),
        says="The toolResult blocks at messages.2.content contain duplicate Ids: tooluse_1",
    ),
    rule(
        "result-missing",
        _unanswered,
        "Expected toolResult blocks at messages.{index}.content for the following Ids: {ids}",
        evidence="S",
        passes=asked(
            messages=[user("Look"), assistant(call("a"), call("b")), user(result("b"), result("a"))], **_LOOK
        ),
        offends=asked(messages=[user("Look"), assistant(call("a"), call("b")), user(result("b"))], **_LOOK),
        says="Expected toolResult blocks at messages.2.content for the following Ids: a",
        also=(
            (asked(messages=[user("Look", call())], **_LOOK), ""),
            (
                asked(messages=[user("Look"), assistant(call("a"))], **_LOOK),
                "Expected toolResult blocks at messages.2.content for the following Ids: a",
            ),
        ),
    ),
    rule(
        "results-most",
        _too_many,
        _EXCESS,
        evidence="S",
        passes=asked(messages=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(messages=[user("Look"), _PAIR[0], user(result(), result("b"))], **_LOOK),
        says=_EXCESS.format(index=2),
        also=(
            (asked(messages=[user("Look"), assistant(result())], **_LOOK), ""),
            (
                asked(messages=[user("Look"), assistant("So."), user(result())], **_LOOK),
                _EXCESS.format(index=2),
            ),
            (
                asked(messages=[user(result())], **_LOOK),
                _EXCESS.format(index=0),
            ),
        ),
    ),
    rule(
        "result-first",
        _late,
        _UNANSWERED,
        evidence="S",
        passes=asked(messages=[user("Look"), _PAIR[0], user(result(), "So?")], **_LOOK),
        offends=asked(messages=[user("Look"), _PAIR[0], user("So?", result())], **_LOOK),
        says=_UNANSWERED.format(index=1, ids="tooluse_1"),
        also=(
            (
                asked(messages=[user("Look"), _PAIR[0], user("So?", result("a"), result("b"))], **_LOOK),
                _UNANSWERED.format(index=1, ids="a, b"),
            ),
            (asked(messages=[user("Look"), assistant("So?", result())], **_LOOK), ""),
            (
                asked(messages=[user("Look"), _PAIR[0], user(result("a"), "So?", result("b"))], **_LOOK),
                _UNANSWERED.format(index=1, ids="b"),
            ),
        ),
    ),
    rule(
        "call-last",
        _talk_after_call,
        _UNANSWERED,
        evidence="S",
        passes=asked(messages=[user("Look"), assistant("I look.", call()), user(result())], **_LOOK),
        offends=asked(messages=[user("Look"), assistant(call(), "I look."), user(result())], **_LOOK),
        says=_UNANSWERED.format(index=1, ids="tooluse_1"),
        also=(
            (
                asked(
                    messages=[
                        user("Look"),
                        assistant(call("a"), "And there.", call("b")),
                        user(result("a"), result("b")),
                    ],
                    **_LOOK,
                ),
                _UNANSWERED.format(index=1, ids="a, b"),
            ),
        ),
    ),
    rule(
        "failure-told",
        _silent_failure,
        "The content field at {at} cannot be empty when status value is error.",
        evidence="S",
        passes=asked(messages=[user("Look"), _PAIR[0], user(_silent())], **_LOOK),
        offends=asked(messages=[user("Look"), _PAIR[0], user(_silent(status="error"))], **_LOOK),
        says="The content field at messages.2.content.0.toolResult cannot be empty when status value is"
        " error.",
    ),
)
