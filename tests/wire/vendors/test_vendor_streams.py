"""Streams drawn from the vendors' stream types say what the same replies say when they come whole.

Each stream is decoded in slices of any size.  The reply must equal that of the whole body, the deltas must show the
words and the calls of the reply, and the next request must hold everything that was said: texts, ids and arguments
of calls, signatures, reasoning items, items of the provider's own tools.  BRIDLE_CAMPAIGN multiplies the streams.
"""

import json
import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from bridle.providers import load_codec
from bridle.providers.wire.call_arguments import unwrap_text
from bridle.values.errors import ProviderError
from bridle.values.message import Reasoning, Text
from bridle.values.result import CallReady, ReasoningDelta, ToolCallDelta
from tests.sim.sim_families import question
from tests.suite.campaign import scale
from tests.wire.vendors.known_losses import REASONS, STREAMS, find_differing, find_nearest, is_thought
from tests.wire.vendors.vendor_replies import (
    BETAS,
    ROOTS,
    decode_reply,
    drop_empty_members,
    echoed_in,
    said_in,
    sent_back,
)
from tests.wire.vendors.vendor_shapes import Shapes
from tests.wire.vendors.vendor_streams import NOT_IN_TYPES, cut_bytes, draw_stream, event_root, write_stream
from tests.wire.vendors.vendor_types import type_violations

COUNT = scale(40)
EVERY = [*ROOTS.items(), *BETAS.items()]
BETWEEN = "\n\n"
"""Stands between two pieces of one train of thought."""


def decode_stream(family, data, chance):
    """The reply that a stream tells, and the deltas that were shown meanwhile."""
    decoder = load_codec(family).new_decoder(
        question(family, "Look.", stream=True), 200, {"content-type": STREAMS[family]}
    )
    deltas = []
    for piece in cut_bytes(data, chance):
        deltas += decoder.feed(piece)
    return decoder.close(), deltas


def to_plain(value):
    """A reply as data: arguments and native members by their meaning, because their spelling may differ."""
    if isinstance(value, dict):
        return {
            name: read_json(each) if name in ("native", "arguments") else to_plain(each)
            for name, each in value.items()
        }
    return [to_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def read_json(text):
    try:
        return drop_empty_members(json.loads(text)) if text is not None else None
    except ValueError:
        return text


def differences(whole, streamed):
    """The members in which two replies differ."""
    said, again = to_plain(msgspec.to_builtins(whole)), to_plain(msgspec.to_builtins(streamed))
    return {name: (said.get(name), again.get(name)) for name in find_differing(said, again)}


def find_misshown(reply, deltas, stream):
    """What the deltas show otherwise than the reply has it."""
    if not stream.halved:
        words = "".join(part.text for part in reply.parts if isinstance(part, Text))
        if "".join(delta.text for delta in deltas) != words:
            yield "words"
        thoughts = "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
        shown = "".join(delta.reasoning for delta in deltas if isinstance(delta, ReasoningDelta))
        if shown.replace(BETWEEN, "") != thoughts.replace(BETWEEN, ""):
            yield "thoughts"
        yield from misshown_calls(reply, deltas)
    declined = sealed_ids(reply)
    ready = {delta.index: delta.call for delta in deltas if isinstance(delta, CallReady)}
    ready = {index: call for index, call in ready.items() if call.wire_id not in declined}
    calls = {index: call for index, call in enumerate(reply.calls) if index in ready}
    if any(
        (call.name, call.arguments) != (ready[at].name, ready[at].arguments) for at, call in calls.items()
    ):
        yield "ready calls"
    if len(ready) > len(calls):
        yield "calls that are none"


def misshown_calls(reply, deltas):
    shown = {}
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            shown[delta.index] = shown.get(delta.index, "") + delta.arguments
    texts = [
        unwrap_text(call.arguments) if "custom" in (call.native or "") else call.arguments
        for call in reply.calls
    ]
    rest = iter(texts)
    if not sealed_ids(reply) and not all(text in rest for _, text in sorted(shown.items())):
        yield "arguments"


def sealed_ids(reply):
    """The ids of calls that a model made before it declined to go on: they are ready, and then are no calls."""
    sealed = [part for part in reply.parts if getattr(part, "kind", "") == "tool_use"]
    return {json.loads(part.native)["id"] for part in sealed}


# --- what of a reply goes back otherwise than it came, beside the reasons of test_vendor_replies.py


def words_of(block):
    """The words of a block that holds nothing but words; None for any other."""
    if "citationsContent" in block:
        return "".join(each.get("text", "") for each in block["citationsContent"].get("content", ()))
    if block.get("type") == "text" or (set(block) <= {"text", "thought"}):
        return block.get("text", "")
    return None


def is_blank(said, sent, reply):
    """Words of nothing but white space are refused, so they are left out."""
    return sent is None and (words := words_of(said)) is not None and not words.strip()


def is_blank_message(said, sent, reply):
    """Chat: white space is left out, and so is a message that holds nothing else."""
    content = said.get("content", "")
    if "content" not in said or content.strip():
        return False
    return sent is None or find_differing(said, sent) <= {
        "content", "reasoning_content", "audio",
    }  # fmt: skip


def is_last_but_blanks(said, sent, reply):
    """A message may not end in a thought; blank words after it are no end."""
    after = reply[reply.index(said) :]
    return sent is None and all(is_thought(each) or is_blank(each, None, reply) for each in after)


def is_moved(said, sent, reply):
    """Words after a call go before it, and thoughts that are bound to their place do not stay then."""
    calls = [at for at, each in enumerate(reply) if each.get("type") == "tool_use" or "toolUse" in each]
    if sent is not None or not is_thought(said) or not calls or reply.index(said) < calls[0]:
        return False
    return any(words_of(each) for each in reply[calls[0] :])


def is_joined(said, sent, reply):
    """Neighbouring thoughts are one text; one without words or signature holds nothing."""
    if not said.get("thought") or "thoughtSignature" in said:
        return False
    return not said.get("text") or (sent is not None and said["text"] in sent.get("text", ""))


def without_blanks(block):
    """A message of the Responses wire without pieces that say nothing; any other block as it is."""
    if block.get("type") != "message":
        return block
    words = [
        piece
        for piece in block.get("content", ())
        if (piece.get("text") or piece.get("refusal") or "").strip()
    ]
    return {**block, "content": words}


def is_beside_silence(said, sent, reply):
    """Where a message is left out because it says nothing, ids that depend on it go, and reasoning with them."""
    silent = any(each.get("type") == "message" and not each["content"] for each in reply)
    return silent and (sent is None or find_differing(said, sent) <= {"id"})


MORE_REASONS = {
    "anthropic": (is_blank, is_moved, is_last_but_blanks),
    "openai_responses": (is_beside_silence,),
    "openai_chat": (is_blank_message,),
    "gemini": (is_joined, is_blank),
    "bedrock_converse": (is_blank, is_moved, is_last_but_blanks),
}


def find_losses(family, body, following):
    said = [without_blanks(drop_empty_members(each)) for each in said_in(family, body)]
    sent = [drop_empty_members(each) for each in echoed_in(family, following)]
    spare = [each for each in sent if each not in said and each.get("role", "assistant") == "assistant"]
    for each in said:
        if set(each) - {"type"} and each not in sent:
            close = find_nearest(each, spare, said)
            if not any(reason(each, close, said) for reason in (*REASONS[family], *MORE_REASONS[family])):
                yield each, close


def is_carried(sent, said):
    """Whether an item is one of the reply, but for members that do not go back."""
    return bool(sent) and all(
        name in said and drop_empty_members(said[name]) == drop_empty_members(value)
        for name, value in sent.items()
    )


def violations(family, body, following):
    """What the types do not allow in the next request, without the items in it that are to the letter those of the reply.

    Such an item may lack what only the request's type requires, or hold what only the reply's type has.
    """
    said = said_in(family, body)
    inside = [each["content"] for each in said if isinstance(each.get("content"), list)]
    said = [*said, *(piece for pieces in inside for piece in pieces)]
    for holder in (
        *following.get("messages", ()),
        *following.get("contents", ()),
        *following.get("input", ()),
        following,
    ):
        for name in ("content", "parts", "input"):
            if isinstance(holder.get(name), list):
                holder[name] = [
                    each for each in holder[name] if not any(is_carried(each, one) for one in said)
                ]
    return type_violations(family, following)


def faults_of(family, stream, data, chance):
    """Everything that is wrong with what becomes of one stream; raises what its decoder raises."""
    request, whole = decode_reply(family, json.dumps(stream.body).encode(), "application/json")
    reply, deltas = decode_stream(family, data, chance)
    found = [("differs", name, *both) for name, both in differences(whole, reply).items()]
    found += [("misshown", what) for what in find_misshown(reply, deltas, stream)]
    _, following = sent_back(request, reply)
    if drop_empty_members(following) != drop_empty_members(sent_back(request, whole)[1]):
        found.append(("sent otherwise",))
    found += [("lost", *both) for both in find_losses(family, stream.body, following)]
    found += [("untyped", *wrong) for wrong in violations(family, stream.body, following)]
    return found


def faults(family, root, seed):
    chance = random.Random(f"{root} {seed}")
    stream = draw_stream(family, chance, root)
    return faults_of(family, stream, write_stream(family, stream.events, chance), chance)


@pytest.mark.parametrize(("family", "root"), EVERY)
def test_a_stream_says_what_the_whole_reply_says_and_goes_back_intact(family, root):
    for seed in range(COUNT):
        assert faults(family, root, seed) == [], seed


@pytest.mark.parametrize(("family", "root"), EVERY)
def test_every_event_is_one_of_its_published_types(family, root):
    """The streams are the vendors': what is drawn here is neither more nor less than their types allow."""
    shapes, kinds = Shapes(), Counter()
    for seed in range(30):
        stream = draw_stream(family, random.Random(f"{root} {seed}"), root)
        for name, event in stream.events:
            if name == "ping":
                continue  # documented, and in no type
            for choice in event.get("choices", ()):
                for member in NOT_IN_TYPES:
                    choice["delta"].pop(member, None)
            assert shapes.violations(event_root(family, root), event) == [], (seed, name)
            kinds[name] += 1
    assert sum(kinds.values()) > 50


SHOWN = ("output_text", "refusal", "function_call_arguments", "reasoning_summary_text")


def carries_a_piece(family, name, event):
    """Whether an event carries a piece of the reply that no other event of its stream has, or shows."""
    match family:
        case "anthropic":
            members = ("partial_json", "text", "thinking", "signature")
            return name == "content_block_delta" and any(
                event["delta"].get(member, "{}") not in ("", "{}") for member in members
            )
        case "openai_responses":
            return name.split(".")[1] in SHOWN and bool(event.get("delta"))
        case "openai_chat":
            deltas = [choice["delta"] for choice in event["choices"]]
            pieces = [
                call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls") or ()
            ]
            if pieces:
                return any(piece not in ("", "{}") for piece in pieces)
            return any(
                value
                for delta in deltas
                for member, value in delta.items()
                if member not in ("role", "function_call", "audio")
            )
        case "gemini":
            (candidate,) = event["candidates"]
            parts = candidate["content"].get("parts", ())
            return "finishReason" not in candidate and any(
                part.get("text") or "functionCall" in part for part in parts
            )
    empty = (
        {"text": ""},
        *({"toolUse": {"input": text}} for text in ("", "{}")),
        {"reasoningContent": {"text": ""}},
    )
    return name == "contentBlockDelta" and event[name]["delta"] not in empty


def place_of(event):
    return tuple(event.get(name) for name in ("type", "output_index", "content_index", "summary_index"))


@pytest.mark.parametrize(("family", "root"), EVERY)
def test_one_event_that_is_left_out_is_found(family, root):
    """The comparison can fail: a stream that lost one piece raises, or differs from its reply."""
    planted = 0
    for seed in range(60):
        chance = random.Random(f"{root} {seed}")
        stream = draw_stream(family, chance, root)
        carrying = [
            at for at, (name, event) in enumerate(stream.events) if carries_a_piece(family, name, event)
        ]
        if family == "openai_responses":
            # What comes in one piece comes once more, in the event that ends it.
            places = Counter(place_of(stream.events[at][1]) for at in carrying)
            carrying = [at for at in carrying if places[place_of(stream.events[at][1])] > 1]
        if not carrying or stream.halved:
            continue
        gone = chance.choice(carrying)
        events = [each for at, each in enumerate(stream.events) if at != gone]
        try:
            found = faults_of(family, stream, write_stream(family, events, chance), chance)
        except ProviderError:
            found = ["raised"]
        assert found, (seed, stream.events[gone])
        planted += 1
    assert planted > 10


# --- what these streams found, one by one


def tell(family, body, events=None):
    """The reply and the next request of a whole body, or of a stream that is written out."""
    if events is None:
        request, reply = decode_reply(family, json.dumps(body).encode(), "application/json")
        return reply, sent_back(request, reply)[1], []
    reply, deltas = decode_stream(family, write_stream(family, events, random.Random(1)), random.Random(1))
    return reply, sent_back(question(family, "Look."), reply)[1], deltas


def claude(*content, stop="tool_use"):
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content),
            "stop_reason": stop, "usage": usage}  # fmt: skip


def converse(*content, stop="tool_use"):
    usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
    output = {"message": {"role": "assistant", "content": list(content)}}
    return {"output": output, "stopReason": stop, "usage": usage, "metrics": {"latencyMs": 1}}


def response(*items, **more):
    return {
        "id": "resp_1",
        "object": "response",
        "model": "m",
        "status": "completed",
        "output": list(items),
        **more,
    }


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"city":"Oslo"}'}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}


@pytest.mark.parametrize(
    ("family", "body"),
    [
        ("anthropic", claude({"type": "tool_use", "id": "t", "name": "look", "input": {}}, stop="max_tokens")),
        ("bedrock_converse", converse({"toolUse": {"toolUseId": "t", "name": "look", "input": {}}}, stop="max_tokens")),
    ],
)  # fmt: skip
def test_a_call_without_arguments_at_the_end_of_a_cut_reply_is_open_also_when_it_came_whole(family, body):
    """A reply that ends before the first word of the arguments looks like a call without any."""
    reply, _, _ = tell(family, body)
    assert [call.arguments for call in reply.calls] == [""]


def test_calls_after_a_fallback_are_counted_from_the_first():
    """The calls before it are nobody's: a call that is ready has the number that it has in the reply."""
    model = {"model": "m"}
    declined = {"type": "fallback", "from": model, "to": model, "trigger": {"type": "refusal"}}
    first, second = ({"type": "tool_use", "id": each, "name": "look", "input": {}} for each in "ab")
    events = [("message_start", {"type": "message_start", "message": claude(stop=None)})]
    for index, (block, text) in enumerate(
        ((first, '{"city":"a"}'), (declined, ""), (second, '{"city":"b"}'))
    ):
        events.append(("", {"type": "content_block_start", "index": index, "content_block": block}))
        piece = {"type": "input_json_delta", "partial_json": text}
        events += [("", {"type": "content_block_delta", "index": index, "delta": piece})] if text else []
        events.append(("", {"type": "content_block_stop", "index": index}))
    events.append(
        ("", {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 1}})
    )
    reply, _, deltas = tell("anthropic", None, events)
    ready = [(delta.index, delta.call.arguments) for delta in deltas if isinstance(delta, CallReady)]
    assert ready[-1] == (0, '{"city":"b"}')
    assert [call.arguments for call in reply.calls] == ['{"city":"b"}']


def test_a_call_before_the_last_item_of_a_cut_reply_is_whole():
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "incomplete", "content": []}
    reply, _, _ = tell("openai_responses", response(CALL, message, **CUT))
    assert [call.arguments for call in reply.calls] == [CALL["arguments"]]


def test_the_summary_and_the_text_of_a_thought_are_shown_apart():
    thought = {**THOUGHT, "summary": [{"type": "summary_text", "text": "one"}]}
    thought["content"] = [{"type": "reasoning_text", "text": "two"}]
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": THOUGHT},
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "part": {}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "one"},
        {
            "type": "response.content_part.added",
            "output_index": 0,
            "part": {"type": "reasoning_text", "text": ""},
        },
        {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "two"},
        {"type": "response.completed", "response": response(thought)},
    ]
    reply, _, deltas = tell("openai_responses", None, [("", event) for event in events])
    assert "".join(delta.reasoning for delta in deltas) == reply.parts[0].text == "one\n\ntwo"


def test_a_streamed_result_without_content_goes_back_with_an_empty_one():
    start = {"start": {"toolResult": {"toolUseId": "t", "status": "success"}}, "contentBlockIndex": 0}
    events = [
        {"messageStart": {"role": "assistant"}},
        {"contentBlockStart": start},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"contentBlockDelta": {"delta": {"text": "Fine."}, "contentBlockIndex": 1}},
        {"contentBlockStop": {"contentBlockIndex": 1}},
        {"messageStop": {"stopReason": "end_turn"}},
    ]
    _, following, _ = tell("bedrock_converse", None, [(next(iter(event)), event) for event in events])  # type: ignore[call-overload]
    (result,) = [
        block["toolResult"] for block in following["messages"][1]["content"] if "toolResult" in block
    ]
    assert result == {"toolUseId": "t", "status": "success", "content": []}


def test_a_message_that_opens_with_an_empty_piece_keeps_its_members():
    """Its phase tells the model what was an answer; its reasoning is refused without it."""
    pieces = [{"type": "output_text", "text": text, "annotations": []} for text in ("", "Oslo.")]
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "phase": "final_answer",
    }
    _, following, _ = tell("openai_responses", response(THOUGHT, {**message, "content": pieces}))
    thought, sent = following["input"][1:3]
    assert thought == THOUGHT
    assert sent == {**message, "content": pieces[1:]}


def test_reasoning_stays_beside_a_call_without_an_id():
    """The id of a call is optional; recorded requests with such calls are taken."""
    _, following, _ = tell("openai_responses", response(THOUGHT, CALL))
    assert following["input"][1:3] == [THOUGHT, CALL]


def test_items_that_need_their_id_do_not_go_back_without_it():
    """Ids go with reasoning that cannot be proven: a call that needs one becomes a plain call."""
    unproven = {"type": "reasoning", "id": "rs_1", "summary": []}
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    click: Any = {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_2",
        "status": "completed",
        "pending_safety_checks": [],
    }
    click["action"] = {"type": "screenshot"}
    _, following, _ = tell("openai_responses", response(unproven, search, click, CALL))
    kinds = [(item["type"], item.get("call_id")) for item in following["input"][1:]]
    assert kinds == [
        ("function_call", "call_2"),
        ("function_call", "call_1"),
        ("function_call_output", "call_2"),
        ("function_call_output", "call_1"),
    ]
    assert type_violations("openai_responses", following) == []
