"""Thinking, redacted thinking and compaction on the Messages wire.

A prefix that does not fit is no offence when the request asks for such blocks to be dropped;
that takes a beta header, and without it the very setting is refused.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from ..values.message import Reply, Stop
from ..values.model import Origin
from ..values.parts import Reasoning
from ._rules_anthropic_shape import (
    NEWEST,
    Block,
    asked,
    assistant,
    blocks,
    field,
    mapping,
    messages,
    rule,
    text,
    thinking_type,
    to,
    tools,
    user,
)
from ._seals_thoughts import (
    FORGED,
    HIDDEN,
    MODIFIED,
    MOVED,
    SHOWN,
    Line,
    Said,
    Thought,
    forged,
    modified,
    moved,
    sealed_in,
)
from .rules import Asked, Found, Rule
from .seals import opened, seal, trace

FAMILY = "anthropic"
CONTROLS = "thinking-binding-controls-2026-08-01"
COMPACTION = "compaction"
_HEADER = f" That setting requires the `{CONTROLS}` value in the `anthropic-beta` header."


def sealed(request: Asked, reply: Reply) -> Reply:
    return sealed_in(line_of(request), reply)


def summary_of(request: Asked, words: str) -> Block:
    """A compaction block that stands for everything in the request."""
    model = str(field(request, "model"))
    return {
        "type": COMPACTION,
        "content": words,
        "signature": seal(COMPACTION, FAMILY, model, words=trace(words)),
    }


def line_of(request: Asked) -> Line:
    kept = [tool for tool in tools(request) if tool.get("defer_loading") is not True]
    return Line(
        family=FAMILY,
        model=str(field(request, "model")),
        head=[blocks(request.body, "system"), kept],
        said=tuple(_said(request)),
        checks_prefix=request.abilities is not None and request.abilities.bound_thinking,
    )


def _said(request: Asked) -> Iterator[Said]:
    for index, message in enumerate(messages(request)):
        role = str(message.get("role"))
        for inner, block in enumerate(blocks(message)):
            place = f"messages.{index}.content.{inner}"
            thought: Thought | None = None
            if block.get("type") == SHOWN:
                thought = Thought(
                    kind=SHOWN, words=str(block.get("thinking") or ""), proof=block.get("signature")
                )
            elif block.get("type") == HIDDEN:
                thought = Thought(kind=HIDDEN, words="", proof=block.get("data"))
            value = None if thought else _flat(block)
            yield Said(place=place, message=index, role=role, value=value, thought=thought)


def _flat(block: Block) -> object:
    """A result in words is the same as a result of one block of words."""
    return {**block, "content": blocks(block)} if block.get("type") == "tool_result" else block


def _binding(request: Asked) -> Block:
    return mapping(mapping(field(request, "thinking")).get("block_binding"))


def _controls(request: Asked) -> bool:
    return CONTROLS in request.headers.get("anthropic-beta", "")


def _unheaded(request: Asked) -> Found | None:
    return {"mode": thinking_type(request)} if _binding(request) and not _controls(request) else None


def _moved(request: Asked) -> Found | None:
    if _binding(request).get("prefix_mismatch_behavior") == "drop_block":
        return None
    found = moved(line_of(request))
    return found and {**found, "header": "" if _controls(request) else _HEADER}


def _foreign_summary(request: Asked) -> Found | None:
    for index, message in enumerate(messages(request)):
        for inner, block in enumerate(blocks(message)):
            if block.get("type") != COMPACTION or "signature" not in block:
                continue
            note = opened(block.get("signature"))
            own = note is not None and (note.kind, note.family) == (COMPACTION, FAMILY)
            if note is None or not own or not note.holds(words=trace(block.get("content"))):
                return {"at": f"messages.{index}.content.{inner}"}
    return None


def _thinks(request: Asked, *thoughts: Reasoning, model: str = "") -> list[Block]:
    """What the model thinks at the end of this request, as blocks."""
    origin = Origin(family=FAMILY, endpoint=FAMILY, model=model)
    body = {**request.body, "model": model or request.body["model"]}
    reply = sealed(replace(request, body=body), Reply(parts=thoughts, stop=Stop.DONE, origin=origin))
    return [
        {"type": HIDDEN, "data": part.signature}
        if part.redacted
        else {"type": SHOWN, "thinking": part.text, "signature": part.signature}
        for part in reply.parts
        if isinstance(part, Reasoning)
    ]


_HELLO = asked(messages=[user("Hello")])
_THOUGHT = Reasoning(text="Greet back.")
(_SIGNED,) = _thinks(_HELLO, _THOUGHT)
_TWO = _thinks(_HELLO, _THOUGHT, Reasoning(redacted=True))
(_ELSEWHERE,) = _thinks(_HELLO, _THOUGHT, model="another-model")
_BOUND = replace(NEWEST, bound_thinking=True)


def _talk(*content: object, words: str = "Hello") -> Asked:
    return asked(messages=[user(words), assistant(*content), user("Bye")])


def _longer(first: Block, *, again: bool = True) -> Asked:
    """A second thought that came after the first one, and a third after the second."""
    opening = [user("Hello"), assistant(_SIGNED, text("Hello")), user("More")]
    (second,) = _thinks(asked(messages=opening), Reasoning(text="Go on."))
    middle = [*opening, assistant(second, text("More")), user("More")]
    (third,) = _thinks(asked(messages=middle), Reasoning(text="And on."))
    kept = [second] if again else []
    return asked(
        messages=[
            user("Hello"),
            assistant(first, text("Hello")),
            user("More"),
            assistant(*kept, text("More")),
            user("More"),
            assistant(third, text("Enough")),
            user("Bye"),
        ]
    )


RULES: tuple[Rule, ...] = (
    rule(
        "sealed-controls",
        _unheaded,
        "thinking.{mode}.block_binding: Extra inputs are not permitted",
        evidence="D",
        passes=replace(
            asked(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
            headers={**_HELLO.headers, "anthropic-beta": CONTROLS},
        ),
        offends=asked(
            thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        ),
        says="thinking.adaptive.block_binding: Extra inputs are not permitted",
    ),
    rule(
        "sealed-thought",
        lambda request: forged(line_of(request)),
        FORGED,
        evidence="S",
        passes=_talk(_ELSEWHERE, text("Hello")),
        offends=_talk({**_SIGNED, "signature": "c2ln"}, text("Hello")),
        says="messages.1.content.0: Invalid `signature` in `thinking` block",
        also=(
            (
                _talk({"type": HIDDEN, "data": str(_SIGNED["signature"])}, text("Hello")),
                "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
            ),
        ),
    ),
    rule(
        "sealed-latest",
        lambda request: modified(line_of(request)),
        MODIFIED,
        evidence="S",
        passes=_talk(*_TWO, text("Hello")),
        offends=_talk({**_SIGNED, "thinking": "Greet them."}, text("Hello")),
        says=MODIFIED.format(at="messages.1.content.0"),
        also=((_talk(_TWO[0], text("Hello")), MODIFIED.format(at="messages.1.content.0")),),
    ),
    rule(
        "sealed-prefix",
        _moved,
        MOVED + "{header}",
        evidence="D",
        models="that check what came before a thought",
        passes=to(_BOUND, _longer(_SIGNED)),
        offends=to(_BOUND, _talk(_SIGNED, text("Hello"), words="Good day")),
        says=MOVED.format(at="messages.1.content.0") + _HEADER,
        also=(
            (_talk(_SIGNED, text("Hello"), words="Good day"), ""),
            (to(_BOUND, _longer(_SIGNED, again=False)), MOVED.format(at="messages.5.content.0") + _HEADER),
        ),
    ),
    rule(
        "sealed-compaction",
        _foreign_summary,
        "{at}: Invalid `signature` in `compaction` block",
        evidence="K",
        passes=asked(messages=[user(summary_of(_HELLO, "They greeted.")), user("Bye")]),
        offends=asked(messages=[user({**summary_of(_HELLO, "They greeted."), "content": "They fought."})]),
        says="messages.0.content.0: Invalid `signature` in `compaction` block",
    ),
)
