"""Conversations on the wire of Gemini, for tests: built from few words, and seen as they are sent."""

import json

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.values.message import Message, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request

CODEC = load_codec("gemini")
ENDPOINT = Endpoint(name="here", family="gemini", reasoning="signed")
OWN = Origin(family="gemini", endpoint="here", model="gemini-x")
COUSIN = Origin(family="gemini", endpoint="there", model="gemini-x")
FOREIGN = Origin(family="elsewhere", endpoint="elsewhere", model="other")
MODEL = Model(id="gemini-x", endpoint=ENDPOINT)
LENIENT = replace(MODEL, endpoint=replace(ENDPOINT, reasoning="may_echo"))
SIGNED = '{"thoughtSignature":"c2ln"}'
SKIP = "skip_thought_signature_validator"
LOST = {"error": "No result: this call was interrupted, or what came of it was lost."}


def ask(*messages, **fields):
    return Request(model=fields.pop("model", MODEL), messages=messages, **fields)


def sent(request):
    return json.loads(CODEC.encode(request).body)


def written(*messages, **fields):
    return sent(ask(*messages, **fields))["contents"]


def user(*parts):
    return Message(
        role="user", parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    )


def assistant(*parts, origin=OWN, stop=None):
    said = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return Message(role="assistant", parts=said, origin=origin, stop=stop)


def results(*parts):
    return Message(role="tool", parts=parts)


def result(call_id, text="fine", **more):
    return ToolResult(call_id=call_id, parts=(Text(text=text),), **more)


def call(call_id, wire_id="", name="look", arguments="{}", **more):
    return ToolCall(id=call_id, name=name, arguments=arguments, wire_id=wire_id, **more)


def response(name="look", said="fine", **more):
    return {"functionResponse": {"name": name, "response": {"output": said}, **more}}


def in_turn(*messages, **fields):
    """What is written of these messages behind a first question."""
    return written(user("q"), *messages, **fields)[1:]
