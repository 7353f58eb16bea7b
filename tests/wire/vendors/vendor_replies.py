"""Replies and stream events drawn from the vendors' response types, and what becomes of them when they are sent back.

`drawn(family, chance)` is a whole reply by its types; `events(family, chance)` are stream events in any order.
`echoed(family, body)` decodes a reply, answers its calls, encodes the next request, and pairs what the provider said
with what it gets back.
"""

import json

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.wire.eventstream import encode_event
from bridle.values.message import Message, Text, ToolCall, ToolResult
from tests.sim.sim_families import question
from tests.wire.vendors.vendor_rules import DATA_MEMBERS
from tests.wire.vendors.vendor_shapes import Maker

ROOTS = {
    "anthropic": "anthropic reply",
    "openai_responses": "openai_responses reply",
    "openai_chat": "openai_chat reply",
    "gemini": "gemini reply",
    "bedrock_converse": "bedrock_converse reply",
}
BETAS = {"anthropic": "anthropic beta reply"}
EVENTS = {"anthropic": "anthropic event", "openai_responses": "openai_responses event", "openai_chat": "openai_chat event",
          "gemini": "gemini reply", "bedrock_converse": "bedrock_converse event"}  # fmt: skip


def maker(chance):
    """Ids are unique, and what is JSON inside of text is JSON."""
    count = iter(range(10**6))

    def identity(node):
        return f"id_{next(count)}"

    def arguments(node):
        return '{"city":"Oslo"}' if node == "str" else {"city": "Oslo"}

    def name(node):
        return chance.choice(node[1:]) if isinstance(node, list) and node[0] == "=" else "look"

    fixed = {"id": identity, "call_id": identity, "toolUseId": identity, "name": name}
    fixed |= {"s3Location.uri": lambda node: "s3://bucket/key"}
    fixed |= {"input": arguments, "args": arguments, "arguments": arguments}
    return Maker(
        chance, fixed=fixed, skip={"#g.FunctionCall~3.partialArgs", "#g.FunctionCall~3.willContinue"}
    )


def draw_reply(family, chance, root=None):
    """A reply as it is when it is complete, with at least something said."""
    made = maker(chance)
    body = made.root(root or ROOTS[family])
    match family:
        case "openai_responses":
            body |= {"status": "completed", "error": None, "incomplete_details": None, "id": "resp_1"}
        case "openai_chat":
            choice = made.make("#o.Choice")
            choice["message"].setdefault("content", "word")
            body["choices"] = [choice]
        case "gemini":
            parts = [part_of(made, chance) for _ in range(chance.randrange(1, 4))]
            body = {
                **body,
                "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
            }
            body.pop("promptFeedback", None)
        case "bedrock_converse":
            body["output"] = {"message": {**made.make("#b.Message"), "role": "assistant"}}
    return body


def part_of(made, chance):
    """A part holds one kind of data; a call has a name."""
    members = made.shapes.shape("#g.Part~3")["opt"]
    kind = chance.choice(DATA_MEMBERS)
    part = {kind: made.make(members[kind], f".{kind}")}
    if kind == "functionCall":
        part[kind]["name"] = "look"
    if kind == "text" and chance.random() < 0.3:
        part["thought"] = True
    if chance.random() < 0.5:
        part["thoughtSignature"] = made.plain("b64")
    return part


def events(family, chance):
    made = maker(chance)
    said = [made.root(EVENTS[family]) for _ in range(chance.randrange(1, 12))]
    said = [each for each in said if each]
    if family == "bedrock_converse":
        return b"".join(
            encode_event(next(iter(each)), json.dumps(next(iter(each.values()))).encode()) for each in said
        )
    lines = [f"event: {each.get('type', 'message')}\ndata: {json.dumps(each)}\n\n" for each in said]
    return "".join(lines).encode()


def decode_reply(family, data, content_type):
    """The reply that our codec reads; raises what it raises."""
    request = question(family, "Look.", stream=content_type != "application/json")
    decoder = load_codec(family).new_decoder(request, 200, {"content-type": content_type})
    decoder.feed(data)
    return request, decoder.close()


def sent_back(request, reply):
    """The body of the next request, after every call was answered."""
    parts = tuple(
        replace(part, id=f"c{at}") if isinstance(part, ToolCall) else part
        for at, part in enumerate(reply.parts)
    )
    spoken = Message(
        role="assistant", parts=parts, id="m2", origin=reply.origin, stop=reply.stop, reply_id=reply.id
    )
    calls = [part for part in parts if isinstance(part, ToolCall)]
    results = tuple(ToolResult(call_id=call.id, parts=(Text(text="fine"),)) for call in calls)
    answer = Message(role="tool" if calls else "user", parts=results or (Text(text="Go on."),), id="m3")
    following = replace(request, messages=(*request.messages, spoken, answer), stream=False)
    return following, json.loads(load_codec(request.model.endpoint.family).encode(following).body)


def said_in(family, body):
    """The blocks or items of a reply."""
    match family:
        case "anthropic":
            return body["content"]
        case "openai_responses":
            return body["output"]
        case "openai_chat":
            return [body["choices"][0]["message"]]
        case "gemini":
            return body["candidates"][0]["content"]["parts"]
    return body["output"]["message"]["content"]


def echoed_in(family, body):
    """The blocks or items of the next request that could be those of the reply."""
    match family:
        case "anthropic":
            return [
                block for each in body["messages"] if each["role"] == "assistant" for block in each["content"]
            ]
        case "openai_responses":
            return body["input"][1:]
        case "openai_chat":
            return [each for each in body["messages"] if each["role"] == "assistant"]
        case "gemini":
            return [
                part for each in body["contents"] if each.get("role") == "model" for part in each["parts"]
            ]
    return [block for each in body["messages"] if each["role"] == "assistant" for block in each["content"]]


def drop_empty_members(value):
    """A value without members that say nothing (null, nothing inside) and without `created_by`, which never goes back."""
    if isinstance(value, dict):
        members = {name: drop_empty_members(each) for name, each in value.items() if name != "created_by"}
        return {name: each for name, each in members.items() if each not in (None, [], {}, "")}
    return [drop_empty_members(each) for each in value] if isinstance(value, list) else value
