"""Messages: that something is said, and that every call is answered."""

import re
from collections.abc import Iterator
from itertools import takewhile, zip_longest

from ..values.value import Value
from ._rules_anthropic_shape import (
    PREFILLS,
    asked,
    assistant,
    blocks,
    call,
    messages,
    placed_blocks,
    result,
    rule,
    text,
    tool,
    user,
)
from ._rules_reading import (
    Block,
    field,
    to,
)
from .rules import Asked, Found

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_UNANSWERED = (
    "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)


def _no_messages(request: Asked) -> Found | None:
    return {} if field(request, "messages") == [] else None


def _nothing_said(request: Asked) -> Found | None:
    said = messages(request)
    for index, message in enumerate(said):
        last_word = index == len(said) - 1 and message.get("role") == "assistant"
        if message.get("content") in ("", []) and message.get("role") != "system" and not last_word:
            return {"index": index}
    return None


def _empty_text(request: Asked) -> Found | None:
    found = any(block.get("type") == "text" and block.get("text") == "" for block in _said(request))
    return {} if found else None


def _blank_text(request: Asked) -> Found | None:
    for block in _said(request):
        words = block.get("text")
        if block.get("type") == "text" and isinstance(words, str) and words.isspace():
            return {}
    return None


def _said(request: Asked) -> Iterator[Block]:
    """Blocks somebody said.  Blanks that a model left between the provider's own tools pass."""
    for message in messages(request):
        said = blocks(message)
        if message.get("content") != "" and not any(item.get("type") == "server_tool_use" for item in said):
            yield from said


def _trailing_space(request: Asked) -> Found | None:
    said = messages(request)
    if not said or said[-1].get("role") != "assistant" or field(request, "compaction") is not None:
        return None
    last = (blocks(said[-1]) or [{}])[-1].get("text")
    return {} if isinstance(last, str) and last != last.rstrip() else None


def _bad_id(request: Asked) -> Found | None:
    for place, block in placed_blocks(request):
        if block.get("type") == "tool_use" and not CALL_ID.fullmatch(str(block.get("id", ""))):
            return {"at": place}
    return None


def _same_id(request: Asked) -> Found | None:
    seen: set[object] = set()
    for place, block in placed_blocks(request):
        if block.get("type") == "tool_use":
            if block.get("id") in seen:
                return {"at": place}
            seen.add(block.get("id"))
    return None


def _unanswered(request: Asked) -> Found | None:
    for turn, answers in _calling(request):
        missing = [id_ for id_ in _called(turn) if id_ not in {_answers(block) for _, block in answers}]
        if missing:
            return {"index": turn.index, "ids": ", ".join(missing)}
    return None


def _late_result(request: Asked) -> Found | None:
    """Results count only as long as nothing else was said before them."""
    for turn, answers in _calling(request):
        given = [_answers(block) for _, block in answers]
        in_time = list(takewhile(bool, given))
        late = [id_ for id_ in _called(turn) if id_ in given and id_ not in in_time]
        if late:
            return {"index": turn.index, "ids": ", ".join(late)}
    return None


def _talk_after_call(request: Asked) -> Found | None:
    """A call followed by words is not immediately followed by its result."""
    for turn, _ in _calling(request):
        types = [block.get("type") for _, block in turn.blocks]
        if "text" in types[types.index("tool_use") :]:
            return {"index": turn.index, "ids": ", ".join(_called(turn))}
    return None


def _orphan(request: Asked) -> Found | None:
    called: list[str] = []
    for turn in _turns(request):
        for place, block in turn.blocks:
            if _answers(block) and _answers(block) not in called:
                return {"at": place, "id": _answers(block)}
        called = _called(turn)
    return None


def _answered_twice(request: Asked) -> Found | None:
    for turn in _turns(request):
        seen: set[str] = set()
        for place, block in turn.blocks:
            if _answers(block) in seen:
                return {"at": place, "id": _answers(block)}
            seen.add(_answers(block) or place)
    return None


class _Turn(Value):
    index: int
    blocks: list[tuple[str, Block]]


def _turns(request: Asked) -> list[_Turn]:
    """What was said turn by turn: neighbours in the same role are read as one.

    A conversation that the assistant opens gets an empty turn in front, which counts.
    """
    turns: list[_Turn] = []
    role: object = None
    said = messages(request)
    shift = 1 if said and said[0].get("role") == "assistant" else 0
    for index, message in enumerate(said):
        placed = [(f"messages.{index}.content.{n}", block) for n, block in enumerate(blocks(message))]
        if turns and message.get("role") == role:
            turns[-1].blocks.extend(placed)
        else:
            turns.append(_Turn(index=index + shift, blocks=placed))
        role = message.get("role")
    return turns


def _calling(request: Asked) -> Iterator[tuple[_Turn, list[tuple[str, Block]]]]:
    """Each turn that calls something, with what is said next."""
    turns = _turns(request)
    for turn, following in zip_longest(turns, turns[1:]):
        if _called(turn):
            yield turn, following.blocks if following else []


def _called(turn: _Turn) -> list[str]:
    return [str(block.get("id")) for _, block in turn.blocks if block.get("type") == "tool_use"]


def _answers(block: Block) -> str:
    return str(block.get("tool_use_id")) if block.get("type") == "tool_result" else ""


_SAID_NOTHING = (
    "messages.1: all messages must have non-empty content except for the optional final assistant message"
)
_LOOK = {"tools": [tool()]}
_PAIR = (assistant(call()), user(result()))

MESSAGE_RULES = (
    rule(
        "messages-some",
        _no_messages,
        "messages: at least one message is required",
        evidence="F",
        passes=asked(),
        offends=asked(messages=[]),
    ),
    rule(
        "message-empty",
        _nothing_said,
        "messages.{index}: all messages must have non-empty content except for the optional final"
        " assistant message",
        evidence="S",
        passes=asked(messages=[user("Hello"), assistant("Hello"), user("Bye")]),
        offends=asked(messages=[user("Hello"), assistant(), user("Bye")]),
        says=_SAID_NOTHING,
        also=(
            (asked(messages=[user("Hello"), assistant()]), ""),
            (asked(messages=[user("Hello"), {"role": "system", "content": []}, user("Bye")]), ""),
            (asked(messages=[assistant("Hello"), user()]), _SAID_NOTHING),
        ),
    ),
    rule(
        "text-empty",
        _empty_text,
        "messages: text content blocks must be non-empty",
        evidence="S",
        passes=asked(messages=[user(text("."))]),
        offends=asked(messages=[user(text("Hello"), text(""))]),
        also=(
            (asked(messages=[user({"type": "image", "text": ""})]), ""),
            (asked(messages=[user("Hello"), assistant(""), user("Bye")]), ""),
            (asked(messages=[assistant({"type": "server_tool_use"}, text(""))]), ""),
        ),
    ),
    rule(
        "text-blank",
        _blank_text,
        "messages: text content blocks must contain non-whitespace text",
        evidence="S",
        passes=asked(messages=[user(text(" . "))]),
        offends=asked(messages=[user(text(" \n"))]),
        also=((asked(messages=[user({"type": "image", "text": " "})]), ""),),
    ),
    rule(
        "prefill-space",
        _trailing_space,
        "messages: final assistant content cannot end with trailing whitespace",
        evidence="S",
        models="that take a prefill",
        passes=to(PREFILLS, asked(messages=[user("Count"), assistant("One,")])),
        offends=to(PREFILLS, asked(messages=[user("Count"), assistant("One, ")])),
        also=(
            (to(PREFILLS, asked(messages=[user("Count"), assistant()])), ""),
            (to(PREFILLS, asked(messages=[user("Count"), assistant(text("One, "), text("two"))])), ""),
            (asked(messages=[user("Count"), assistant("One, ")], compaction={"type": "summarize"}), ""),
        ),
    ),
    rule(
        "call-id",
        _bad_id,
        "{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        evidence="S",
        passes=asked(messages=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(messages=[user("Look"), assistant(call("a.b")), user(result("a.b"))], **_LOOK),
        says="messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    rule(
        "call-ids-unique",
        _same_id,
        "{at}: `tool_use` ids must be unique",
        evidence="S",
        passes=asked(
            messages=[user("Look"), *_PAIR, assistant(call("toolu_2")), user(result("toolu_2"))], **_LOOK
        ),
        offends=asked(messages=[user("Look"), *_PAIR, *_PAIR], **_LOOK),
        says="messages.3.content.0: `tool_use` ids must be unique",
    ),
    rule(
        "result-missing",
        _unanswered,
        _UNANSWERED,
        evidence="S",
        passes=asked(
            messages=[user("Look"), assistant(call("a"), call("b")), user(result("b"), result("a"))], **_LOOK
        ),
        offends=asked(
            messages=[user("Look"), assistant(call("a"), call("b")), user("And?")],
            **_LOOK,
        ),
        says=_UNANSWERED.format(index=1, ids="a, b"),
        also=(
            (asked(messages=[assistant(call("a")), user("And?")]), _UNANSWERED.format(index=1, ids="a")),
            (asked(messages=[user("Look"), assistant(call("a"))]), _UNANSWERED.format(index=1, ids="a")),
            (
                asked(
                    messages=[
                        user("Look"),
                        assistant(call("a")),
                        assistant(call("b")),
                        user(result("a"), result("b")),
                    ]
                ),
                "",
            ),
        ),
    ),
    rule(
        "result-first",
        _late_result,
        _UNANSWERED,
        evidence="D",
        passes=asked(messages=[user("Look"), assistant(call()), user(result(), text("So?"))], **_LOOK),
        offends=asked(messages=[user("Look"), assistant(call()), user(text("So?"), result())], **_LOOK),
        says=_UNANSWERED.format(index=1, ids="toolu_1"),
        also=((asked(messages=[user("Look"), assistant(call()), user("So?")]), ""),),
    ),
    rule(
        "call-last",
        _talk_after_call,
        _UNANSWERED,
        evidence="S",
        passes=asked(messages=[user("Look"), assistant(text("I look."), call()), user(result())], **_LOOK),
        offends=asked(messages=[user("Look"), assistant(call(), text("I look.")), user(result())], **_LOOK),
        says=_UNANSWERED.format(index=1, ids="toolu_1"),
    ),
    rule(
        "result-orphan",
        _orphan,
        "{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must"
        " have a corresponding `tool_use` block in the previous message.",
        evidence="S",
        passes=asked(messages=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(messages=[user("Look"), assistant("No"), user(result("toolu_9"))], **_LOOK),
        says="messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_9. Each"
        " `tool_result` block must have a corresponding `tool_use` block in the previous message.",
    ),
    rule(
        "result-once",
        _answered_twice,
        "{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}",
        evidence="S",
        passes=asked(messages=[user("Look"), *_PAIR], **_LOOK),
        offends=asked(messages=[user("Look"), assistant(call()), user(result(), result())], **_LOOK),
        says="messages.2.content.1: each tool_use must have a single result."
        " Found multiple `tool_result` blocks with id: toolu_1",
    ),
)
