"""Requests to Anthropic, for tests."""

from msgspec.structs import replace

from bridle.values.message import Media, Reasoning
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Breakpoint, Extra, ToolChoice
from tests.providers.kit.encode_kit import FOREIGN, EncodeCases, Talk, answer, ask_everything

ENDPOINT = Endpoint(name="anthropic", family="anthropic", reasoning="signed")
ABLE = Abilities(output_tokens=64_000, automatic_cache=True, cache_marks=4)
TALK = Talk(Model(id="claude-x", endpoint=ENDPOINT, abilities=ABLE), "messages")
OWN = TALK.own
SIGNED = Reasoning(text="hm", signature="sig")
REDACTED = Reasoning(signature="blob", redacted=True)
UNSIGNED = Reasoning(text="aha")
ALL = (SIGNED, REDACTED, UNSIGNED)
AS_SENT = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "blob"},
    {"type": "thinking", "thinking": "aha", "signature": ""},
]
SO = {"type": "text", "text": "so"}


def list_blocks(body, kind):
    return [block for turn in body["messages"] for block in turn["content"] if block["type"] == kind]


ENCODE = EncodeCases(
    talk=TALK,
    full=ask_everything(
        TALK,
        breakpoints=(Breakpoint(position="end", ttl="1h"),),
        extras=(Extra(name="metadata", json='{"user_id": "u"}'),),
    ),
    head={
        "model": "claude-x",
        "tools": None,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": None,
    },
    tail={
        "max_tokens": 90,
        "stop_sequences": ["END"],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "cache_control": {"type": "ephemeral", "ttl": "1h"},
        "metadata": {"user_id": "u"},
        "stream": True,
    },
    headers={"anthropic-version": "2023-06-01"},
    native='{"type": "web_search_20250305",  "name": "web_search"}',
    choices=[
        (ToolChoice(), None),
        (ToolChoice(mode="any"), {"type": "any"}),
        (ToolChoice(mode="none"), {"type": "none"}),
        (ToolChoice(parallel=False), {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice(mode="tool", name="look"), {"type": "tool", "name": "look"}),
    ],
    path="/v1/messages",
    other_paths=["/v1/messages/count_tokens"],
    no_requests=[
        b'{"model":"m"}',
        b'{"messages":[]}',
        b'{"model":"m","messages":[{"role":"tool"}]}',
        b'{"model":"m","messages":[{"role":"user","content":[1]}]}',
        b'{"model":"m","messages":[],"tools":[1]}',
        b'{"model":"m","messages":[],"system":[{"type":"image"}]}',
    ],
    read_choice=lambda body: body.get("tool_choice"),
    extras=[
        Extra(name="messages", json="[]"),
        Extra(name="max_tokens", json="1"),
        Extra(name="stream", json="false"),
    ],
    read_calls=lambda body: [
        (block["id"], block["name"], block["input"]) for block in list_blocks(body, "tool_use")
    ],
    read_results=lambda body: [
        (block["tool_use_id"], block.get("content", "")) for block in list_blocks(body, "tool_result")
    ],
    ids=["call_1", "c2", "c3", "c4", "x" * 65, "c6", "c7"],
    legal_name="[a-zA-Z0-9_-]{1,128}",
    reasoning=[
        ("signed", OWN, ALL, [*AS_SENT[:2], SO]),
        ("may_echo", OWN, ALL, [*AS_SENT, SO]),
        ("may_echo", replace(OWN, endpoint="proxy"), ALL, [SO]),
        ("must_echo", replace(OWN, endpoint="proxy"), ALL, [AS_SENT[2], SO]),
        ("strip", OWN, ALL, [SO]),
        ("must_echo", FOREIGN, ALL, [SO]),
    ],
    read_turn=lambda turns: turns[1]["content"],
    media=[
        (
            Media(kind="image", media_type="image/png", data="aGk="),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        ),
        (
            Media(kind="image", url="https://example.com/a.png"),
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        ),
        (
            Media(kind="document", file_id="file_1", name="a"),
            {"type": "document", "source": {"type": "file", "file_id": "file_1"}, "title": "a"},
        ),
        (
            Media(kind="document", media_type="application/pdf", data="aGk="),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
            },
        ),
        (
            Media(kind="document", media_type="text/markdown", data="aGk="),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        ),
        (Media(kind="audio", media_type="audio/mp3", data="aGk=", name="song"), "song"),
    ],
    read_media=lambda turns: turns[0]["content"],
    outcomes=[
        (answer("c1"), ""),
        (answer("c1", "one"), "one"),
        (answer("c1", outcome="denied"), "The call ended without a word: denied."),
    ],
)
