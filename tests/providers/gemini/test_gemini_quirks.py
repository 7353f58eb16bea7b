"""Quirks of Gemini-compatible servers: each stream decodes to the same reply as the clean one."""

import json
import re

import pytest

from bridle.values.message import Stop
from bridle.values.result import ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.usage import Usage
from tests.providers.gemini.gemini_replies import WIRE

COUNTS = {"promptTokenCount": 11, "candidatesTokenCount": 5, "thoughtsTokenCount": 2, "totalTokenCount": 18}
CALL = {"functionCall": {"name": "look", "args": {"city": "Tōkyō"}}, "thoughtSignature": "c2ln"}


def piece(*parts, **candidate):
    return {
        "candidates": [{"content": {"parts": list(parts), "role": "model"}, "index": 0, **candidate}],
        "usageMetadata": {"promptTokenCount": 11, "totalTokenCount": 11},
        "modelVersion": "gemini-x-001",
        "responseId": "r1",
    }


CLEAN = [
    piece({"text": "Let me see.\n\n", "thought": True}),
    piece({"text": "I am "}),
    piece({"text": "looking — 🌡️"}),
    piece(CALL),
    {**piece({"text": "", "thoughtSignature": "ZW5k"}, finishReason="STOP"), "usageMetadata": COUNTS},
]


def events(pieces, separator="\r\n\r\n", lead="data: "):
    return "".join(f"{lead}{json.dumps(each)}{separator}" for each in pieces).encode()


def change_chunks(change):
    return [change(json.loads(json.dumps(each))) for each in CLEAN]


def with_last(*pieces):
    return [*CLEAN[:-1], *pieces]


def with_each(**fields):
    return change_chunks(lambda each: {**each, **fields})


def with_candidates(change):
    return change_chunks(
        lambda each: {**each, "candidates": [change(candidate) for candidate in each["candidates"]]}
    )


def snake(value, name=""):
    """Names as the other spelling has them; what is inside arguments is not the provider's."""
    if isinstance(value, list):
        return [snake(each) for each in value]
    if isinstance(value, dict) and name != "args":
        return {
            re.sub("([A-Z])", r"_\1", member).lower(): snake(inner, member) for member, inner in value.items()
        }
    return value


def without_names(each):
    return {name: each[name] for name in ("candidates", "usageMetadata")}


def dump_indented(each):
    return json.dumps(each, indent=2)


def spread(each):
    return "".join(f"data: {line}\r\n" for line in json.dumps(each, indent=1).splitlines()) + "\r\n"


LAST, NOTHING, NEXT = CLEAN[-1], piece({"text": ""}), "\n,\r\n"
SECOND = {"content": {"parts": [{"text": "no"}]}, "index": 1}
QUIRKS = {
    "bare line feeds": events(CLEAN, "\n\n"),
    "carriage returns": events(CLEAN, "\r\r"),
    "no space after the colon": events(CLEAN, lead="data:"),
    "named events with ids": events(CLEAN, lead="event: message\r\nid: 7\r\ndata: "),
    "a byte order mark": b"\xef\xbb\xbf" + events(CLEAN),
    "comments that keep the line open": b": hello\r\n\r\n" + events(CLEAN, "\r\n\r\n: still here\r\n\r\n"),
    "empty events": events(CLEAN, "\r\n\r\ndata:\r\n\r\n"),
    "blank lines before the first event": b"\r\n\r\n" + events(CLEAN),
    "a sentinel at the end": events(CLEAN) + b"data: [DONE]\r\n\r\n",
    "no blank line after the last event": events(CLEAN).removesuffix(b"\r\n\r\n"),
    "data over several lines": "".join(map(spread, CLEAN)).encode(),
    "one long array": json.dumps(CLEAN).encode(),
    "one long array over many lines": f"[{NEXT.join(map(dump_indented, CLEAN))}\n]\n".encode(),
    "letters not escaped": json.dumps(CLEAN, ensure_ascii=False).encode(),
    "names with underscores": events(map(snake, CLEAN)),
    "no index": events(with_candidates(lambda c: {name: c[name] for name in c if name != "index"})),
    "no role": events(with_candidates(lambda c: {**c, "content": {"parts": c["content"]["parts"]}})),
    "nulls everywhere": events(
        with_candidates(lambda c: {"finishMessage": None, "groundingMetadata": None, **c})
    ),
    "a reason to stop that is unspecified": events(
        with_candidates(lambda c: {"finishReason": "FINISH_REASON_UNSPECIFIED", **c})
    ),
    "an empty reason to stop": events(with_candidates(lambda c: {"finishReason": "", **c})),
    "the reason to stop with every piece": events(with_candidates(lambda c: {"finishReason": "STOP", **c})),
    "ratings and probabilities": events(
        with_candidates(lambda c: {**c, "safetyRatings": [{"category": "X"}], "avgLogprobs": -1.5})
    ),
    "empty sources": events(
        with_candidates(lambda c: {**c, "groundingMetadata": {}, "citationMetadata": {}})
    ),
    "fields of another service": events(with_each(createTime="2026-11-15T00:00:00Z")),
    "fields of next year": events(
        with_each(turnToken="v1_x", modelStatus={"modelStage": "STABLE"}, next=[1])
    ),
    "feedback that blocks nothing": events(with_each(promptFeedback={"safetyRatings": []})),
    "counts in a piece of their own": events(
        with_last({**LAST, "usageMetadata": None}, {"usageMetadata": COUNTS})
    ),
    "empty pieces between": events(
        each for said in CLEAN for each in (said, {"candidates": []}, NOTHING, {})
    ),
    "the id and the model only once": events([CLEAN[0], *map(without_names, CLEAN[1:])]),
    "a second candidate": events(
        change_chunks(lambda each: {**each, "candidates": [*each["candidates"], SECOND]})
    ),
    "reasons by number": events(
        with_last({**LAST, "candidates": [{**LAST["candidates"][0], "finishReason": 1}]})
    ),
    "thoughts said not to be": events(
        with_candidates(
            lambda c: {**c, "content": {"parts": [{"thought": False, **p} for p in c["content"]["parts"]]}}
        )
    ),
}


def decode_reply(body, size=None):
    reply, deltas = WIRE.decode(body, headers={"content-type": "application/octet-stream"}, size=size)
    words = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    thoughts = "".join(delta.reasoning for delta in deltas if isinstance(delta, ReasoningDelta))
    calls = [(call.name, json.loads(call.arguments)) for call in deltas if isinstance(call, ToolCallDelta)]
    # How the arguments are spelled is the server's own affair.
    spelled = [getattr(part, "arguments", None) and json.loads(part.arguments) for part in reply.parts]
    natives = [(type(part), part.native) for part in reply.parts]
    return (
        reply.text,
        reply.stop,
        reply.usage,
        reply.id,
        reply.origin,
        natives,
        spelled,
        words,
        thoughts,
        calls,
    )


def test_the_clean_stream_itself():
    text, stop, used, *_, words, thoughts, calls = decode_reply(events(CLEAN))
    assert text == words == "I am looking — 🌡️"
    assert thoughts == "Let me see.\n\n"
    assert calls == [("look", {"city": "Tōkyō"})]
    assert (stop, used) == (Stop.TOOLS, Usage(input=11, output=7, reasoning=2))


@pytest.mark.parametrize("quirk", QUIRKS)
def test_the_same_reply_with_an_accent(quirk):
    for size in (None, 1, 17):
        assert decode_reply(QUIRKS[quirk], size) == decode_reply(events(CLEAN)), size
