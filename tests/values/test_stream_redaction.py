"""Keys are redacted in a stream however they are split, without delaying other text."""

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import Agent, TextDelta, tool
from bridle.run.context.shown_deltas import StreamRedactor
from bridle.run.model_connection import connect_model, find_model_by_name
from bridle.values.message import ToolCall
from bridle.values.redaction import Redactor
from bridle.values.result import CallReady, ReasoningDelta, ToolCallDelta

KEY = "sk-ant-api03-Zz9Zz9Zz9Zz9/+x"
SHORT = "k3y"
ESCAPED = json.dumps("/" + KEY).replace("/", "\\/")[3:-1]
PERCENT = "".join(f"%{ord(letter):02X}" for letter in KEY)
UNICODE = "".join(f"\\u{ord(letter):04x}" for letter in KEY)
KINDS = {
    "text": (lambda words: TextDelta(text=words), lambda delta: delta.text),
    "reasoning": (lambda words: ReasoningDelta(reasoning=words), lambda delta: delta.reasoning),
    "arguments": (
        lambda words: ToolCallDelta(index=1, name="pay", arguments=words),
        lambda delta: delta.arguments,
    ),
}


def shown_pieces(pieces, secrets=(KEY, SHORT), kind="text", together=1):
    """The pieces as they are shown if so many of them arrive `together`."""
    make, words = KINDS[kind]
    stream, seen, deltas = StreamRedactor(Redactor(secrets, "[key]")), [], [make(piece) for piece in pieces]
    for start in range(0, len(deltas), together):
        seen += stream.take(deltas[start : start + together])  # type: ignore[arg-type]
    return [words(delta) for delta in [*seen, *stream.flush()]]


def cut(text, size):
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spelled", [KEY, ESCAPED, PERCENT, UNICODE], ids=["plain", "json", "%", "unicode"])
def test_a_key_split_over_deltas_is_not_shown(spelled, kind, size):
    text = f"your key is {spelled}, sk-an"
    for together in (1, 2, 50):
        shown = shown_pieces(cut(text, size), kind=kind, together=together)
        assert "".join(shown) == "your key is [key], sk-an"


@given(
    st.lists(
        st.sampled_from(
            [KEY, KEY[:9], KEY[5:], SHORT, "s", "sk", " ", "k3", "\\", "\\u00", "%", "%7", "é", "x"]
        ),
        max_size=24,
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
    st.sampled_from([(KEY,), (SHORT,), (KEY, SHORT), ("abcabcab", KEY), (KEY, KEY + "more"), ()]),
    st.integers(1, 40),
)
def test_what_is_shown_is_what_is_kept(words, sizes, secrets, together):
    text, pieces, at = "".join(words), [], 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    shown = shown_pieces(pieces, secrets, together=together)
    assert "".join(shown) == Redactor(secrets, "[key]").redact_text(text)


@pytest.mark.parametrize("size", range(1, 12))
def test_a_key_that_overlaps_itself_is_not_shown(size):
    assert "".join(shown_pieces(cut("-abcabcabcab-", size), ["abcabcab"])) == "-[key]cab-"


@pytest.mark.parametrize(
    "pieces",
    [["aaa", "ab", "aaaaab", "aaa"], ["aaaaabaa", "aaa", "ab", "aaaaab", "aaa"], ["ab", "aaaaab", "aa"]],
)
def test_a_key_that_begins_in_what_was_shown_is_not_shown(pieces):
    secret = "aaaaabaa"
    assert "".join(shown_pieces(pieces, [secret])) == Redactor([secret], "[key]").redact_text("".join(pieces))


def test_nothing_waits_but_what_may_be_a_key():
    assert shown_pieces(["one ", "two", " three ", "and"]) == ["one ", "two", " three ", "and"]
    assert shown_pieces(["a s", "o ", "b"]) == ["a ", "so ", "b"]
    assert shown_pieces(["a s", "o ", "b"], together=3) == ["a s", "o ", "b"]
    assert shown_pieces(["a s", "k-ant", KEY], secrets=()) == ["a s", "k-ant", KEY]


def test_without_a_key_a_delta_is_the_very_same_object():
    delta = TextDelta(text="s")
    assert StreamRedactor(Redactor((), "[key]")).take([delta])[0] is delta


def test_order_is_kept_between_parts_of_a_reply():
    stream = StreamRedactor(Redactor((KEY,), "[key]"))
    call = ToolCall(id="c", name="pay", arguments=json.dumps({"with": KEY}))
    seen = stream.take([
        TextDelta(text="yes"),
        ToolCallDelta(index=1, name="pay", arguments=""),
        ToolCallDelta(index=1, name="pay", arguments='{"with": "sk'),
        ToolCallDelta(index=2, name="pay", arguments="-ant"),
        CallReady(index=0, call=call),
    ])  # fmt: skip
    assert [getattr(each, "text", "") or getattr(each, "arguments", "") for each in seen[:-1]] == [
        "ye", "s", "", '{"with": "', "sk", "-ant",
    ]  # fmt: skip
    assert seen[-1].call.arguments == '{"with": "[key]"}'


WIRES = ("anthropic/claude-sonnet-5-5", "openai/gpt-6.1-sol", "openai-chat/gpt-6.1-sol")


@pytest.mark.parametrize("key", [KEY, SHORT])
@pytest.mark.parametrize("wire", WIRES)
def test_no_viewer_of_a_run_sees_the_key(wire, key):
    """The simulated model repeats the key, in words and in a call, a few letters at a time."""
    seen = []

    @tool
    def look(word: str) -> str:
        """Look."""
        return "seen"

    class Viewer:
        def on_event(self, session, event):
            seen.append(event)

    line = replace(
        connect_model(find_model_by_name(f"sim:{wire}")), headers=(("authorization", f"Bearer {key}"),)
    )
    agent = Agent(line, tools=[look], watchers=[Viewer()])

    async def run():
        prompt = f'!say Your key is {key}.\n!call look {{"word": "{key}"}}\n!then\n!say done'
        return "".join([event.text async for event in agent.stream(prompt)])

    words = asyncio.run(run())
    assert "Your key is [key]." in words
    deltas = [event for event in seen if isinstance(event, TextDelta | ToolCallDelta | CallReady)]
    assert len(deltas) > 2
    said = "".join(delta.text for delta in deltas)
    called = "".join(delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta))
    assert "[key]" in said
    assert "[key]" in called
    assert key not in said + called


def test_a_short_key_is_found_after_an_empty_piece_of_another_call():
    """The character before it is not that of the call before."""
    stream, seen = StreamRedactor(Redactor([SHORT], "[key]")), []
    opened = [
        ToolCallDelta(index=0, name="pay", arguments="x"),
        ToolCallDelta(index=1, name="pay", arguments=""),
    ]
    for deltas in (opened, [ToolCallDelta(index=1, name="pay", arguments=SHORT)], []):
        seen += stream.take(deltas)  # type: ignore[arg-type]
    seen += stream.take([ToolCallDelta(index=1, name="pay", arguments=" on")]) + stream.flush()
    assert "".join(delta.arguments for delta in seen if delta.index == 1) == "[key] on"


@pytest.mark.parametrize("together", [1, 3])
def test_a_key_that_is_the_name_of_a_tool_is_not_shown(together):
    stream, seen = StreamRedactor(Redactor([KEY], "[key]")), []
    deltas = [ToolCallDelta(index=0, name=KEY, arguments=piece) for piece in ('{"a":', "1", "}")]
    for start in range(0, len(deltas), together):
        seen += stream.take(deltas[start : start + together])  # type: ignore[arg-type]
    assert {delta.name for delta in [*seen, *stream.flush()]} == {"[key]"}
