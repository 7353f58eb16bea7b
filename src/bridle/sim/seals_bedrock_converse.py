"""Reasoning on the Converse wire: the same models, the same seals, and the service's sentence in front."""

from collections.abc import Iterator

from msgspec.structs import replace

from ..values.message import Reply, Stop
from ..values.model import Origin
from ..values.parts import Reasoning
from ._rules_bedrock_converse_shape import (
    MODEL_SAYS,
    NEWEST,
    asked,
    assistant,
    blocks,
    messages,
    more,
    rule,
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

FAMILY = "bedrock_converse"


def sealed(request: Asked, reply: Reply) -> Reply:
    return sealed_in(line_of(request), reply)


def line_of(request: Asked) -> Line:
    return Line(
        family=FAMILY,
        model=_model(request),
        head=[listed(field(request, "system")), tools(request)],
        said=tuple(_said(request)),
        checks_prefix=request.abilities is not None and request.abilities.bound_thinking,
    )


def _model(request: Asked) -> str:
    """The model's name as the path has it, in one spelling."""
    return request.path.partition("/model/")[2].rpartition("/")[0].replace("%3A", ":").replace("%3a", ":")


def _said(request: Asked) -> Iterator[Said]:
    for index, message in enumerate(messages(request)):
        role = str(message.get("role"))
        for inner, block in enumerate(blocks(message)):
            if block.keys() == {"cachePoint"}:
                continue
            thought = _thought(mapping(block.get("reasoningContent")))
            yield Said(
                place=f"messages.{index}.content.{inner}",
                message=index,
                role=role,
                value=None if thought else block,
                thought=thought,
            )


def _thought(content: Block) -> Thought | None:
    told = content.get("reasoningText")
    if isinstance(told, dict):
        return Thought(kind=SHOWN, words=str(told.get("text") or ""), proof=told.get("signature"))
    if "redactedContent" in content:
        return Thought(kind=HIDDEN, words="", proof=content["redactedContent"])
    return None


def _forged(request: Asked) -> Found | None:
    """Only models that sign are asked for signatures: others give thoughts without."""
    signs = request.abilities is not None and bool(request.abilities.thinking)
    return forged(line_of(request)) if signs else None


def _moved(request: Asked) -> Found | None:
    dropping = more(request, "thinking").get("block_binding")
    return None if dropping else moved(line_of(request))


def _thinks(request: Asked, *thoughts: Reasoning) -> list[Block]:
    """What the model thinks at the end of this request, as blocks."""
    origin = Origin(family=FAMILY, endpoint=FAMILY, model="")
    reply = sealed(request, Reply(parts=thoughts, stop=Stop.DONE, origin=origin))
    return [
        {"reasoningContent": {"redactedContent": part.signature}}
        if part.redacted
        else {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}
        for part in reply.parts
        if isinstance(part, Reasoning)
    ]


_HELLO = asked(messages=[user("Hello")])
_THOUGHT = Reasoning(text="Greet back.")
(_SIGNED,) = _thinks(_HELLO, _THOUGHT)
_TWO = _thinks(_HELLO, _THOUGHT, Reasoning(redacted=True))
_BOUND = replace(NEWEST, bound_thinking=True)


def _talk(*content: object, words: str = "Hello") -> Asked:
    return asked(messages=[user(words), assistant(*content), user("Bye")])


def _changed(**told: str) -> Block:
    signed = mapping(mapping(_SIGNED["reasoningContent"])["reasoningText"])
    return {"reasoningContent": {"reasoningText": {**signed, **told}}}


RULES: tuple[Rule, ...] = (
    rule(
        "sealed-thought",
        _forged,
        MODEL_SAYS + FORGED,
        evidence="S",
        models="that sign their thoughts",
        passes=_talk(*_TWO, "Hello"),
        offends=_talk(_changed(signature="c2ln"), "Hello"),
        says=MODEL_SAYS + "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    rule(
        "sealed-latest",
        lambda request: modified(line_of(request)),
        MODEL_SAYS + MODIFIED,
        evidence="S",
        passes=_talk(_SIGNED, "Hello"),
        offends=_talk(_changed(text="Greet them."), "Hello"),
        says=MODEL_SAYS + MODIFIED.format(at="messages.1.content.0"),
        also=((_talk(_TWO[1], "Hello"), MODEL_SAYS + MODIFIED.format(at="messages.1.content.0")),),
    ),
    rule(
        "sealed-prefix",
        _moved,
        MODEL_SAYS + MOVED,
        evidence="D",
        models="that check what came before a thought",
        passes=to(_BOUND, _talk(_SIGNED, "Hello")),
        offends=to(_BOUND, _talk(_SIGNED, "Hello", words="Good day")),
        says=MODEL_SAYS + MOVED.format(at="messages.1.content.0"),
        also=((_talk(_SIGNED, "Hello", words="Good day"), ""),),
    ),
)
