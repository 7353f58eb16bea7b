"""The typed parse of what a usual stream was assembled to gives what the tolerant decoder gives."""

import json
from random import Random

import pytest

from bridle.providers.openai_chat.decode import ChatDecoder
from bridle.providers.openai_chat.dialect import ChatDialect
from bridle.values.errors import ProviderError
from bridle.values.message import Reply
from bridle.values.model import Endpoint, Model
from tests.providers.kit.json_mutations import mutate_json

STREAMS = 3_000
MODEL = Model(id="m", endpoint=Endpoint(name="e", family="openai_chat", base_url="https://e.example"))
PIECES = (
    ({"role": "assistant", "content": "", "refusal": None}, None),
    ({"reasoning_content": "Hm."}, None),
    ({"content": "Ä first"}, None),
    ({"content": " look."}, None),
    ({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}]}, None),
    ({"tool_calls": [{"index": 0, "function": {"arguments": '{"a":'}}]}, None),
    ({"tool_calls": [{"index": 0, "function": {"arguments": " 1}"}}]}, None),
    ({"tool_calls": [{"index": 1, "id": "call_2", "type": "function", "function": {"name": "rest", "arguments": "{}"}}]}, None),
    ({}, "tool_calls"),
)  # fmt: skip
USAGE = {
    "prompt_tokens": 75,
    "completion_tokens": 12,
    "total_tokens": 87,
    "prompt_tokens_details": {"cached_tokens": 30, "audio_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 4},
}
COMMON = {"id": "chatcmpl-1", "model": "gpt-x", "service_tier": "flex"}
CHUNKS = [
    *({**COMMON, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}], "usage": None}
      for delta, reason in PIECES),
    {**COMMON, "choices": [], "usage": USAGE},
]  # fmt: skip
VALUES = (None, "", "x", "stop", "length", "error", "null", "{}", 0, 1, 1.0, -1, True, [], {}, ["x"], {"a": 1}, "\ud800", "\ud83d",
          "\ude00", "<tool_call>", {"status_code": 3}, [{"index": 1, "function": {"name": "more", "arguments": "{"}}])  # fmt: skip
MEMBERS = ("error", "id", "model", "citations", "images", "refusal", "reasoning", "content", "index", "custom", "type", "audio",
           "executed_tools", "base_resp", "x_groq", "usage", "finish_reason", "content_filter_results", "function_call",
           "service_tier", "message", "name", "arguments", "thinking_blocks", "reasoning_details", "tool_calls")  # fmt: skip


class TolerantDecoder(ChatDecoder):
    def _build_reply(self):
        return self._assemble_reply(self._partial.build_message())


def decode(kind, events, dialect):
    """Everything that a caller of the decoder sees: deltas, partial results, and the reply or the failure."""
    decoder = kind(MODEL, dialect, 200, {}, tools=True)
    seen = []
    try:
        for event in events:
            seen += decoder.feed(event)
            seen += (decoder.partial_text, decoder.partial_usage)
        return seen, decoder.close()
    except ProviderError as error:
        return seen, error.failure


@pytest.mark.slow
def test_a_stream_gives_the_same_on_both_ways():
    random, replies = Random(7), 0
    for number in range(STREAMS):
        chunks = mutate_json(CHUNKS, random, VALUES, MEMBERS) if number else CHUNKS
        ascii_only, named = random.random() < 0.5, random.random() < 0.1
        texts = [
            json.dumps(each, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass") for each in chunks
        ]
        events = [(b"event: error\n" if named and random.random() < 0.2 else b"") + b"data: " + text + b"\n\n"
                  for text in (*texts, b"[DONE]")]  # fmt: skip
        dialect = ChatDialect(think_tags=random.random() < 0.1)
        found = decode(ChatDecoder, events, dialect)
        assert found == decode(TolerantDecoder, events, dialect), events
        replies += isinstance(found[1], Reply)
    assert replies > STREAMS / 3


def test_the_example_is_read_by_the_typed_parse(monkeypatch):
    monkeypatch.setattr(ChatDecoder, "_assemble_reply", None)
    _, reply = decode(
        ChatDecoder, [b"data: " + json.dumps(each).encode() + b"\n\n" for each in CHUNKS], ChatDialect()
    )
    assert isinstance(reply, Reply)
    assert len(reply.parts) == 4
