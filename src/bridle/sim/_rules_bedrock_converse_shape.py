"""Reading a raw Converse body without trusting it, and writing small ones for examples.

Nothing here may fail on a body of the wrong shape: a rule that cannot find its field
finds nothing, and the rule about that field's shape speaks instead.

The service itself names places in two ways.  What breaks the definition of a field is told
with members counted from one (`messages.1.member.content.1.member`), and several such
faults are told at once; what breaks its sense is told with places counted from nought.  What
the model behind it objects to comes with a sentence in front.
"""

from collections.abc import Iterator
from functools import partial

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_reading import Block, field, listed, mapping, small, written
from ._tool_loop import find_loop_head
from .rules import Asked, Found

MODEL = "some.model-v1:0"
MODEL_SAYS = "The model returned the following errors: "
CONSTRAINED = "{count} detected: {faults}"

# The models the examples speak to, by what they are examples of.
NEWEST = Abilities(
    output_tokens=128_000,
    output_limited=True,
    thinking=("adaptive",),
    efforts=("low", "medium", "high", "xhigh", "max"),
    forced_tools=False,
    sampling=False,
    videos=False,
    audio=False,
    prefill=False,
)
FILMS = replace(NEWEST, videos=True, audio=True)
FORCEABLE = replace(NEWEST, thinking=("adaptive", "disabled"), forced_tools=True)
BUDGETS = replace(FORCEABLE, thinking=("adaptive", "enabled", "disabled"), sampling=True)
PREFILLS = replace(BUDGETS, thinking=("enabled", "disabled"), output_tokens=64_000, prefill=True)

rule = partial(written, code="ValidationException")
"""A rule of this provider's usual kind."""
Fault = tuple[str, object, str]
"""A place, the value there (None when it is not told) and the constraint it breaks."""


def inference(request: Asked, name: str) -> object:
    return mapping(field(request, "inferenceConfig")).get(name)


def messages(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(field(request, "messages"))]


def blocks(message: Block) -> list[Block]:
    return [mapping(item) for item in listed(message.get("content"))]


def held(message: Block, kind: str) -> list[tuple[int, Block]]:
    """What is in the message's blocks of this kind, each with the place of its block."""
    return [
        (index, mapping(block[kind]))
        for index, block in enumerate(blocks(message))
        if isinstance(block.get(kind), dict)
    ]


def calls(message: Block) -> list[tuple[int, Block]]:
    """Calls somebody has to answer; the provider's own tools answer themselves."""
    asked_for = held(message, "toolUse") if message.get("role") == "assistant" else []
    return [(index, item) for index, item in asked_for if item.get("type") in (None, "tool_use")]


def results(message: Block) -> list[tuple[int, Block]]:
    return held(message, "toolResult") if message.get("role") == "user" else []


def tools(request: Asked) -> list[Block]:
    return [mapping(item) for item in listed(mapping(field(request, "toolConfig")).get("tools"))]


def specs(request: Asked) -> Iterator[tuple[int, Block]]:
    """The tools somebody defined themselves, each with its place."""
    for index, item in enumerate(tools(request)):
        if isinstance(item.get("toolSpec"), dict):
            yield index, mapping(item["toolSpec"])


def choice(request: Asked) -> Block:
    return mapping(mapping(field(request, "toolConfig")).get("toolChoice"))


def forced(request: Asked) -> bool:
    return any(name in choice(request) for name in ("any", "tool"))


def more(request: Asked, name: str) -> Block:
    return mapping(mapping(field(request, "additionalModelRequestFields")).get(name))


def thinking(request: Asked) -> Block:
    return more(request, "thinking") or more(request, "reasoning_config")


def loop_head(request: Asked) -> int | None:
    """The place of the first assistant message of the tool loop that is being answered."""

    def kinds(message: Block) -> list[str]:
        return [kind for block in blocks(message) for kind in block if kind != "cachePoint"]

    return find_loop_head(messages(request), kinds, "toolResult")


def constrained(faults: Iterator[Fault]) -> Found | None:
    """All faults in one sentence, as the service tells them."""
    told = [
        f"Value {_shown(value)}at '{place}' failed to satisfy constraint: Member must {must}"
        for place, value, must in faults
    ]
    if not told:
        return None
    count = "1 validation error" if len(told) == 1 else f"{len(told)} validation errors"
    return {"count": count, "faults": "; ".join(told)}


def _shown(value: object) -> str:
    return "" if value is None else f"'{value}' "


def asked(**changes: object) -> Asked:
    """A small legal request to the newest model with these fields changed; None takes one away."""
    return small(f"/model/{MODEL}/converse", {"messages": [user("Hello")], **changes}, NEWEST)


def thinks(**fields: object) -> dict[str, object]:
    return {"additionalModelRequestFields": {"thinking": fields}}


def user(*said: object) -> Block:
    return {"role": "user", "content": [text(item) if isinstance(item, str) else item for item in said]}


def assistant(*said: object) -> Block:
    return {"role": "assistant", "content": [text(item) if isinstance(item, str) else item for item in said]}


def text(words: str) -> Block:
    return {"text": words}


def thought(words: str = "I look.", signature: str = "") -> Block:
    told = {"text": words, "signature": signature} if signature else {"text": words}
    return {"reasoningContent": {"reasoningText": told}}


def call(id: str = "tooluse_1", name: str = "look", **fields: object) -> Block:  # noqa: A002  the wire's word
    return {"toolUse": {"toolUseId": id, "name": name, "input": {}, **fields}}


def result(id: str = "tooluse_1", *content: object, **fields: object) -> Block:  # noqa: A002  as above
    return {"toolResult": {"toolUseId": id, "content": list(content) or [text("seen")], **fields}}


def tool(name: str = "look", **fields: object) -> Block:
    schema = {"json": {"type": "object", "properties": {}}}
    return {"toolSpec": {"name": name, "inputSchema": schema, **fields}}


def offering(*offered: Block, **fields: object) -> dict[str, object]:
    return {"toolConfig": {"tools": list(offered) or [tool()], **fields}}
