"""Every recorded exchange with Anthropic, put to the codec and to a second, simpler reading of it."""

import json

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.testing.wire.check_recording import decode_recording, judge_recording
from bridle.values.message import Message, Reply, Stop, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from wire import corpus

CODEC = load_codec("anthropic")
canonical_request = CANONICAL_FORMS[CODEC.family]
ASKED = Request(model=Model(id="m", endpoint=Endpoint(name="anthropic", family="anthropic")))
MEANT_SHARE_MIN = 0.99


def test_every_reply_decodes_and_nearly_every_request_survives():
    verdicts = [judge_recording(CODEC, recording) for recording in corpus("anthropic")]
    problems = [(found.id, found.problems) for found in verdicts if found.problems]
    assert problems == []
    asked = [found for found in verdicts if found.outcome != "other"]
    changed = [found for found in asked if found.differences]
    assert len(changed) <= (1 - MEANT_SHARE_MIN) * len(asked), changed
    # What may be lost: blank texts, which the provider refuses, and results of calls nobody made.
    # What the provider refused as it was (words after a call) may be written in another order.
    for found in changed:
        blank = all('"text": " "' in line or '"text": ""' in line for line in found.differences)
        told = found.reason.startswith("every call has one result")
        refused = {difference.reason for difference in found.request} == {"the provider refused it as it was"}
        assert blank or told or (refused and found.outcome == "failure"), found


def test_replies_say_what_a_plain_reading_says():
    """The recorded JSON, read by the few lines below, knows nothing of the decoder."""
    compared = 0
    for recording in corpus("anthropic"):
        reply = decode_recording(CODEC, ASKED, recording)
        told = plain_reading(recording.body)
        if not isinstance(reply, Reply) or told is None:
            continue
        compared += 1
        text, calls, reason, output = told
        assert reply.text == text, recording.id
        assert [(call.name, call.wire_id) for call in reply.calls] == [call[:2] for call in calls], (
            recording.id
        )
        if reply.stop is not Stop.LENGTH:
            assert [json.loads(call.arguments) for call in reply.calls] == [call[2] for call in calls], (
                recording.id
            )
        assert reply.stop_detail.startswith(reason or ""), recording.id
        if "iterations" not in recording.body.decode("utf-8", "replace"):
            assert reply.usage.output == output, recording.id
    assert compared > 1_000


def plain_reading(body):
    """Text, calls, reason and output tokens of a reply in JSON or server-sent events; None for others."""
    if body[:1] == b"{":
        message = json.loads(body)
        if "content" not in message:
            return None
        return summed(message["content"], message["stop_reason"], message.get("usage") or {})
    if body[:1] != b"e":
        return None
    blocks, reason, usage = {}, None, {}
    for line in body.decode().splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[6:])
        match event["type"]:
            case "message_start":
                usage.update(event["message"]["usage"])
                reason = event["message"]["stop_reason"]
                blocks = dict(enumerate(event["message"]["content"]))
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "said": ""}
            case "content_block_delta":
                delta = event["delta"]
                blocks[event["index"]]["said"] += delta.get("text", delta.get("partial_json", ""))
            case "message_delta":
                usage.update(event["usage"])
                reason = event["delta"]["stop_reason"] or reason
    for block in blocks.values():
        if block["type"] == "text":
            block["text"] = block.get("text", "") + block["said"]
        if block["type"] == "tool_use" and block.get("said"):
            block["input"] = json.loads(block["said"]) if reason != "max_tokens" else None
    return summed(list(blocks.values()), reason, usage)


def summed(blocks, reason, usage):
    switch = max((at for at, block in enumerate(blocks) if block["type"] == "fallback"), default=0)
    text = "".join(block["text"] for block in blocks if block["type"] == "text")
    calls = [(b["name"], b["id"], b["input"]) for b in blocks[switch:] if b["type"] == "tool_use"]
    return text, calls, reason, usage.get("output_tokens") or 0


def test_only_what_the_provider_takes_for_equal_goes_unnoticed():
    """Each member of real requests is taken away, each value changed: the comparison must see it."""
    tried, unnoticed = 0, set()
    for recording in corpus("anthropic")[::7]:
        if recording.request is None or len(recording.request.body) > 4_000:
            continue
        if not recording.request.path.endswith("/messages"):
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
    assert unnoticed <= {
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


def changes(value, name=""):
    """What was said, and a copy of the value without it or with something else in its place."""
    if isinstance(value, dict):
        for member, inner in value.items():
            if inner is not None:
                named = f"{name}.{member}" if name in ("tool_choice", "cache_control") else member
                yield f"{named}={inner}", {other: value[other] for other in value if other != member}
                for said, changed in changes(inner, named):
                    yield said, {**value, member: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for said, changed in changes(inner, name):
                yield said, [*value[:index], changed, *value[index + 1 :]]
    else:
        yield f"{name}: another value", not value if isinstance(value, bool) else f"{value}!"


def test_calls_of_recorded_replies_survive_being_sent_back():
    """A reply, applied and sent again, holds the blocks the provider gave."""
    checked = 0
    for recording in corpus("anthropic"):
        reply = decode_recording(CODEC, ASKED, recording)
        if not isinstance(reply, Reply) or not reply.calls or recording.body[:1] != b"{":
            continue
        checked += 1
        parts = tuple(
            ToolCall(id=f"c1_{at}", name=p.name, arguments=p.arguments, wire_id=p.wire_id, native=p.native)
            if isinstance(p, ToolCall)
            else p
            for at, p in enumerate(reply.parts)
        )
        sent = json.loads(CODEC.encode(Request(model=ASKED.model, messages=(spoken(reply, parts),))).body)
        theirs = [without_nulls(block) for block in json.loads(recording.body)["content"]]
        theirs = [block for block in theirs if block.get("text", "x").strip()]
        assert sent["messages"][0]["content"] == theirs, recording.id
    assert checked > 100


def spoken(reply, parts):
    return Message(role="assistant", parts=parts, origin=reply.origin, stop=reply.stop)


def without_nulls(block):
    return {name: value for name, value in block.items() if value is not None}
