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

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import (
    JsonObject,
    as_list,
    as_mapping,
    build_example,
    field,
    find_loop_head,
    make_rule,
)
from bridle.values.model import Abilities

MODEL = "some.model-v1:0"
MODEL_ERROR_PREFIX = "The model returned the following errors: "
CONSTRAINT_MESSAGE = "{count} detected: {faults}"

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
VIDEO_MODEL = replace(NEWEST, videos=True, audio=True)
FORCED_TOOLS = replace(NEWEST, thinking=("adaptive", "disabled"), forced_tools=True)
THINKING_BUDGETS = replace(FORCED_TOOLS, thinking=("adaptive", "enabled", "disabled"), sampling=True)
PREFILLING = replace(THINKING_BUDGETS, thinking=("enabled", "disabled"), output_tokens=64_000, prefill=True)

rule = partial(make_rule, code="ValidationException")
"""A rule of this provider's usual kind."""
FieldFault = tuple[str, object, str]
"""A place, the value there (None when it is not told) and the constraint it breaks."""


def inference_setting(request: RawRequest, name: str) -> object:
    return as_mapping(field(request, "inferenceConfig")).get(name)


def messages(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(field(request, "messages"))]


def blocks(message: JsonObject) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(message.get("content"))]


def list_held(message: JsonObject, kind: str) -> list[tuple[int, JsonObject]]:
    """What is in the message's blocks of this kind, each with the place of its block."""
    return [
        (index, as_mapping(block[kind]))
        for index, block in enumerate(blocks(message))
        if isinstance(block.get(kind), dict)
    ]


def list_calls(message: JsonObject) -> list[tuple[int, JsonObject]]:
    """Calls somebody has to answer; the provider's own tools answer themselves."""
    asked_for = list_held(message, "toolUse") if message.get("role") == "assistant" else []
    return [(index, item) for index, item in asked_for if item.get("type") in (None, "tool_use")]


def list_results(message: JsonObject) -> list[tuple[int, JsonObject]]:
    return list_held(message, "toolResult") if message.get("role") == "user" else []


def tools(request: RawRequest) -> list[JsonObject]:
    return [as_mapping(item) for item in as_list(as_mapping(field(request, "toolConfig")).get("tools"))]


def list_tool_specs(request: RawRequest) -> Iterator[tuple[int, JsonObject]]:
    """The tools somebody defined themselves, each with its place."""
    for index, item in enumerate(tools(request)):
        if isinstance(item.get("toolSpec"), dict):
            yield index, as_mapping(item["toolSpec"])


def tool_choice(request: RawRequest) -> JsonObject:
    return as_mapping(as_mapping(field(request, "toolConfig")).get("toolChoice"))


def is_tool_forced(request: RawRequest) -> bool:
    return any(name in tool_choice(request) for name in ("any", "tool"))


def model_field(request: RawRequest, name: str) -> JsonObject:
    return as_mapping(as_mapping(field(request, "additionalModelRequestFields")).get(name))


def thinking_config(request: RawRequest) -> JsonObject:
    return model_field(request, "thinking") or model_field(request, "reasoning_config")


def find_tool_loop(request: RawRequest) -> int | None:
    """The place of the first assistant message of the tool loop that is being answered."""

    def kinds(message: JsonObject) -> list[str]:
        return [kind for block in blocks(message) for kind in block if kind != "cachePoint"]

    return find_loop_head(messages(request), kinds, "toolResult")


def describe_faults(faults: Iterator[FieldFault]) -> RuleFinding | None:
    """All faults in one sentence, as the service tells them."""
    told = [
        f"Value {_show_value(value)}at '{place}' failed to satisfy constraint: Member must {must}"
        for place, value, must in faults
    ]
    if not told:
        return None
    count = "1 validation error" if len(told) == 1 else f"{len(told)} validation errors"
    return {"count": count, "faults": "; ".join(told)}


def _show_value(value: object) -> str:
    return "" if value is None else f"'{value}' "


def example(**changes: object) -> RawRequest:
    """A small legal request to the newest model with these fields changed; None takes one away."""
    return build_example(f"/model/{MODEL}/converse", {"messages": [user("Hello")], **changes}, NEWEST)


def thinking_fields(**fields: object) -> dict[str, object]:
    return {"additionalModelRequestFields": {"thinking": fields}}


def user(*said: object) -> JsonObject:
    return {"role": "user", "content": [text(item) if isinstance(item, str) else item for item in said]}


def assistant(*said: object) -> JsonObject:
    return {"role": "assistant", "content": [text(item) if isinstance(item, str) else item for item in said]}


def text(words: str) -> JsonObject:
    return {"text": words}


def reasoning_block(words: str = "I look.", signature: str = "") -> JsonObject:
    told = {"text": words, "signature": signature} if signature else {"text": words}
    return {"reasoningContent": {"reasoningText": told}}


def call(id: str = "tooluse_1", name: str = "look", **fields: object) -> JsonObject:  # noqa: A002  the wire's word
    return {"toolUse": {"toolUseId": id, "name": name, "input": {}, **fields}}


def result(id: str = "tooluse_1", *content: object, **fields: object) -> JsonObject:  # noqa: A002  as above
    return {"toolResult": {"toolUseId": id, "content": list(content) or [text("seen")], **fields}}


def tool(name: str = "look", **fields: object) -> JsonObject:
    schema = {"json": {"type": "object", "properties": {}}}
    return {"toolSpec": {"name": name, "inputSchema": schema, **fields}}


def tool_config(*offered: JsonObject, **fields: object) -> dict[str, object]:
    return {"toolConfig": {"tools": list(offered) or [tool()], **fields}}
