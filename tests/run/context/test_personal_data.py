"""Personal data that a model splits over parts or replies, or writes as JSON escapes, is redacted all the same."""

import asyncio
import json
from dataclasses import dataclass

import msgspec
import pytest
from msgspec.structs import replace

from bridle import Agent, tool
from bridle.hooks import RedactPii, before_model
from bridle.hooks.json_filter import JsonTextFilter
from bridle.hooks.pii import PII
from bridle.hooks.text_filter import PatternFilter
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply, text_reply
from bridle.values.message import Stop, Text
from bridle.values.result import TextDelta, ToolCallDelta

TOOL_WIRE = "sim:gemini/gemini-2.5-pro"
NATIVE_WIRES = ["sim:openai/gpt-5.6", "sim:openai_chat/gpt-5.6", "sim:anthropic/claude-sonnet-5-5"]
LEAKS = ("ann@", "example.org", "4111")


@dataclass
class Contact:
    name: str
    mail: str


def stream(agent):
    async def collect():
        running = agent.stream("who?", session="s")
        deltas = [each async for each in running]
        return deltas, await running.result()

    return asyncio.run(collect())


def check_nothing_leaks(store, deltas, *, leaks=LEAKS):
    log = json.dumps([str(record.event) for record in asyncio.run(store.read("s"))])
    shown = "".join(each.text for each in deltas if isinstance(each, TextDelta))
    arguments = "".join(each.arguments for each in deltas if isinstance(each, ToolCallDelta))
    for leak in leaks:
        assert leak not in shown
        assert leak not in arguments
        assert leak not in log
    return shown


def make_parts(*texts, stop=Stop.DONE):
    reply = text_reply("x", stop=stop)
    return replace(reply, parts=tuple(Text(text=text) for text in texts))


def test_data_split_over_text_parts_is_redacted():
    store = MemoryStore()
    script = scripted(make_parts("write to ann", "@", "example.org, card 4111 1111", " 1111 1111."))
    deltas, result = stream(Agent(script, hooks=[RedactPii()], store=store))
    shown = check_nothing_leaks(store, deltas)
    assert result.output == shown == "write to [email], card [card number]."


def test_texts_without_data_keep_their_parts():
    store = MemoryStore()
    script = scripted(make_parts("one wor", "d and another"))
    _deltas, result = stream(Agent(script, hooks=[RedactPii()], store=store))
    assert result.output == "one word and another"
    assert [part.text for part in result.messages[-1].parts] == ["one wor", "d and another"]


def test_data_split_over_a_reply_and_its_continuation_is_redacted():
    store = MemoryStore()
    script = scripted(
        text_reply("write to ann@exam", stop=Stop.LENGTH),
        text_reply("ple.org, card 4111", stop=Stop.LENGTH),
        " end",
    )
    deltas, result = stream(Agent(script, hooks=[RedactPii()], store=store))
    check_nothing_leaks(store, deltas, leaks=("ann", "4111"))
    assert result.output == "write to ple.org, card  end"


@pytest.mark.parametrize("mail", ["ann@example.org", "ann\\u0040example.org", "\\u0061nn@example\\u002eorg"])
@pytest.mark.parametrize("model", NATIVE_WIRES)
def test_a_structured_answer_is_redacted_as_it_reads_after_decoding(model, mail):
    store = MemoryStore()
    answer = '{"name": "line\\nof \\"Ann\\"", "mail": "\\nMAIL"}'.replace("MAIL", mail)
    script = scripted(answer, model=model)
    agent = Agent(script, hooks=[RedactPii()], store=store, output=Contact)
    deltas, result = stream(agent)
    shown = check_nothing_leaks(store, deltas, leaks=("example.org", "example\\u002eorg", "u0040"))
    assert result.output == Contact('line\nof "Ann"', "\n[email]")
    assert json.loads(shown) == {"name": 'line\nof "Ann"', "mail": "\n[email]"}


def test_a_structured_answer_that_a_tool_asks_for_is_redacted():
    store = MemoryStore()
    probe = Agent(scripted("x", model=TOOL_WIRE), output=Contact)
    assert probe.settings.output.mode == "tool"
    answer = call_reply((probe.settings.output.name, {"name": "A", "mail": "ann@example.org"}))
    agent = Agent(scripted(answer, model=TOOL_WIRE), hooks=[RedactPii()], store=store, output=Contact)
    deltas, result = stream(agent)
    check_nothing_leaks(store, deltas)
    assert result.output == Contact("A", "[email]")


def test_the_arguments_of_other_calls_stay_as_they_are():
    sent = []

    @tool
    def mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    script = scripted(call_reply(("mail", {"to": "ann@example.org"})), "done")
    assert Agent(script, hooks=[RedactPii()], tools=[mail]).run_sync("?").output == "done"
    assert sent == ["ann@example.org"]


def test_data_split_over_the_parts_of_a_prompt_is_not_sent():
    sent = []

    @before_model(name="spy")
    def spy(run, request):
        sent.extend(part.text for message in request.messages for part in message.parts)

    agent = Agent(scripted("ok"), hooks=[RedactPii(), spy])
    result = agent.run_sync(["write to ann@", "example.org"])
    assert result.output == "ok"
    assert "".join(sent) == "write to [email]"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_do_not_matter(size):
    value = {
        "a\n": "ann@example.org",
        "b": ["\\", '"', "😀 +49 30 1234567", "\ud83d", 4],
        "ann@example.org": None,
    }
    for text in (json.dumps(value), msgspec.json.encode({"a": "ann@example.org"}).decode()):
        reading = JsonTextFilter(lambda: PatternFilter(tuple(PII.values())))
        pieces = [reading.feed(text[at : at + size]) for at in range(0, len(text), size)]
        found = "".join(pieces) + reading.finish()
        wanted = json.dumps(value) if text.startswith('{"a\\n') else text
        cleaned = json.loads(
            wanted.replace("ann@example.org", "[email]").replace("+49 30 1234567", "[phone number]")
        )
        assert json.loads(found) == cleaned


def test_a_continuation_begins_inside_the_string_that_was_cut_off():
    before = '{"name": "say \\"hi'
    reading = JsonTextFilter(lambda: PatternFilter(tuple(PII.values())), before)
    rest = reading.feed('\\" to \\u0061nn@example.org"}') + reading.finish()
    assert json.loads(before + rest) == {"name": 'say "hi" to [email]'}
