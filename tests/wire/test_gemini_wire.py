"""Every recorded exchange with Gemini, put to the codec and to a second, simpler reading of it."""

import gzip
import json
import os
from random import Random

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.testing.wire.check_recording import decode_recording, judge_recording
from bridle.values.errors import ProviderError
from bridle.values.message import Message, Reply, ToolCall
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from wire import PLACE, corpus

CODEC = load_codec("gemini")
canonical_request = CANONICAL_FORMS[CODEC.family]
ASKED = Request(model=Model(id="m", endpoint=Endpoint(name="gemini", family="gemini")))
MEANT_SHARE_MIN = 0.99
CAMPAIGN = float(os.environ.get("BRIDLE_CAMPAIGN", "1"))
JUDGED = ("raw", "parsed", "redacted")


def written_by_hand():
    """Ids of exchanges that nobody recorded: examples, some of them broken on purpose."""
    with gzip.open(PLACE / "gemini.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {
        record["id"]
        for record in records
        if record["provenance"] != "recorded" or record["fidelity"] not in JUDGED
    }


def test_every_reply_decodes_and_nearly_every_request_survives():
    recordings = corpus("gemini")
    tolerated = written_by_hand()
    verdicts = [judge_recording(CODEC, recording) for recording in recordings]
    problems = [(found.id, found.problems) for found in verdicts if found.problems]
    assert [problem for problem in problems if problem[0] not in tolerated] == []
    assert not any("at a time" in line for _, lines in problems for line in lines)
    asked = [found for found in verdicts if found.outcome != "other" and found.id not in tolerated]
    changed = [(found.id, found.differences) for found in asked if found.differences]
    assert len(asked) > 1_000
    assert len(changed) <= (1 - MEANT_SHARE_MIN) * len(asked), changed
    # The one thing that may change: a call that was never answered is, because newer models demand it.
    for _, lines in changed:
        assert all('became [{"functionResponse"' in line for line in lines), lines


def test_replies_say_what_a_plain_reading_says():
    """The recorded JSON, read by the few lines below, knows nothing of the decoder."""
    compared = 0
    for recording in corpus("gemini"):
        reply = decode_recording(CODEC, ASKED, recording)
        if not isinstance(reply, Reply):
            continue
        compared += 1
        text, calls, reason, used = plain_reading(recording.body)
        assert reply.text == text, recording.id
        told = [(call.name, call.wire_id, json.loads(call.arguments)) for call in reply.calls]
        if b"willContinue" not in recording.body:
            assert told == calls, recording.id
        assert reply.stop_detail.startswith(reason) or reason.isdigit(), recording.id
        # The total is left out in some recordings, and is all there is of the prompt in others.
        parts = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount")
        summed = sum(used.get(name) or 0 for name in parts)
        expected = summed if used.get("promptTokenCount") else used.get("totalTokenCount", summed)
        assert reply.usage.total == expected, recording.id
    assert compared > 1_000


def plain_reading(body):
    """Text, calls, reason and counts of a reply in JSON, in an array of it, or in events."""
    if body[:1] in b"{[":
        whole = json.loads(body)
        responses = whole if isinstance(whole, list) else [whole]
    else:
        lines = body.decode().splitlines()
        responses = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
    text, calls, reason, used = "", [], "", {}
    for response in responses:
        used.update(response.get("usageMetadata") or {})
        for candidate in response.get("candidates") or []:
            reason = str(candidate.get("finishReason") or reason)
            for part in (candidate.get("content") or {}).get("parts") or []:
                if not part.get("thought"):
                    text += part.get("text", "")
                if call := part.get("functionCall"):
                    calls.append((call.get("name"), call.get("id", ""), call.get("args", {})))
    return text, calls, reason, used


def test_parts_of_recorded_replies_survive_being_sent_back():
    """A reply, applied and sent again, holds the parts the provider gave: signatures, ids, code and all."""
    checked = signed = 0
    for recording in corpus("gemini"):
        reply = decode_recording(CODEC, ASKED, recording)
        if not isinstance(reply, Reply) or b"willContinue" in recording.body:
            continue
        theirs = joined(part for part in parts_in(recording.body))
        if not theirs:
            continue
        checked += 1
        signed += any("thoughtSignature" in part for part in theirs)
        parts = tuple(
            replace(part, id=f"c1_{at}") if isinstance(part, ToolCall) else part
            for at, part in enumerate(reply.parts)
        )
        line = (Message(role="assistant", parts=parts, origin=reply.origin, stop=reply.stop),)
        contents = json.loads(CODEC.encode(replace(ASKED, messages=line)).body)["contents"]
        (content,) = (content for content in contents if content["role"] == "model")
        assert content["parts"] == theirs, recording.id
    assert checked > 900
    assert signed > 400


def parts_in(body):
    if body[:1] in b"{[":
        whole = json.loads(body)
        responses = whole if isinstance(whole, list) else [whole]
    else:
        responses = [json.loads(line[5:]) for line in body.decode().splitlines() if line.startswith("data:")]
    for response in responses:
        for candidate in response.get("candidates") or []:
            yield from (candidate.get("content") or {}).get("parts") or []


def joined(parts):
    """Plain words that follow one another are one part; blank ones are none."""
    found = []
    for part in parts:
        plain = part.keys() <= {"text", "thought"}
        if plain and found and found[-1].keys() == part.keys():
            found[-1] = {**part, "text": found[-1]["text"] + part["text"]}
        elif part.get("text") != "" or not plain:
            found.append(dict(part))
        if call := part.get("functionCall"):
            found[-1]["functionCall"] = {"args": {}, **call}
    return [part for part in found if part.keys() != {"text"} or part["text"].strip()]


ODD = (None, 7, -1.5, "x", "", [], {}, [1], {"a": 1}, True, ["x", None, {}], "\ud83d")


def damaged(value, random):
    if isinstance(value, dict) and value and random.random() < 0.8:
        member = random.choice(list(value))
        if random.random() < 0.15:
            return {name: inner for name, inner in value.items() if name != member}
        return {**value, member: damaged(value[member], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return [*value[:at], damaged(value[at], random), *value[at + 1 :]]
    return random.choice(ODD)


def test_damaged_requests_are_refused_or_can_be_written_again():
    random = Random(20_261_115)
    asked = [recording.request for recording in corpus("gemini") if recording.request]
    asked = [request for request in asked if len(request.body) < 4_000]
    refusals = 0
    for _ in range(int(1_500 * CAMPAIGN)):
        request = random.choice(asked)
        body = damaged(damaged(json.loads(request.body), random), random)
        try:
            understood = CODEC.decode_request(replace(request, body=json.dumps(body).encode()))
        except ProviderError as error:
            refusals += error.failure.kind in ("invalid", "not_found")
        else:
            json.loads(CODEC.encode(understood).body)
    assert refusals > 0


def test_only_what_the_provider_takes_for_equal_goes_unnoticed():
    """Each member of real requests is taken away, each value changed: the comparison must see it."""
    tried, unnoticed = 0, set()
    for recording in corpus("gemini")[::5]:
        if recording.request is None or len(recording.request.body) > 3_000:
            continue
        if "enerateContent" not in recording.request.path:
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
    }, unnoticed


def changes(value, name=""):
    """What was said, and a copy of the value without it or with something else in its place."""
    if isinstance(value, dict):
        for member, inner in value.items():
            if inner is not None:
                named = f"{name}.{member}" if name == "systemInstruction" else member
                yield f"{named}={inner}", {other: value[other] for other in value if other != member}
                for said, changed in changes(inner, named):
                    yield said, {**value, member: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for said, changed in changes(inner, name):
                yield said, [*value[:index], changed, *value[index + 1 :]]
    else:
        yield f"{name}: another value", not value if isinstance(value, bool) else f"{value}!"
