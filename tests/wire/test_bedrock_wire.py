"""Every recorded exchange with Bedrock Converse, put to the codec and to a second, simpler reading of it."""

import json
import os
from random import Random
from struct import unpack_from

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.bedrock.parts import decode_part, encode_part
from bridle.providers.wire.eventstream import encode_event
from bridle.sim.families import find_family
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.testing.wire.check_recording import decode_recording, judge_recording
from bridle.values.errors import ProviderError
from bridle.values.message import Message, Reply, Stop, ToolCall, ToolResult
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from wire import corpus

CODEC = load_codec("bedrock_converse")
SERVER = find_family(CODEC.family)
canonical_request = CANONICAL_FORMS[CODEC.family]
ASKED = Request(model=Model(id="m", endpoint=Endpoint(name="bedrock_converse", family="bedrock_converse")))
MEANT_SHARE_MIN = 0.99
CAMPAIGN = float(os.environ.get("BRIDLE_CAMPAIGN", "1"))


def test_every_reply_decodes_and_nearly_every_request_survives():
    recordings = corpus("bedrock-converse")
    verdicts = [judge_recording(CODEC, recording) for recording in recordings]
    assert [(found.id, found.problems) for found in verdicts if found.problems] == []
    asked = [recording for recording in recordings if recording.request is not None]
    changed = [(found.id, found.differences) for found in verdicts if found.differences and not found.reason]
    assert len(asked) > 300
    assert len(changed) <= (1 - MEANT_SHARE_MIN) * len(asked), changed
    assert changed == []


def frames(body):
    """Names and payloads, read without a look at checksums."""
    at = 0
    while at < len(body):
        total, size = unpack_from(">II", body, at)
        headers, payload = body[at + 12 : at + 12 + size], body[at + 12 + size : at + total - 4]
        named = headers.partition(b":event-type\x07")[2]
        yield named[2 : 2 + named[1]].decode(), json.loads(payload)
        at += total


def plain_reading(body):
    """Text, calls, reason and counts of a reply in JSON or in frames; None for others."""
    if body[:1] == b"{":
        whole = json.loads(body)
        if "output" not in whole:
            return None
        content = whole["output"]["message"]["content"]
        return summed(content, whole["stopReason"], whole.get("usage") or {})
    blocks, reason, usage = {}, None, {}
    for name, event in frames(body):
        block = blocks.setdefault(event.get("contentBlockIndex"), {})
        match name:
            case "contentBlockStart":
                block.update(event["start"])
            case "contentBlockDelta" if "toolUse" in event["delta"]:
                block["said"] = block.get("said", "") + event["delta"]["toolUse"]["input"]
            case "contentBlockDelta" if "text" in event["delta"]:
                block["text"] = block.get("text", "") + event["delta"]["text"]
            case "messageStop":
                reason = event["stopReason"]
            case "metadata":
                usage = event["usage"]
    for block in blocks.values():
        if "toolUse" in block:
            said = block.get("said") or "{}"
            block["toolUse"]["input"] = json.loads(said) if reason != "max_tokens" else None
    return summed(list(blocks.values()), reason, usage)


def summed(blocks, reason, usage):
    text = "".join(
        piece.get("text", "")
        for block in blocks
        for piece in (block, *block.get("citationsContent", {}).get("content", ()))
    )
    calls = [
        (block["toolUse"]["name"], block["toolUse"]["toolUseId"], block["toolUse"]["input"])
        for block in blocks
        if "toolUse" in block and block["toolUse"].get("type") != "server_tool_use"
    ]
    return text, calls, reason, usage


def test_replies_say_what_a_plain_reading_says():
    """The recorded bytes, read by the few lines above, know nothing of the decoder."""
    compared = 0
    for recording in corpus("bedrock-converse"):
        reply = decode_recording(CODEC, ASKED, recording)
        told = plain_reading(recording.body)
        if not isinstance(reply, Reply) or told is None:
            continue
        compared += 1
        text, calls, reason, usage = told
        assert reply.text == text, recording.id
        assert [(call.name, call.wire_id) for call in reply.calls] == [called[:2] for called in calls], (
            recording.id
        )
        if reply.stop is not Stop.LENGTH:
            arguments = [json.loads(call.arguments) for call in reply.calls]
            assert arguments == [called[2] for called in calls], recording.id
        assert reply.stop_detail.partition(": ")[0] == reason, recording.id
        assert reply.usage.total == usage.get("totalTokens", usage.get("outputTokens", 0)), recording.id
        assert reply.usage.incomplete is (not usage), recording.id
        assert reply.stop is not Stop.OTHER, recording.id
    assert compared > 300


def test_every_recorded_block_is_written_as_it_was_read():
    """Value for value, whatever our parts show of it."""
    checked = 0
    for recording in corpus("bedrock-converse"):
        turns = json.loads(recording.request.body).get("messages", []) if recording.request else []
        if recording.body[:1] == b"{" and recording.status == 200:
            turns = [*turns, json.loads(recording.body)["output"]["message"]]
        for turn in turns:
            for block in turn["content"]:
                part = decode_part(block, of_model=turn["role"] == "assistant")
                sent_id = part.wire_id if isinstance(part, ToolCall) else ""
                sent_id = part.call_id if isinstance(part, ToolResult) else sent_id
                again = json.loads(
                    json.dumps(encode_part(part, own=True, sent_id=sent_id, blank=True), default=raw)
                )
                assert plain(again) == plain(block), recording.id
                checked += 1
    assert checked > 900


def raw(value):
    return json.loads(bytes(value))


def plain(block):
    """Without the two members that only say what is so anyway, and one that no provider sends."""
    said = {name: value for name, value in block.items() if len(block) == 1 or name != "type"}
    if "toolResult" in said and said["toolResult"].get("type") is None:
        inner = said["toolResult"]
        said["toolResult"] = {
            name: inner[name] for name in inner if (name, inner[name]) != ("status", "success")
        }
    if "toolUse" in said:
        inner = said["toolUse"]
        said["toolUse"] = {name: inner[name] for name in inner if (name, inner[name]) != ("type", "tool_use")}
    return said


def test_streamed_and_whole_give_equal_replies():
    """Each recorded reply, told again both ways, is the same reply."""
    told = 0
    for recording in corpus("bedrock-converse"):
        reply = decode_recording(CODEC, ASKED, recording)
        if isinstance(reply, Reply) and recording.is_judged:
            told += 1
            for stream in (True, False):
                spoken = SERVER.encode_reply(reply, stream=stream)
                body = b"".join(spoken.frames)
                headers = {**dict(spoken.headers), "x-amzn-requestid": reply.id}
                assert (
                    decode_recording(CODEC, ASKED, replace(recording, body=body, headers=headers)) == reply
                ), recording.id
    assert told > 300


def test_only_what_the_provider_takes_for_equal_goes_unnoticed():
    """Each member of real requests is taken away, each value changed: the comparison must see it."""
    tried, unnoticed = 0, set()
    for recording in corpus("bedrock-converse")[::3]:
        if recording.request is None or len(recording.request.body) > 4_000:
            continue
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
    assert {at for at in unnoticed if not at.startswith("modelId=")} <= {
        "inferenceConfig={}",
        "inferenceConfig={'stopSequences': []}",
        "stopSequences=[]",
        "system=[]",
        "status=success",
        "toolChoice={'auto': {}}",
        "auto={}",
        "additionalModelRequestFields={}",
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


def test_recorded_replies_survive_being_sent_back():
    """A reply, applied and sent again, holds the blocks the provider gave."""
    checked, reordered = 0, []
    for recording in corpus("bedrock-converse"):
        reply = decode_recording(CODEC, ASKED, recording)
        if not isinstance(reply, Reply) or recording.body[:1] != b"{":
            continue
        checked += 1
        parts = tuple(
            replace(part, id=f"c1_{at}") if isinstance(part, ToolCall) else part
            for at, part in enumerate(reply.parts)
        )
        line = (Message(role="assistant", parts=parts, origin=reply.origin, stop=reply.stop),)
        turns = json.loads(CODEC.encode(Request(model=ASKED.model, messages=line)).body)["messages"]
        sent = [block for turn in turns if turn["role"] == "assistant" for block in turn["content"]]
        theirs = [plain(block) for block in json.loads(recording.body)["output"]["message"]["content"]]
        theirs = [block for block in theirs if block.get("text", "x").strip()]
        while theirs and "reasoningContent" in theirs[-1]:
            theirs.pop()
        if sent != theirs:  # words that follow a call go back before it
            reordered.append(recording.id)
            theirs.sort(key=is_call)
        assert sent == theirs, recording.id
    assert checked > 250
    assert reordered == ["bed-vercel-b2e3e70b5f-00"]


def is_call(block):
    return "toolUse" in block and block["toolUse"].get("type") is None


WORDS = [b"null", b"[]", b"{}", b"1", b'"x"', b"true", b"[[", b"\xff", b"\\ud800", b'","', b"}"]


def test_recorded_replies_damaged_end_in_a_reply_or_a_provider_error():
    """Seeded: the number of a failing try is enough to see it again."""
    recordings = [recording for recording in corpus("bedrock-converse") if len(recording.body) < 20_000]
    for number in range(int(2_500 * CAMPAIGN)):
        random = Random(number)
        recording = random.choice(recordings)
        body = damaged(recording.body, random)
        try:
            reply = decode_recording(
                CODEC, ASKED, replace(recording, body=body), random.choice((5, 300, None))
            )
        except ProviderError as error:
            raise AssertionError(number) from error
        if isinstance(reply, Reply):
            SERVER.encode_reply(reply, stream=random.random() < 0.5)


def damaged(body, random):
    if body[:1] != b"\x00" or random.random() < 0.2:
        return hurt(body, random)
    events = [(name, json.dumps(event).encode()) for name, event in frames(body)]
    places = {random.randrange(len(events)) for _ in range(random.randint(1, 3))}
    return b"".join(
        encode_event(name, hurt(event, random) if at in places else event)
        for at, (name, event) in enumerate(events)
    )


def hurt(data, random):
    data = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(data) + 1)
        data[at : at + random.randint(0, 10)] = random.choice(WORDS)
    return bytes(data)
