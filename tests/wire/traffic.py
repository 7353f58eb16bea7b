"""Wire families for the checks over recorded traffic (`test_recorded_traffic.py`): one `Traffic` each.

A `Traffic` says where the recordings of a family are, which changes of a request the provider does not notice,
and in which form a reply comes back to the provider.  The checks are the same for all.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random
from struct import unpack_from
from typing import Any

from msgspec.structs import replace

from bridle.ports.codec import Codec
from bridle.providers import load_codec
from bridle.providers.wire.eventstream import encode_event
from bridle.testing.wire.check_recording import TrafficRecord, decode_recording
from bridle.values.message import Message, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from tests.wire.wire import at_least, corpus

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Traffic:
    """Recorded exchanges of one wire family."""

    family: str
    file: str
    replies_min: int
    """Replies that are recorded at least; fewer mean that the check compared nothing."""
    equal: frozenset[str]
    """Changes of a request that the provider takes for the same request (see `list_changes`)."""
    read_given: Callable[[TrafficRecord, Reply], list | None]
    """The parts of a recorded reply as they must come back to the provider; None if they are not compared."""
    read_sent: Callable[[JsonObject, int], list]
    """The parts of the reply, in the body of a request that goes on with so many results of its calls."""
    given_min: int
    is_equal: Callable[[str], bool] = lambda change: False
    """True for a change that the provider does not notice and that has no fixed name."""
    every: int = 5
    """Every so many requests are taken apart: all of them take long."""
    request_bytes_max: int = 4_000
    prefixed: frozenset[str] = frozenset()
    """Members whose own members are named with them in front."""
    path: str = ""
    """Pattern of the paths whose requests are taken apart."""
    prepare_body: Callable[[JsonObject], JsonObject | None] = lambda body: body
    """The body of a request to be taken apart; None leaves it out."""
    is_told_again: bool = False
    """True if the simulated server can encode every recorded reply so that nothing of it is lost."""
    is_read_again: bool = False
    """True if any request that was read, however odd, is written so that it reads the same again."""
    reordered: frozenset[str] = frozenset()
    """Replies whose parts come back in another order on purpose."""

    @cached_property
    def codec(self) -> Codec:
        return load_codec(self.family)

    @cached_property
    def asked(self) -> Request:
        return Request(model=Model(id="m", endpoint=Endpoint(name=self.family, family=self.family)))

    def require(self, recorded: int, *, simulated: int) -> int:
        """How many cases a check must find."""
        return at_least(self.file, recorded, simulated)

    @property
    def recordings(self) -> list[TrafficRecord]:
        return read_corpus(self.file)

    @property
    def replies(self) -> list[tuple[TrafficRecord, Reply]]:
        return decode_replies(self.family)

    def send_back(self, reply: Reply, model: Model | None = None) -> list:
        """Return the parts of the reply as they stand in the next request."""
        return self.read_sent(self.encode_next(reply, model), len(reply.calls))

    def encode_next(self, reply: Reply, model: Model | None = None) -> JsonObject:
        """Return the body of a request that goes on with results of the calls."""
        said = Message(
            role="assistant",
            parts=number_calls(reply),
            origin=reply.origin,
            stop=reply.stop,
            reply_id=reply.id,
        )
        results = tuple(ToolResult(call_id=call.id, parts=(Text(text="x"),)) for call in said.calls)
        messages = (said, Message(role="tool", parts=results))
        request = replace(self.asked, model=model or self.asked.model, messages=messages)
        return json.loads(self.codec.encode(request).body)


read_corpus = cache(corpus)


@cache
def decode_replies(family: str) -> list[tuple[TrafficRecord, Reply]]:
    traffic = TRAFFIC[family]
    decoded = ((each, decode_recording(traffic.codec, traffic.asked, each)) for each in traffic.recordings)
    return [(recording, reply) for recording, reply in decoded if isinstance(reply, Reply)]


def number_calls(reply: Reply) -> tuple:
    """Return the parts of a reply with the ids that the harness gives to its calls."""
    return tuple(
        replace(part, id=f"c1_{at}") if isinstance(part, ToolCall) else part
        for at, part in enumerate(reply.parts)
    )


def is_whole(recording: TrafficRecord) -> bool:
    """True for a reply that is one JSON object, and not a stream."""
    return recording.body[:1] == b"{"


def drop_empty(members: JsonObject) -> JsonObject:
    return {name: value for name, value in members.items() if value not in (None, "", [], {})}


def drop_nulls(members: JsonObject) -> JsonObject:
    return {name: value for name, value in members.items() if value is not None}


# --- Anthropic ------------------------------------------------------------------------------------------


def read_anthropic_given(recording, reply):
    if not is_whole(recording) or not reply.calls:
        return None
    blocks = [drop_nulls(block) for block in json.loads(recording.body)["content"]]
    return [block for block in blocks if block.get("text", "x").strip()]


ANTHROPIC = Traffic(
    family="anthropic",
    file="anthropic",
    replies_min=1_200,
    every=7,
    prefixed=frozenset({"tool_choice", "cache_control"}),
    path=r"/messages$",
    is_told_again=True,
    is_read_again=True,
    equal=frozenset(
        {
            "stream=False",
            "is_error=False",
            "type=custom",
            "tool_choice={'type': 'auto'}",
            "tool_choice={'disable_parallel_tool_use': False, 'type': 'auto'}",
            "tool_choice.type=auto",
            "tool_choice.disable_parallel_tool_use=False",
            "cache_control.ttl=5m",
            "citations=[]",
            "system=[]",
            "system=",
            "tools=[]",
            "stop_sequences=[]",
            "description=",
        }
    ),
    read_given=read_anthropic_given,
    read_sent=lambda body, results: body["messages"][0]["content"],
    given_min=100,
)


# --- OpenAI Responses -----------------------------------------------------------------------------------

ONLY_OUT = {"metadata", "internal_chat_message_metadata_passthrough"}
ONLY_OUT_OF_PICTURES = {"action", "background", "output_format", "quality", "revised_prompt", "size"}


def read_response_items(body):
    """The items of a response or of a stream of one; None for anything else."""
    if body[:1] == b"{":
        return json.loads(body).get("output")
    items, response = {}, None
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            if event["type"] == "response.output_item.done":
                items[event.get("output_index", len(items))] = event["item"]
            if event["type"] in ("response.completed", "response.incomplete"):
                response = event["response"]
    return response and (response["output"] or [items[index] for index in sorted(items)])


def read_responses_given(recording, reply):
    items = [keep_item(item) for item in read_response_items(recording.body) or ()]
    while items and items[-1]["type"] == "reasoning":  # it led to nothing, so it is not sent
        items.pop()
    messages = [item for item in items if item["type"] == "message"]
    is_blank = any(not read_item_text(item).strip() for item in messages)
    return None if is_blank or not items or any(item["role"] == "user" for item in messages) else items


def read_item_text(item):
    if isinstance(item["content"], str):
        return item["content"]
    return "".join(part.get("text", part.get("refusal", "")) for part in item["content"])


def keep_item(item):
    """The item without what says nothing, and without what the provider does not take back."""
    unwanted = ONLY_OUT | (ONLY_OUT_OF_PICTURES if item["type"] == "image_generation_call" else set())
    plain = {name: value for name, value in item.items() if name not in unwanted}
    if item["type"] in ("message", "reasoning", "function_call", "custom_tool_call"):
        plain = drop_nulls(plain)
    if item["type"] == "message":
        plain["content"] = [
            {"annotations": [], **drop_nulls(part)} if part["type"] == "output_text" else part
            for part in item["content"]
        ]
        if plain.keys() == {"type", "role", "content"} and len(plain["content"]) == 1:
            plain["content"] = plain["content"][0]["text"]
    if item["type"] == "reasoning":
        plain.pop("status", None)
        if not plain.get("encrypted_content"):
            plain.pop("encrypted_content", None)
    return plain


CALLS = ("function_call", "custom_tool_call", "mcp_approval_request")
CLIENT_TOOLS = ("shell_call", "local_shell_call", "apply_patch_call", "computer_call")


def read_responses_sent(body, results):
    """The items before the results; each call that the client answers has one, in order."""
    sent = body["input"]
    items, outputs = sent[: len(sent) - results], sent[len(sent) - results :]
    assert [find_answered_id(item) for item in outputs] == [
        item["id" if item["type"] == "mcp_approval_request" else "call_id"]
        for item in items
        if is_client_call(item, items)
    ]
    return items


def find_answered_id(output):
    """The call that an output answers; each type has a member of its own for it."""
    return next(output[name] for name in ("call_id", "approval_request_id", "id") if name in output)


def is_client_call(item, items):
    if item.get("type") not in CLIENT_TOOLS:
        return item.get("type") in CALLS
    outputs = [other for other in items if other.get("type") == f"{item['type']}_output"]
    is_answered = item.get("call_id") in [other.get("call_id") for other in outputs]
    return not is_answered and not str((item.get("environment") or {}).get("type")).startswith("container")


def prepare_responses_body(body):
    """A message that says nothing may be changed in any way, so its request shows nothing."""
    items = body.get("input") if isinstance(body.get("input"), list) else ()
    return None if any(item.get("content") in ("", []) for item in items) else body


RESPONSES = Traffic(
    family="openai_responses",
    file="openai-responses",
    replies_min=1_400,
    every=7,
    prepare_body=prepare_responses_body,
    equal=frozenset(
        {
            "stream=False",
            "store=True",
            "tool_choice=auto",
            "parallel_tool_calls=True",
            "detail=auto",
            "type=message",
            "type=item_reference",
            "annotations=[]",
            "tools=[]",
            "include=[]",
            "description=",
            "instructions=",
            "input=[]",
            "arguments={}",
        }
    ),
    read_given=read_responses_given,
    read_sent=read_responses_sent,
    given_min=1_200,
)


# --- Chat Completions -----------------------------------------------------------------------------------

UNSENT = {
    "annotations",
    "padding",
    "audio_content",
    "parsed",
    "provider_metadata",
    "executed_tools",
    "token_id",
    "channel",
}
SAYING = {"content", "refusal", "tool_calls", "function_call", "audio"}
"""A message without any of these is not sent."""
MAY_BE_BLANK = {"content", "text", "reasoning_content", "description", "name", "tool_calls"}
"""What is blank or empty there may as well be left out."""


def read_chat_given(recording, reply):
    """A message as it should come back: without what says nothing, and with ids where there were none."""
    if not is_whole(recording) or reply.stop is Stop.LENGTH:
        return None
    message = json.loads(recording.body)["choices"][0].get("message") or {}
    plain = {name: value for name, value in drop_empty(message).items() if name not in UNSENT}
    if not plain.get("function_call", {"name": "x"})["name"]:
        del plain["function_call"]
    if "audio" in plain:
        plain["audio"] = {"id": plain["audio"]["id"]}
        if not plain["audio"]["id"]:
            del plain["audio"]
    if isinstance(plain.get("content"), str) and not plain["content"].strip():
        del plain["content"]
    ids = [part.id for part in number_calls(reply) if isinstance(part, ToolCall)]
    calls = []
    for call, call_id in zip(plain.get("tool_calls", ()), ids, strict=False):
        function = drop_empty(call["function"])
        if function.get("arguments") in (None, "", "null"):
            function["arguments"] = "{}"
        more = {name: value for name, value in drop_empty(call).items() if name not in ("index", "custom")}
        calls.append({**more, "id": call.get("id") or call_id, "type": "function", "function": function})
    if not plain.keys() & SAYING:
        return []
    return [{**plain, "tool_calls": calls} if calls else plain]


def prepare_chat_body(body):
    """Without tools nothing can be chosen."""
    return {
        name: body[name]
        for name in body
        if body.get("tools") or name not in ("tool_choice", "parallel_tool_calls")
    }


def is_blank(change):
    name, is_member, value = change.partition("=")
    return bool(is_member) and value.strip() in ("", "[]") and name in MAY_BE_BLANK


CHAT = Traffic(
    family="openai_chat",
    file="openai-chat",
    replies_min=2_300,
    prepare_body=prepare_chat_body,
    is_told_again=True,
    is_read_again=True,
    is_equal=is_blank,
    equal=frozenset(
        {
            "stream=False",
            "strict=False",
            "tool_choice=auto",
            "parallel_tool_calls=True",
            "arguments={}",
            "type=function",
            "model=openllmetry-testing",
            *(f"index={at}" for at in range(10)),
            "index: another value",
        }
    ),
    read_given=read_chat_given,
    read_sent=lambda body, results: [
        drop_empty(message) for message in body["messages"] if message["role"] == "assistant"
    ],
    given_min=1_200,
)


# --- Gemini ---------------------------------------------------------------------------------------------


def read_gemini_parts(body):
    if body[:1] in b"{[":
        whole = json.loads(body)
        responses = whole if isinstance(whole, list) else [whole]
    else:
        responses = [json.loads(line[5:]) for line in body.decode().splitlines() if line.startswith("data:")]
    for response in responses:
        for candidate in response.get("candidates") or []:
            yield from (candidate.get("content") or {}).get("parts") or []


def read_gemini_given(recording, reply):
    """Plain words that follow one another are one part; blank ones are none."""
    if b"willContinue" in recording.body:
        return None
    found = []
    for part in read_gemini_parts(recording.body):
        plain = part.keys() <= {"text", "thought"}
        if plain and found and found[-1].keys() == part.keys():
            found[-1] = {**part, "text": found[-1]["text"] + part["text"]}
        elif part.get("text") != "" or not plain:
            found.append(dict(part))
        if call := part.get("functionCall"):
            found[-1]["functionCall"] = {"args": {}, **call}
    return [part for part in found if part.keys() != {"text"} or part["text"].strip()] or None


GEMINI = Traffic(
    family="gemini",
    file="gemini",
    replies_min=1_000,
    request_bytes_max=3_000,
    prefixed=frozenset({"systemInstruction"}),
    path="enerateContent",
    equal=frozenset(
        {
            "role=user",
            "systemInstruction.role=user",
            "systemInstruction.role=model",
            "systemInstruction.role: another value",
            "systemInstruction={'parts': {'text': ''}}",
            "systemInstruction.parts={'text': ''}",
            "thought=False",
            "args={}",
            "response={}",
            "text=",
            "model=models/gemini-2.0-flash",
            "model: another value",
            "description=",
            "generationConfig={}",
            "thinkingConfig={}",
            "contents=[]",
            "toolConfig={'functionCallingConfig': {'mode': 'AUTO'}}",
            "functionCallingConfig={'mode': 'AUTO'}",
            "mode=AUTO",
        }
    ),
    read_given=read_gemini_given,
    read_sent=lambda body, results: next(
        content["parts"] for content in body["contents"] if content["role"] == "model"
    ),
    given_min=900,
)


# --- Bedrock Converse -----------------------------------------------------------------------------------


def read_frames(body: bytes) -> Iterator[tuple[str, JsonObject]]:
    """Names and payloads of an event stream, read without a look at checksums."""
    at = 0
    while at < len(body):
        total, size = unpack_from(">II", body, at)
        headers, payload = body[at + 12 : at + 12 + size], body[at + 12 + size : at + total - 4]
        named = headers.partition(b":event-type\x07")[2]
        yield named[2 : 2 + named[1]].decode(), json.loads(payload)
        at += total


def drop_defaults(block):
    """Without the two members that only say what is so anyway, and one that no provider sends."""
    plain = {name: value for name, value in block.items() if len(block) == 1 or name != "type"}
    if "toolResult" in plain and plain["toolResult"].get("type") is None:
        plain["toolResult"] = drop_member(plain["toolResult"], "status", "success")
    if "toolUse" in plain:
        plain["toolUse"] = drop_member(plain["toolUse"], "type", "tool_use")
    return plain


def drop_member(members, name, value):
    return {each: members[each] for each in members if (each, members[each]) != (name, value)}


def read_bedrock_given(recording, reply):
    if not is_whole(recording):
        return None
    blocks = [drop_defaults(block) for block in json.loads(recording.body)["output"]["message"]["content"]]
    blocks = [block for block in blocks if block.get("text", "x").strip()]
    while blocks and "reasoningContent" in blocks[-1]:
        blocks.pop()
    if recording.id in BEDROCK.reordered:
        blocks.sort(key=lambda block: "toolUse" in block and block["toolUse"].get("type") is None)
    return blocks


BEDROCK = Traffic(
    family="bedrock_converse",
    file="bedrock-converse",
    replies_min=300,
    every=3,
    is_told_again=True,
    is_equal=lambda change: change.startswith("modelId="),
    equal=frozenset(
        {
            "inferenceConfig={}",
            "inferenceConfig={'stopSequences': []}",
            "stopSequences=[]",
            "system=[]",
            "status=success",
            "toolChoice={'auto': {}}",
            "auto={}",
            "additionalModelRequestFields={}",
        }
    ),
    read_given=read_bedrock_given,
    read_sent=lambda body, results: [
        block for turn in body["messages"] if turn["role"] == "assistant" for block in turn["content"]
    ],
    given_min=250,
    reordered=frozenset({"bed-vercel-b2e3e70b5f-00"}),
)

TRAFFIC = {each.family: each for each in (ANTHROPIC, RESPONSES, CHAT, GEMINI, BEDROCK)}


# --- changes and damage ---------------------------------------------------------------------------------


def list_changes(value: Any, prefixed: frozenset[str], name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what was said, and a copy of the value without it or with something else in its place."""
    if isinstance(value, dict):
        for member, inner in value.items():
            if inner is not None:
                named = f"{name}.{member}" if name in prefixed else member
                yield f"{named}={inner}", {other: value[other] for other in value if other != member}
                for said, changed in list_changes(inner, prefixed, named):
                    yield said, {**value, member: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for said, changed in list_changes(inner, prefixed, name):
                yield said, [*value[:index], changed, *value[index + 1 :]]
    else:
        yield f"{name}: another value", not value if isinstance(value, bool) else f"{value}!"


TOKENS = (b"\n\n", b"null", b"{", b"}", b'"', b'"x"', b'","', b"[]", b"{}", b"\\ud83d", b"\xff", b"[" * 3_000,
          b"data: ", b"0", b"true", b'"type":"message"', b"1e999")  # fmt: skip
VALUES = (b"null", b"0", b'""', b"[]", b"{}", b"true", b"[1]", b'{"a":1}')


def damage_bytes(body: bytes, random: Random) -> bytes:
    """Change, lose, double, replace or cut some bytes; the events of an event stream keep valid checksums."""
    if body[:1] == b"\x00" and random.random() < 0.8:
        events = [(name, json.dumps(event).encode()) for name, event in read_frames(body)]
        places = {random.randrange(len(events)) for _ in range(random.randint(1, 3))}
        return b"".join(
            encode_event(name, damage_bytes(event, random) if at in places else event)
            for at, (name, event) in enumerate(events)
        )
    data = bytearray(body)
    for _ in range(random.randint(1, 5)):
        at = random.randrange(len(data) + 1)
        match random.randrange(7):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 60)]
            case 2:
                data[at:at] = data[at : at + random.randint(1, 200)]
            case 3:
                data[at:at] = random.choice(TOKENS)
            case 4:
                data[at : at + random.randint(0, 10)] = random.choice(TOKENS)
            case 5:  # a value becomes another one
                start = data.find(b'":', at)
                end = data.find(b",", start)
                if 0 <= start < end:
                    data[start + 2 : end] = random.choice(VALUES)
            case _:
                del data[at:]
    return bytes(data)


JUNK = (None, True, 0, -1, 7, -1.5, 10**30, "", "x", "\ud83d", [], [1], [None], [[]], ["x", None, {}], ["text"], {},
        {"a": 1}, {"type": "x"}, {"type": "text"}, "message")  # fmt: skip


def damage_json(value: Any, random: Random) -> Any:
    """Replace one value, at any depth, with another, or leave a member out."""
    if isinstance(value, dict) and value and random.random() < 0.85:
        member = random.choice(list(value))
        if random.random() < 0.1:
            return {name: inner for name, inner in value.items() if name != member}
        return {**value, member: damage_json(value[member], random)}
    if isinstance(value, list) and value and random.random() < 0.85:
        at = random.randrange(len(value))
        return [*value[:at], damage_json(value[at], random), *value[at + 1 :]]
    return random.choice(JUNK)
