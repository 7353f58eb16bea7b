"""Every recorded exchange on Chat Completions, put to the codec and to a second, simpler reading of it."""

import json
import os
from random import Random

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.testing.conformance.codec import decode_slices
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.testing.wire.check_recording import decode_recording, judge_recording
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Message, Reply, Stop, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from wire import corpus

CODEC = load_codec("openai_chat")
SERVER = find_family(CODEC.family)
canonical_request = CANONICAL_FORMS[CODEC.family]
FILE = "openai-chat"
HERE = Endpoint(name="openai_chat", family="openai_chat")
ASKED = Request(model=Model(id="m", endpoint=HERE))
CAMPAIGN = int(os.environ.get("BRIDLE_CAMPAIGN", "1"))

MEANT_SHARE_MIN = 0.99


def test_every_reply_decodes_and_every_request_survives():
    verdicts = [judge_recording(CODEC, recording, slices=(7, 61, 4096)) for recording in corpus(FILE)]
    assert [(found.id, found.problems) for found in verdicts if found.problems] == []
    changed = [found for found in verdicts if found.differences]
    assert [(found.id, found.differences) for found in changed if not found.reason] == []
    assert len(changed) <= (1 - MEANT_SHARE_MIN) * len(verdicts)
    assert sum(found.outcome == "reply" for found in verdicts) > 2_300


def test_what_is_changed_on_purpose_is_told_from_a_loss():
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": given}} for name, given in (
        ("a", "{}"), ("b", '{"x": 1}'))]  # fmt: skip
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = {"role": "tool", "tool_call_id": "a", "content": "one"}
    lines = {
        "a call that is not answered": [asked, answer],
        "a result that names no call": [asked, {"role": "tool", "content": "one"}],
        "a result nobody asked for": [
            asked,
            answer,
            {**answer, "tool_call_id": "b"},
            {**answer, "tool_call_id": "c"},
        ],
        "two results of one call": [asked, answer, answer, {**answer, "tool_call_id": "b"}],
        "half the arguments": [
            {**asked, "tool_calls": [{**calls[0], "function": {"name": "f", "arguments": '{"x'}}]},
            answer,
        ],
    }
    recording = corpus(FILE)[0]
    for name, messages in lines.items():
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}, *messages]}).encode()
        request = HttpRequest(path="/v1/chat/completions", body=body)
        found = judge_recording(CODEC, replace(recording, request=request), slices=())
        assert found.differences, name
        assert found.reason, (name, found.differences)


def test_short_replies_decode_byte_by_byte():
    for recording in corpus(FILE):
        if len(recording.body) < 6_000:
            assert decode_recording(CODEC, ASKED, recording, 1) == decode_recording(
                CODEC, ASKED, recording
            ), recording.id


# --- a second reading -----------------------------------------------------------------------------------


def test_replies_say_what_a_plain_reading_says():
    """The recorded JSON, read by the few lines below, knows nothing of the decoder."""
    compared = 0
    for recording in corpus(FILE):
        reply, told = decode_recording(CODEC, ASKED, recording), plain_reading(recording.body)
        if not isinstance(reply, Reply) or told is None:
            continue
        compared += 1
        text, thought, calls, reason, usage = told
        assert reply.text == text, recording.id
        assert "".join(getattr(part, "text", "") for part in reply.parts if not hasattr(part, "wire_id")) in (
            thought + text,
            thought + thought + text,
        ), recording.id
        heard = [(call.name, call.wire_id, call.arguments) for call in reply.calls]
        if reply.stop is Stop.LENGTH and heard and not heard[-1][2]:
            # Cut off before it had arguments: not the same as a call without any.
            heard[-1] = (*heard[-1][:2], "{}")
        assert heard == calls, recording.id
        assert reply.stop_detail.partition(":")[0] == reason, recording.id
        if calls and reason in ("stop", ""):
            assert reply.stop is Stop.TOOLS, recording.id
        prompt, written = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        reasoned = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
        unsaid = max((usage.get("total_tokens") or 0) - prompt - written, 0)
        assert reply.usage.prompt in (prompt, prompt + unsaid), recording.id
        assert reply.usage.cache_read == min(cached(usage), reply.usage.prompt), recording.id
        assert reply.usage.output in (written, written + reasoned, written + unsaid), recording.id
        assert reply.usage.total >= (usage.get("total_tokens") or 0), recording.id
    assert compared > 2_300


def cached(usage):
    names = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens", "num_cached_tokens")
    details = usage.get("prompt_tokens_details") or {}
    return max([details.get("cached_tokens") or 0, *(usage.get(name) or 0 for name in names)])


def plain_reading(body):
    """Text, thoughts, calls, reason and counts of a reply in JSON or server-sent events; None for others."""
    if body[:1] == b"{":
        whole = json.loads(body)
        if not whole.get("choices") or whole["choices"][0].get("error"):
            return None
        choice = whole["choices"][0]
        return summed([choice.get("message") or {}], choice["finish_reason"], whole.get("usage") or {})
    deltas, reason, usage = [], None, {}
    for line in body.decode().splitlines():
        if not line.startswith("data:") or line[5:].strip() in ("", "[DONE]"):
            continue
        event = json.loads(line[5:])
        if "error" in event:
            return None
        usage = event.get("usage") or (event.get("x_groq") or {}).get("usage") or usage
        for choice in event.get("choices") or ():
            if choice["index"] == 0:
                deltas.append(choice.get("delta") or {})
                reason = choice.get("finish_reason") or reason
    return summed(deltas, reason, usage)


def summed(deltas, reason, usage):
    text = thought = detailed = ""
    calls, legacy = {}, None
    for at, delta in enumerate(deltas):
        content = delta.get("content") or ""
        for block in content if isinstance(content, list) else ():
            text += block.get("text", "")
            thought += "".join(inner["text"] for inner in block.get("thinking", ()))
        text += content if isinstance(content, str) else ""
        text += (delta.get("refusal") or "") + ((delta.get("audio") or {}).get("transcript") or "")
        thought += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for detail in delta.get("reasoning_details") or ():
            detailed += detail.get("text") or detail.get("summary") or ""
        for place, call in enumerate(delta.get("tool_calls") or ()):
            function = call["function"]
            key = call.get("index", place if len(deltas) == 1 else at)
            key = place if len(deltas) == 1 else key
            known = calls.setdefault(key, ["", "", ""])
            known[0] = known[0] or function.get("name") or ""
            known[1] = known[1] or call.get("id") or ""
            known[2] += function.get("arguments") or ""
        if (delta.get("function_call") or {}).get("name") or legacy:
            legacy = legacy or ["", "", ""]
            legacy[0] = legacy[0] or (delta.get("function_call") or {}).get("name") or ""
            legacy[2] += (delta.get("function_call") or {}).get("arguments") or ""
    listed = [
        (name, call_id, said or "{}")
        for name, call_id, said in [*calls.values(), *([legacy] if legacy else [])]
    ]
    listed = [(name, call_id, "{}" if said == "null" else said) for name, call_id, said in listed]
    return text, thought or detailed, listed, reason or "", usage


# --- there and back -------------------------------------------------------------------------------------


def test_replies_survive_being_told_again():
    """A recorded reply, spoken whole and in pieces, is heard as the same reply."""
    checked = 0
    for recording in corpus(FILE):
        reply = decode_recording(CODEC, ASKED, recording)
        if not isinstance(reply, Reply):
            continue
        checked += 1
        for stream in (False, True):
            spoken = SERVER.encode_reply(reply, stream=stream)
            again = decode_slices(CODEC, reply, spoken, list(spoken.frames))
            assert isinstance(again, Reply), recording.id
            assert essence(again) == essence(reply), (recording.id, stream)
    assert checked > 2_300


def essence(reply):
    """Ids nobody gave are made up when a reply is told, and so is a reason to stop."""
    parts = tuple(replace(part, wire_id="") if isinstance(part, ToolCall) else part for part in reply.parts)
    return replace(reply, id="", stop_detail="", parts=parts)


UNSENT = (
    "annotations",
    "padding",
    "audio_content",
    "parsed",
    "provider_metadata",
    "executed_tools",
    "token_id",
    "channel",
)


def test_recorded_messages_survive_being_sent_back():
    """A reply, applied and sent again, holds what the server gave."""
    checked = 0
    for recording in corpus(FILE):
        reply = decode_recording(CODEC, ASKED, recording)
        if not isinstance(reply, Reply) or recording.body[:1] != b"{":
            continue
        parts = tuple(
            replace(part, id=f"c1_{at}") if isinstance(part, ToolCall) else part
            for at, part in enumerate(reply.parts)
        )
        message = Message(role="assistant", parts=parts, origin=reply.origin, stop=reply.stop)
        sent = json.loads(CODEC.encode(replace(ASKED, messages=(message,))).body)["messages"]
        theirs = as_sent(json.loads(recording.body)["choices"][0].get("message") or {}, parts)
        if sent and reply.stop is not Stop.LENGTH:
            checked += 1
            assert said(sent[0]) == theirs, recording.id
        elif not sent:
            assert not theirs.keys() & {"content", "refusal", "tool_calls", "audio"}, recording.id
    assert checked > 1_200


def as_sent(message, parts):
    """A message as it should come back: without what says nothing, and with ids where there were none."""
    plain = {name: value for name, value in said(message).items() if name not in UNSENT}
    if not plain.get("function_call", {"name": "x"})["name"]:
        del plain["function_call"]
    if "audio" in plain:
        plain["audio"] = {"id": plain["audio"]["id"]}
        if not plain["audio"]["id"]:
            del plain["audio"]
    if isinstance(plain.get("content"), str) and not plain["content"].strip():
        del plain["content"]
    ids = [part.id for part in parts if isinstance(part, ToolCall)]
    calls = []
    for call, call_id in zip(plain.get("tool_calls", ()), ids, strict=False):
        function = said(call["function"])
        if function.get("arguments") in (None, "", "null"):
            function["arguments"] = "{}"
        more = {name: value for name, value in said(call).items() if name not in ("index", "custom")}
        calls.append({**more, "id": call.get("id") or call_id, "type": "function", "function": function})
    return {**plain, "tool_calls": calls} if calls else plain


def said(members):
    return {name: value for name, value in members.items() if value not in (None, "", [], {})}


# --- the comparison itself ------------------------------------------------------------------------------


def test_only_what_servers_take_for_equal_goes_unnoticed():
    """Each member of real requests is taken away, each value changed: the comparison must see it."""
    tried, unnoticed = 0, set()
    for recording in corpus(FILE)[::5]:
        if recording.request is None or len(recording.request.body) > 4_000:
            continue
        body = json.loads(recording.request.body)
        if not body.get("tools"):
            # Without tools nothing can be chosen.
            body = {name: body[name] for name in body if name not in ("tool_choice", "parallel_tool_calls")}
        request = replace(recording.request, body=json.dumps(body).encode())
        meant = canonical_request(request)
        for at, changed in changes(body):
            tried += 1
            try:
                same = canonical_request(replace(request, body=json.dumps(changed).encode())) == meant
            except (KeyError, AttributeError, TypeError):
                same = False
            if same:
                unnoticed.add(at)
    assert tried > 5_000
    blank = {at for at in unnoticed if "=" in at and at.partition("=")[2].strip() in ("", "[]")}
    assert {at.partition("=")[0] for at in blank} <= MAY_BE_BLANK
    assert unnoticed - blank <= SAID_BY_SILENCE


MAY_BE_BLANK = {"content", "text", "reasoning_content", "description", "name", "tool_calls"}
"""What is blank or empty there may as well be left out."""
SAID_BY_SILENCE = {
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
"""What goes without saying: defaults, the place of a call in its list, a model that the path names."""


def changes(value, name=""):
    """What was said, and a copy of the value without it or with something else in its place."""
    if isinstance(value, dict):
        for member, inner in value.items():
            if inner is not None:
                yield f"{member}={inner}", {other: value[other] for other in value if other != member}
                for at, changed in changes(inner, member):
                    yield at, {**value, member: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for at, changed in changes(inner, name):
                yield at, [*value[:index], changed, *value[index + 1 :]]
    else:
        yield f"{name}: another value", not value if isinstance(value, bool) else f"{value}!"


# --- whatever arrives -----------------------------------------------------------------------------------


def test_mutated_recordings_give_a_reply_or_a_failure():
    """Seeded; BRIDLE_CAMPAIGN multiplies the number of tries."""
    random = Random(20_261_115)
    recordings = [recording for recording in corpus(FILE) if len(recording.body) < 30_000]
    kinds = set()
    for _ in range(2_500 * CAMPAIGN):
        recording = random.choice(recordings)
        body = bytearray(recording.body or b" ")
        for _ in range(random.randint(1, 6)):
            at = random.randrange(len(body) + 1)
            match random.randrange(5):
                case 0:
                    body[at : at + 1] = random.randbytes(1)
                case 1:
                    del body[at : at + random.randint(1, 60)]
                case 2:
                    body[at:at] = body[at : at + random.randint(1, 200)]
                case 3:
                    del body[at:]
                case _:
                    body[at:at] = random.choice(
                        (b"\n\n", b"null", b"{", b'"', b"[]", b"\\ud83d", b"\xff", b"[" * 3000)
                    )
        found = decode_recording(
            CODEC, ASKED, replace(recording, body=bytes(body)), random.choice((None, 7, 997))
        )
        kinds.add(found.kind if isinstance(found, Failure) else "reply")
    assert {"reply", "cut", "garbled"} <= kinds


def test_mutated_requests_are_read_or_refused():
    random = Random(20_261_115)
    asked = [recording.request for recording in corpus(FILE) if recording.request is not None]
    odd = (None, True, 0, -1, 1.5, 10**30, "", "x", "\ud83d", [], {}, [None], [[]], {"type": "text"})
    read = 0
    for _ in range(1_500 * CAMPAIGN):
        request = random.choice(asked)
        body = json.loads(request.body)
        for _ in range(random.randint(1, 3)):
            node = (
                body["messages"] if random.random() < 0.7 and isinstance(body.get("messages"), list) else body
            )
            while isinstance(node, dict | list) and node:
                key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
                if random.random() < 0.3 or not isinstance(node[key], dict | list) or not node[key]:
                    node[key] = json.loads(json.dumps(random.choice(odd)))
                    break
                node = node[key]
        try:
            again = CODEC.encode(CODEC.decode_request(replace(request, body=json.dumps(body).encode())))
        except ProviderError:
            continue
        read += 1
        meant = canonical_request(again)
        assert canonical_request(CODEC.encode(CODEC.decode_request(again))) == meant
    assert read > 200 * CAMPAIGN
