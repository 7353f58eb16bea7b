"""A reply with one member missing, or null, never becomes a call with other arguments.

Every streamed and whole reply is taken apart into its JSON events.  Each member of each event is removed
once and nulled once; the rest stays as it was.  What is decoded then must be an error, or hold calls that
were in the reply, with the same arguments.  A call that cannot run (no name, or arguments that are no
object) is allowed; so is a call that was announced for an early start, if it is one of the reply's.

Members that carry the arguments themselves are not removed: nobody can know what they held.  The exception
is a stream that tells every call three times: there each telling loses its arguments once.
"""

import json

import pytest

from bridle.providers import load_codec
from bridle.providers.wire.eventstream import EventStreamReader, encode_event
from bridle.sim.families import find_family
from bridle.testing.conformance.codec_samples import request_for, sample_replies
from bridle.values.errors import ProviderError
from bridle.values.message import ToolCall
from bridle.values.result import CallReady
from tests.wire.wire import corpus

FAMILIES = ("anthropic", "openai_responses", "openai_chat", "gemini", "bedrock_converse")
CORPUS = {family: family.replace("_", "-") for family in FAMILIES}
EVENT_STREAM = "bedrock_converse"
RECORDED_MAX = 25
EVENTS_MAX = 60
CARRIERS = frozenset({"arguments", "input", "args", "partialArgs", "partial_json"})
"""Members whose value is a call's arguments, or a piece of them."""


EMPTY_PIECES = ("openai_chat",)
"""Families whose pieces may be empty by the protocol, so that one without its contents is no different."""


def calls_in(parts):
    """Calls that could run: name and arguments, spelled one way."""
    found = []
    for part in parts:
        if isinstance(part, ToolCall) and part.name:
            try:
                given = json.loads(part.arguments.strip() or "{}")  # no text at all runs as an empty object
            except ValueError:
                continue
            if isinstance(given, dict):
                found.append((part.name, json.dumps(given, sort_keys=True)))
    return found


def decode(codec, request, status, headers, body):
    """The calls of a reply, those announced early, and the failure if there was one."""
    decoder = codec.new_decoder(request, status, headers)
    early = []
    try:
        for delta in decoder.feed(body):
            if isinstance(delta, CallReady):
                early.append(delta.call)
        reply = decoder.close()
    except ProviderError as error:
        return [], calls_in(early), error.failure
    return calls_in(reply.parts), calls_in(early), None


def split_events(family, body):
    """(name, JSON) of each event; a whole reply is one event without a name."""
    if body.lstrip()[:1] in (b"{", b"["):
        return [(None, json.loads(body))]
    if family == EVENT_STREAM:
        frames = EventStreamReader().frames(body)
        return [(frame.name.decode(), json.loads(frame.data)) for frame in frames]
    events = []
    for block in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = block.split(b"\n")
        name = next((line[6:].strip().decode() for line in lines if line.startswith(b"event:")), "")
        data = b"".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
        if data:
            events.append((name, json.loads(data) if data != b"[DONE]" else None))
    return events


def join_events(family, events):
    if events[0][0] is None:
        return json.dumps(events[0][1]).encode()
    if family == EVENT_STREAM:
        return b"".join(encode_event(name, json.dumps(event).encode()) for name, event in events)
    said = []
    for name, event in events:
        head = f"event: {name}\n" if name else ""
        said.append(f"{head}data: {'[DONE]' if event is None else json.dumps(event)}\n\n")
    return "".join(said).encode()


def paths(value, keep, at=()):
    """Where members are that may be removed, and what each holds; `keep` names those that may not."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if not (name in keep and inner not in ({}, "")):
                # An empty value at the start of a block is no argument: some servers leave that member out.
                yield (*at, name), inner
                yield from paths(inner, keep, (*at, name))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from paths(inner, keep, (*at, place))


def holds_call(value):
    """Whether a whole call, or what it was given, is inside: without this nobody can know of it."""
    if isinstance(value, list):
        return any(map(holds_call, value))
    return isinstance(value, dict) and (
        bool(value.keys() & {"name", *CARRIERS}) or any(map(holds_call, value.values()))
    )


def drop_field(value, path, *, null):
    if len(path) == 1:
        kept = {name: inner for name, inner in value.items() if name != path[0] or null}
        return {**kept, path[0]: None} if null else kept
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = drop_field(value[path[0]], path[1:], null=null)
    return changed


def variants(family, events):
    told_thrice = family == "openai_responses" and len(events) > 1
    keep = frozenset() if told_thrice else CARRIERS
    for place, (name, event) in enumerate(events):
        for path, held in paths(event, keep):
            for null in (False, True):
                changed = [*events]
                changed[place] = (name, drop_field(event, path, null=null))
                where = f"event {place} {name or ''} {'.'.join(map(str, path))} {'null' if null else 'gone'}"
                yield where, held, join_events(family, changed)


def is_sub(part, of):
    rest = list(of)
    for each in part:
        if each not in rest:
            return False
        rest.remove(each)
    return True


def wrong_variants(codec, request, status, headers, body):
    """(variants tried, those that gave other calls than the reply had)."""
    family = codec.family
    events = split_events(family, body)
    same = join_events(family, events)
    whole, early, failure = decode(codec, request, status, headers, same)
    assert failure is None and is_sub(early, whole)
    tried, wrong = 0, []
    for where, held, changed in variants(family, events):
        if family in EMPTY_PIECES and holds_call(held):
            continue
        tried += 1
        calls, early, failure = decode(codec, request, status, headers, changed)
        if not is_sub(calls, whole) or not is_sub(early, whole):
            wrong.append((where, calls, early))
        elif failure is None and len(calls) < len(whole) and not holds_call(held):
            lost = decode_parts(codec, request, status, headers, changed)
            if sum(isinstance(part, ToolCall) for part in lost) < len(whole):
                wrong.append((where, "lost", lost))
    return tried, wrong


def decode_parts(codec, request, status, headers, body):
    decoder = codec.new_decoder(request, status, headers)
    decoder.feed(body)
    return decoder.close().parts


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_spoken_reply_without_one_member_has_the_same_calls_or_none(family, stream):
    codec = load_codec(family)
    tried = 0
    for reply in sample_replies(family):
        if not any(isinstance(part, ToolCall) for part in reply.parts):
            continue
        spoken = find_family(codec.family).encode_reply(reply, stream=stream)
        headers = dict(spoken.headers)
        count, wrong = wrong_variants(codec, request_for(reply), 200, headers, b"".join(spoken.frames))
        tried += count
        assert not wrong, wrong[:5]
    assert tried > 40


@pytest.mark.parametrize("family", FAMILIES)
def test_a_recorded_reply_without_one_member_has_the_same_calls_or_none(family):
    codec = load_codec(family)
    tried = streams = 0
    for recording in corpus(CORPUS[family]):
        if "tool_calls" not in recording.tags or recording.status != 200 or recording.unreadable_reason:
            continue
        request = request_for(sample_replies(family)[0])
        try:
            events = split_events(family, recording.body)
        except ValueError:
            continue
        if (
            not 0 < len(events) <= EVENTS_MAX
            or decode(codec, request, 200, recording.headers, recording.body)[2]
        ):
            continue
        count, wrong = wrong_variants(codec, request, 200, recording.headers, recording.body)
        assert not wrong, (recording.id, wrong[:5])
        tried, streams = tried + count, streams + 1
        if streams == RECORDED_MAX:
            break
    assert streams > 10 and tried > 1000


def stream_of(*events):
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()


def anthropic_call(start, *deltas):
    return stream_of(
        {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "model": "x"}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    )


START = {"type": "tool_use", "id": "t1", "name": "get_weather"}
PIECES = tuple({"type": "input_json_delta", "partial_json": piece} for piece in ('{"city"', ': "Oslo"}'))


def decode_anthropic(body):
    codec = load_codec("anthropic")
    return decode(codec, request_for(sample_replies("anthropic")[0]), 200, {}, body)


def test_a_call_that_starts_without_input_keeps_its_arguments():
    calls, early, failure = decode_anthropic(anthropic_call(START, *PIECES))
    assert failure is None
    assert calls == early == [("get_weather", '{"city": "Oslo"}')]


def test_a_hosted_call_that_starts_without_input_goes_back_with_its_arguments():
    codec = load_codec("anthropic")
    decoder = codec.new_decoder(request_for(sample_replies("anthropic")[0]), 200, {})
    decoder.feed(anthropic_call({**START, "type": "server_tool_use"}, *PIECES))
    native = json.loads(decoder.close().parts[0].native)  # type: ignore[arg-type]
    assert native["input"] == {"city": "Oslo"}
    assert "partial_json" not in native


@pytest.mark.parametrize(
    "body",
    [
        anthropic_call({**START, "input": {"city": "Rome"}}, *PIECES),
        anthropic_call({"type": "text", "text": ""}, *PIECES),
        anthropic_call(START, PIECES[0], {"type": "input_json_delta"}, PIECES[1]),
    ],
    ids=["told twice", "arguments of a text", "a piece without text"],
)
def test_an_inconsistent_call_is_an_error(body):
    calls, _, failure = decode_anthropic(body)
    assert calls == [] and failure.kind == "garbled"


def test_a_call_whose_two_tellings_differ_is_an_error():
    codec = load_codec("openai_responses")
    call = {"type": "function_call", "call_id": "c", "name": "get_weather", "status": "completed"}
    done, last = ({**call, "arguments": json.dumps({"city": city})} for city in ("Oslo", "Rome"))
    body = stream_of(
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {"status": "completed", "output": [last]}},
    )
    calls, _, failure = decode(codec, request_for(sample_replies("openai_responses")[0]), 200, {}, body)
    assert calls == [] and failure.kind == "garbled"
