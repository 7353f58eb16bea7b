"""Every recorded exchange on the Responses wire, put to the codec and to a second, simpler reading of it."""

import json
import os
from itertools import cycle, islice
from random import Random

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.testing.wire.check_recording import decode_recording, judge_recording
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Message, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from wire import corpus

CODEC = load_codec("openai_responses")
canonical_request = CANONICAL_FORMS[CODEC.family]
FILE = "openai-responses"
HERE = Endpoint(name="here", family="openai_responses")
ASKED = Request(model=Model(id="m", endpoint=HERE))
CAMPAIGN = int(os.environ.get("BRIDLE_CAMPAIGN", "1"))

SHORTENED = {"resp-vercel-01c39166c2-00"}
"""Streams whose deltas somebody shortened by hand after recording."""


def test_every_reply_decodes_and_every_request_survives():
    verdicts = [judge_recording(CODEC, recording, slices=(7, 61, 4096)) for recording in corpus(FILE)]
    assert [(found.id, found.problems) for found in verdicts if found.problems] == []
    assert [
        (found.id, found.differences) for found in verdicts if found.differences and not found.reason
    ] == []
    assert sum(bool(found.differences) for found in verdicts) < len(verdicts) / 100
    assert sum(found.outcome == "reply" for found in verdicts) > 1_400


def test_short_replies_decode_byte_by_byte():
    for recording in corpus(FILE):
        if len(recording.body) < 6_000:
            assert decode_recording(CODEC, ASKED, recording, 1) == decode_recording(
                CODEC, ASKED, recording
            ), recording.id


def test_replies_say_what_a_plain_reading_says():
    """The recorded JSON, read by the few lines below, knows nothing of the decoder."""
    compared = 0
    for recording in corpus(FILE):
        reply, told = decode_recording(CODEC, ASKED, recording), plain_reading(recording.body)
        if not isinstance(reply, Reply) or told is None:
            continue
        compared += 1
        response, items = told
        text = "".join(
            part.get("text", part.get("refusal"))
            for item in items
            if item["type"] == "message" and item["role"] == "assistant"
            for part in item["content"]
        )
        calls = [
            (item["name"], item["call_id"], item["arguments"])
            for item in items
            if item["type"] == "function_call"
        ]
        assert reply.text == text, recording.id
        plain = [call for call in reply.calls if "type" not in json.loads(call.native or "{}")]
        assert [(call.name, call.wire_id, call.arguments) for call in plain] == calls, recording.id
        assert reply.id == response["id"], recording.id
        if response.get("usage"):
            counted = response["usage"]
            assert reply.usage.prompt == counted["input_tokens"], recording.id
            assert reply.usage.output == counted["output_tokens"] or counted["output_tokens"] < 0, (
                recording.id
            )
            cached = (counted.get("input_tokens_details") or {}).get("cached_tokens", 0)
            assert reply.usage.cache_read == cached, recording.id
        if response.get("status") == "incomplete":
            assert reply.stop is not Stop.DONE, recording.id
    assert compared > 1_400


def plain_reading(body):
    """The response object and its items; None for what is neither a response nor a stream of one."""
    if body[:1] == b"{":
        response = json.loads(body)
        return (response, response["output"]) if response.get("output") is not None else None
    items, response = {}, None
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            if event["type"] == "response.output_item.done":
                items[event.get("output_index", len(items))] = event["item"]
            if event["type"] in ("response.completed", "response.incomplete"):
                response = event["response"]
    return response and (response, response["output"] or [items[index] for index in sorted(items)])


def test_what_was_shown_is_what_was_said():
    for recording in corpus(FILE):
        if recording.body[:1] == b"{" or recording.status != 200:
            continue
        decoder = CODEC.new_decoder(ASKED, 200, recording.headers)
        try:
            shown = "".join(delta.text for delta in decoder.feed(recording.body))
        except ProviderError:
            continue
        assert decoder.partial_text == shown, recording.id
        reply = decode_recording(CODEC, ASKED, recording)
        # A stream taken up again in its middle shows only the rest.
        if (
            isinstance(reply, Reply)
            and b"response.created" in recording.body
            and recording.id not in SHORTENED
        ):
            assert shown == reply.text, recording.id


def test_recorded_replies_go_back_as_they_came():
    """A reply, applied and sent again, holds the items the provider gave, in their order."""
    checked = 0
    for recording in corpus(FILE):
        reply, told = decode_recording(CODEC, ASKED, recording), plain_reading(recording.body)
        if not isinstance(reply, Reply) or not told:
            continue
        items = [kept(item) for item in told[1]]
        while items and items[-1]["type"] == "reasoning":  # it led to nothing, so it is not sent
            items.pop()
        blank = [item for item in items if item["type"] == "message" and not words_in(item)]
        if blank or not items or any(item.get("role") == "user" for item in items):
            continue
        checked += 1
        assert replayed(reply) == items, recording.id
    assert checked > 1_200


def test_where_proof_is_asked_for_a_turn_goes_back_whole_or_without_ids():
    """The provider's four complaints about replayed items, turned into checks over all recorded replies."""
    strict = replace(ASKED.model, endpoint=replace(HERE, reasoning="signed"))
    whole = bare = 0
    for recording in corpus(FILE):
        reply = decode_recording(CODEC, ASKED, recording)
        if not isinstance(reply, Reply):
            continue
        items = replayed(reply, strict)
        thoughts = [place for place, item in enumerate(items) if item["type"] == "reasoning"]
        assert all(items[place].get("encrypted_content") for place in thoughts), recording.id
        assert not items or items[-1]["type"] != "reasoning", recording.id
        if any(isinstance(part, Reasoning) for part in reply.parts[:-1]):
            whole += bool(thoughts)
            bare += not thoughts
            named = [item for item in items if "id" in item and item["type"] != "mcp_approval_request"]
            assert thoughts or not named, recording.id
    assert whole > 100
    assert bare > 100


def answered_id(output):
    """The call that an output answers; each type has a member of its own for it."""
    return next(output[name] for name in ("call_id", "approval_request_id", "id") if name in output)


def replayed(reply, model=ASKED.model):
    parts = tuple(
        replace(part, id=f"c2_{place}") if isinstance(part, ToolCall) else part
        for place, part in enumerate(reply.parts)
    )
    said = Message(role="assistant", parts=parts, origin=reply.origin, stop=reply.stop, reply_id=reply.id)
    answers = tuple(ToolResult(call_id=call.id, parts=(Text(text="x"),)) for call in said.calls)
    request = replace(ASKED, model=model, messages=(said, Message(role="tool", parts=answers)))
    sent = json.loads(CODEC.encode(request).body)["input"]
    ours, outputs = sent[: len(sent) - len(answers)], sent[len(sent) - len(answers) :]
    assert [answered_id(item) for item in outputs] == [
        item["id" if item["type"] == "mcp_approval_request" else "call_id"]
        for item in ours
        if is_ours(item, ours)
    ]
    return ours


CALLS = ("function_call", "custom_tool_call", "mcp_approval_request")
CLIENT_TOOLS = ("shell_call", "local_shell_call", "apply_patch_call", "computer_call")


def is_ours(item, items):
    """Whether the item is a call that the client answers."""
    if item.get("type") not in CLIENT_TOOLS:
        return item.get("type") in CALLS
    outputs = [other for other in items if other.get("type") == f"{item['type']}_output"]
    answered = item.get("call_id") in [other.get("call_id") for other in outputs]
    return not answered and not str((item.get("environment") or {}).get("type")).startswith("container")


def words_in(item):
    return "".join(part.get("text", part.get("refusal", "")) for part in item["content"]).strip()


ONLY_OUT = {"metadata", "internal_chat_message_metadata_passthrough"}
ONLY_OUT_OF_PICTURES = {"action", "background", "output_format", "quality", "revised_prompt", "size"}


def kept(item):
    """The item without what says nothing, and without what the provider does not take back."""
    unwanted = ONLY_OUT | (ONLY_OUT_OF_PICTURES if item["type"] == "image_generation_call" else set())
    plain = {name: value for name, value in item.items() if name not in unwanted}
    if item["type"] in ("message", "reasoning", "function_call", "custom_tool_call"):
        plain = {name: value for name, value in plain.items() if value is not None}
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


def drop_nulls(members):
    return {name: value for name, value in members.items() if value is not None}


def test_only_what_the_provider_takes_for_equal_goes_unnoticed():
    """Each member of real requests is taken away, each value changed: the comparison must see it."""
    tried, unnoticed = 0, set()
    for recording in corpus(FILE)[::7]:
        if recording.request is None or len(recording.request.body) > 4_000:
            continue
        if b'"content": ""' in recording.request.body or b'"content": []' in recording.request.body:
            continue  # a message that says nothing may be changed in any way
        meant = canonical_request(recording.request)
        for at, changed in changes(json.loads(recording.request.body)):
            tried += 1
            try:
                same = (
                    canonical_request(replace(recording.request, body=json.dumps(changed).encode())) == meant
                )
            except (KeyError, AttributeError, TypeError):
                same = False
            if same:
                unnoticed.add(at)
    assert tried > 3_000
    assert unnoticed <= {
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


def changes(value, name=""):
    """What was said, and a copy of the value without it or with something else in its place."""
    if isinstance(value, dict):
        for member, inner in value.items():
            if inner is not None:
                yield f"{member}={inner}", {other: value[other] for other in value if other != member}
                for said, changed in changes(inner, member):
                    yield said, {**value, member: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for said, changed in changes(inner, name):
                yield said, [*value[:index], changed, *value[index + 1 :]]
    else:
        yield f"{name}: another value", not value if isinstance(value, bool) else f"{value}!"


def test_damaged_replies_are_replies_or_the_providers_fault():
    """Seeded: the number of a failing round is the bug report."""
    bodies = [recording for recording in corpus(FILE) if len(recording.body) < 40_000]
    Random(7).shuffle(bodies)
    for number, recording in enumerate(islice(cycle(bodies), 2_000 * CAMPAIGN)):
        random = Random(number)
        body = damaged(recording.body, random)
        heard = decode_recording(
            CODEC, ASKED, replace(recording, body=body), random.choice((None, 61, 1_000))
        )
        assert isinstance(heard, Reply | Failure), number
        if isinstance(heard, Reply):
            again = replayed(heard)  # whatever was heard can be sent
            assert all(isinstance(item, dict) for item in again), number


PIECES = (
    b"\n\n",
    b"null",
    b"{",
    b'"',
    b"\\ud83d",
    b"\xff",
    b"[" * 3_000,
    b"data: ",
    b"0",
    b'"type":"message"',
    b"1e999",
)


def damaged(body, random):
    data = bytearray(body)
    for _ in range(random.randint(1, 5)):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randint(1, 60)]
            case 2:
                data[at:at] = data[at : at + random.randint(1, 200)]
            case 3:
                data[at:at] = random.choice(PIECES)
            case 4:  # a value becomes another one
                start = data.find(b'":', at)
                end = data.find(b",", start)
                if 0 <= start < end:
                    data[start + 2 : end] = random.choice(
                        (b"null", b"0", b'""', b"[]", b"{}", b"true", b"[1]", b'{"a":1}')
                    )
            case _:
                del data[at:]
    return bytes(data)


JUNK = (
    None,
    0,
    -1,
    1.5,
    "",
    "x",
    "\ud83d",
    [],
    [1],
    {},
    {"a": 1},
    True,
    [[]],
    {"type": "x"},
    "message",
    ["text"],
)


def test_damaged_requests_are_refused_or_can_be_written():
    requests = [
        recording.request
        for recording in corpus(FILE)
        if recording.request is not None and len(recording.request.body) < 20_000
    ]
    written = 0
    for number in range(2_000 * CAMPAIGN):
        random = Random(number)
        request = random.choice(requests)
        body = json.loads(request.body)
        for _ in range(random.randint(1, 3)):
            body = put(body, random.choice(list(places(body))), random.choice(JUNK))
        try:
            read = CODEC.decode_request(replace(request, body=json.dumps(body).encode()))
        except ProviderError:
            continue
        written += 1
        assert isinstance(json.loads(CODEC.encode(read).body)["input"], list), number
    assert written > 1_000


def places(value, at=()):
    yield at
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[name], (*at, name))


def put(value, at, junk):
    if not at:
        return junk
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[at[0]] = put(value[at[0]], at[1:], junk)
    return changed
