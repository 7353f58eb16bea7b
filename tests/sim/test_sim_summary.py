"""Provider-made summaries in the simulator: bound to the conversation that they replace."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from bridle.providers.catalogue import find_model
from bridle.sim.responder.conversation_summary import LEAD, summarize_conversation
from bridle.sim.simulator import Simulator
from bridle.values.errors import Failure
from bridle.values.message import Media, Message, Opaque, Reasoning, Reply, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Origin
from bridle.values.request import Extra, Request, ToolSpec
from tests.sim.sim_families import decode_answer, make_outgoing, send_request

BOUND = "sim:anthropic/claude-sonnet-5-5"
FREE = "sim:anthropic/claude-sonnet-4-6"
OLD = "sim:anthropic/claude-haiku-4-5"
RESPONSES = "sim:openai_responses/gpt-6.1-sol"
MODELS = (BOUND, FREE, RESPONSES)
LONG = "a rather long tale of ships and shoes " * 60
SHORTER = 10
"""How many times shorter a summary of long tales has to be at least."""


def thinking_aloud(request: Request) -> Reply:
    """Thinks, and says how often it has spoken in what it was shown."""
    spoken = sum(message.role == "assistant" for message in request.messages)
    origin = Origin(family=request.model.endpoint.family, endpoint="sim", model=request.model.id)
    parts = (Reasoning(text=f"Thought {spoken}."), Text(text=f"Answer {spoken}: {LONG}"))
    return Reply(parts=parts, stop=Stop.DONE, origin=origin)


class Talk:
    """A conversation with one simulated model, as whoever keeps it would hold it."""

    def __init__(self, name: str) -> None:
        self.simulator = Simulator(thinking_aloud)
        self.model = find_model(name, environ={})
        self.messages: list[Message] = []
        self.fields: dict[str, Any] = {}

    def request(self, messages: Sequence[Message], **fields: Any) -> Request:
        wanted = {"max_tokens": 2_000, "stream": False, **self.fields, **fields}
        return Request(model=self.model, messages=tuple(messages), **wanted)

    def ask(self, messages: Sequence[Message], **fields: Any) -> Reply | Failure:
        request = self.request(messages, **fields)
        return decode_answer(request, send_request(self.simulator, request))

    def say(self, words: str, **fields: Any) -> Reply:
        self.messages.append(Message(role="user", parts=(Text(text=words),)))
        reply = self.ask(self.messages, **fields)
        assert isinstance(reply, Reply), reply
        said = Message(role="assistant", parts=reply.parts, origin=reply.origin, stop=reply.stop)
        self.messages.append(said)
        return reply

    def shorten(self, count: int, **fields: Any) -> Reply:
        """The first so many messages become what the provider makes of them."""
        reply = self.ask(self.messages[:count], asks_native_summary=True, **fields)
        assert isinstance(reply, Reply), reply
        short = Message(role="user", parts=reply.parts, origin=reply.origin)
        self.messages[:count] = [short]
        return reply


@pytest.fixture
def long_talk(request) -> Talk:
    talk = Talk(request.param)
    for number in range(4):
        talk.say(f"Tell me tale {number}.", stream=bool(number % 2))
    return talk


def test_it_tells_who_said_what_and_is_always_the_same():
    called = ToolCall(id="c1", name="look", arguments='{"where":"left"}')
    picture = Media(kind="image", media_type="image/png", data="AAAA")
    messages = (
        Message(
            role="user",
            parts=(Opaque(kind="compaction", native="{}", text=f"{LEAD}\nuser: Hi\nbrought: a key"),),
        ),
        Message(role="user", parts=(Text(text=LONG), picture)),
        Message(role="assistant", parts=(Reasoning(text="hush"), called)),
        Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="a  door"),)),)),
    )
    request = Request(model=find_model(BOUND, environ={}), messages=messages)
    lines = summarize_conversation(request).splitlines()
    assert lines[:3] == [LEAD, "user: Hi", "earlier: brought: a key"]
    assert lines[3].startswith("user: a rather long tale")
    assert lines[4:] == [
        "user: (a file or picture)",
        'called look {"where":"left"}',
        "brought: a door",
    ]
    assert "hush" not in summarize_conversation(request)
    assert summarize_conversation(request) == summarize_conversation(request)
    many = summarize_conversation(replace(request, messages=(*messages[:2], *messages[2:] * 30)))
    assert len(many.splitlines()) < 20
    assert "more)" in many
    assert "\nuser: Hi\n" in summarize_conversation(
        replace(request, messages=messages[2:] * 30 + messages[:1] + messages[2:] * 30)
    )


@pytest.mark.parametrize("long_talk", MODELS, indirect=True)
@pytest.mark.parametrize("stream", [False, True])
def test_the_summary_takes_the_place_of_what_it_was_made_of(long_talk, stream):
    before = long_talk.say("And?").usage.prompt
    made = long_talk.shorten(8, stream=stream)
    assert made.stop_detail == "compaction"
    assert [part.kind for part in made.parts][-1] == "compaction"
    assert made.usage.prompt > before * 0.9, "making it is paid for"
    assert 0 < made.usage.output < before / SHORTER
    after = long_talk.say("And now?")
    assert after.usage.prompt < before / 2, "the last answer was kept"
    assert long_talk.simulator.refusals == []


@pytest.mark.parametrize("long_talk", MODELS, indirect=True)
def test_it_can_be_done_again_and_again(long_talk):
    for _ in range(3):
        long_talk.say("More.")
        long_talk.shorten(len(long_talk.messages) - 2)
        assert sum(isinstance(part, Opaque) for message in long_talk.messages for part in message.parts) >= 1
    long_talk.say("Still there?")
    assert long_talk.simulator.refusals == []


@pytest.mark.parametrize("long_talk", [BOUND], indirect=True)
def test_thoughts_behind_the_summary_are_taken(long_talk):
    long_talk.shorten(4)
    sent = json.loads(make_outgoing(long_talk.request(long_talk.messages)).body)["messages"]
    kinds = [block["type"] for turn in sent for block in turn["content"]]
    assert kinds == ["compaction", "text", "thinking", "text", "text", "thinking", "text", "text"]
    long_talk.say("Which of them?")
    long_talk.shorten(3)
    long_talk.say("Twice shortened, and still thinking?")
    assert long_talk.simulator.refusals == []
    kept = [part for message in long_talk.messages for part in message.parts if isinstance(part, Reasoning)]
    assert len(kept) == 3


@pytest.mark.refusals
@pytest.mark.parametrize("long_talk", [BOUND], indirect=True)
@pytest.mark.parametrize(
    ("count", "spoil"),
    [
        (4, lambda talk: talk.messages.pop(1)),
        (4, lambda talk: talk.messages.insert(1, Message(role="user", parts=(Text(text="By the way."),)))),
        (4, lambda talk: talk.fields.update(system=(Text(text="Be brief."),))),
        (4, lambda talk: talk.fields.update(tools=(ToolSpec(name="look"),))),
        (3, lambda talk: talk.messages.insert(1, talk.messages[1])),
    ],
    ids=["a gap", "a word between", "another system", "another tool", "said twice"],
)
def test_thoughts_that_do_not_follow_it_are_refused(long_talk, count, spoil):
    long_talk.shorten(count)
    spoil(long_talk)
    refused = long_talk.ask([*long_talk.messages, Message(role="user", parts=(Text(text="So?"),))])
    assert isinstance(refused, Failure)
    assert "The block is bound to a different conversation" in refused.message
    assert refused.kind == "reasoning_refused"


@pytest.mark.refusals
def test_thoughts_behind_a_summary_of_a_model_that_checks_nothing_are_refused():
    talk = Talk(BOUND)
    for number in range(3):
        talk.say(str(number))
    careless = talk.request(talk.messages[:2], asks_native_summary=True)
    careless = replace(careless, model=find_model(FREE, environ={}))
    made = decode_answer(careless, send_request(talk.simulator, careless))
    short = Message(role="user", parts=made.parts, origin=made.origin)
    refused = talk.ask([short, *talk.messages[2:], Message(role="user", parts=(Text(text="So?"),))])
    assert isinstance(refused, Failure)
    assert refused.kind == "reasoning_refused"


@pytest.mark.refusals
@pytest.mark.parametrize("long_talk", [BOUND], indirect=True)
def test_the_summary_itself_is_bound_and_stands_first(long_talk):
    long_talk.shorten(8)
    (block,) = long_talk.messages[0].parts
    bye = Message(role="user", parts=(Text(text="Bye"),))

    def told_of(*messages):
        refused = long_talk.ask(messages)
        return refused.code if isinstance(refused, Failure) else refused.text

    def saying(**changes):
        native = json.dumps({**json.loads(block.native), **changes})
        part = replace(block, native=native)
        return Message(role="user", parts=(part,), origin=long_talk.messages[0].origin)

    assert told_of(saying(), bye).startswith("Answer 0")
    assert told_of(saying(content="They fought."), bye) == "compaction_content_mismatch"
    assert told_of(saying(signature="c2ln"), bye) == "compaction_signature_invalid"
    assert told_of(saying(), saying(), bye) == "compaction_block_ambiguous"
    assert told_of(saying(citations=None), bye) == "invalid_request_error"
    first = replace(long_talk.messages[0], parts=(Text(text="Hello"), block))
    assert told_of(first, bye) == "compaction_block_misplaced" or told_of(first, bye).startswith("invalid")


@pytest.mark.refusals
def test_nothing_to_say_and_too_little_room():
    talk = Talk(BOUND)
    nothing = talk.ask((), asks_native_summary=True)
    assert isinstance(nothing, Failure)
    assert nothing.code == "compaction_nothing_to_summarize"
    talk.say(LONG)
    cut = talk.ask(talk.messages, asks_native_summary=True, max_tokens=5)
    assert isinstance(cut, Reply)
    assert (cut.parts, cut.stop, cut.stop_detail) == ((), Stop.LENGTH, "max_tokens")
    assert cut.usage.prompt > 100


@pytest.mark.refusals
def test_models_that_cannot_say_so():
    talk = Talk(OLD)
    talk.say("Hello")
    refused = talk.ask(talk.messages, asks_native_summary=True)
    assert isinstance(refused, Failure)
    assert refused.message == "compaction: not supported for this model"


def test_what_people_said_stays_readable_where_the_summary_is_not():
    talk = Talk(RESPONSES)
    for words in ("Hello", "Bye"):
        talk.say(words)
    made = talk.shorten(4)
    assert [(part.kind, part.text) for part in made.parts] == [
        ("message", "Hello"),
        ("message", "Bye"),
        ("compaction", ""),
    ]
    assert make_outgoing(talk.request(talk.messages, asks_native_summary=True)).url.endswith(
        "/responses/compact"
    )


def test_the_prompt_counts_what_the_request_leans_on():
    talk = Talk(RESPONSES)
    talk.fields["extras"] = (Extra(name="store", json="true"),)
    first = talk.say(LONG)
    leaning = Extra(name="previous_response_id", json=json.dumps(first.id))
    made = talk.ask((), asks_native_summary=True, extras=(leaning,))
    assert isinstance(made, Reply)
    assert made.usage.prompt > 300
    assert LONG in made.parts[0].text


# --- of its own accord --------------------------------------------------------------------------

TALE = "a rather long tale of ships and shoes " * 7_000


def edits(**more: Any) -> Extra:
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}, **more}
    return Extra(name="context_management", json=json.dumps({"edits": [edit]}))


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_gets_long_is_shortened_before_it_is_answered(stream):
    talk = Talk(BOUND)
    talk.fields = {"extras": (edits(),), "stream": stream}
    short = talk.say("Hello")
    assert [type(part) for part in short.parts] == [Reasoning, Text]
    asked = talk.request([*talk.messages, Message(role="user", parts=(Text(text=TALE),))])
    body = send_request(talk.simulator, asked).body
    first, second = iterations(body)
    assert (first["type"], second["type"]) == ("compaction", "message")
    assert (
        first["input_tokens"] + first["cache_creation_input_tokens"] + first["cache_read_input_tokens"]
        > 40_000
    )
    assert second["input_tokens"] < 500
    assert (b"compaction_delta" in body) is stream
    assert b'"applied_edits":[]' in body
    long = talk.say(TALE)
    assert [type(part) for part in long.parts] == [Opaque, Reasoning, Text]
    assert long.usage.input == first["input_tokens"] + second["input_tokens"]
    assert long.usage.output == first["output_tokens"] + second["output_tokens"]
    after = talk.say("And now?")
    assert after.usage.prompt < 2_000, "nothing is read before the summary"
    assert [type(part) for part in after.parts] == [Reasoning, Text]
    assert talk.simulator.refusals == []


@pytest.mark.refusals
def test_what_came_before_such_a_summary_may_be_left_out_and_thoughts_behind_it_stay():
    talk = Talk(BOUND)
    talk.fields = {"extras": (edits(),)}
    talk.say("Hello")
    talk.say(TALE)
    del talk.messages[:3]
    talk.say("And now?")
    assert talk.simulator.refusals == []
    first = talk.messages[0]
    (block,) = (part for part in first.parts if isinstance(part, Opaque))
    other = replace(block, native=json.dumps({"type": "compaction", "content": "Other words."}))
    talk.messages[0] = replace(first, parts=(other, *first.parts[1:]))
    refused = talk.ask([*talk.messages, Message(role="user", parts=(Text(text="So?"),))])
    assert isinstance(refused, Failure)
    assert refused.kind == "reasoning_refused"


def test_it_may_pause_behind_its_summary_and_goes_on_when_it_is_sent_back():
    talk = Talk(BOUND)
    talk.fields = {"extras": (edits(pause_after_compaction=True),)}
    paused = talk.say(TALE)
    assert [type(part) for part in paused.parts] == [Opaque]
    assert (paused.stop, paused.stop_detail) == (Stop.PAUSED, "compaction")
    assert paused.usage.prompt > 40_000
    answer = talk.ask(talk.messages)
    assert isinstance(answer, Reply)
    assert answer.text.startswith("Answer")
    assert talk.simulator.refusals == []


def iterations(body: bytes) -> list[dict[str, Any]]:
    lines = [line.removeprefix(b"data: ") for line in body.splitlines() if b'"iterations"' in line]
    return json.loads(lines[-1])["usage"]["iterations"]


@pytest.mark.parametrize("stream", [False, True])
def test_items_that_stand_for_a_conversation_come_before_the_answer_or_alone(stream):
    talk = Talk(RESPONSES)
    limit = Extra(name="context_management", json='[{"type":"compaction","compact_threshold":5000}]')
    talk.fields = {"extras": (limit,), "stream": stream}
    assert [type(part) for part in talk.say("Hello").parts] == [Reasoning, Text]
    body = send_request(talk.simulator, talk.request([Message(role="user", parts=(Text(text=TALE),))])).body
    assert (b"event: response.compaction.compacting" in body) is stream
    long = talk.say(TALE)
    assert [getattr(part, "kind", "") for part in long.parts] == ["compaction", "", ""]
    talk.say("And now?")
    trigger = Message(
        role="system",
        parts=(Opaque(kind="compaction_trigger", native='{"type":"compaction_trigger"}'),),
        origin=long.origin,
    )
    alone = talk.ask([*talk.messages, trigger])
    assert isinstance(alone, Reply)
    assert [part.kind for part in alone.parts] == ["compaction"]
    assert talk.simulator.refusals == []


@pytest.mark.parametrize("long_talk", [BOUND, RESPONSES], indirect=True)
def test_the_model_reads_what_was_made_for_it(long_talk):
    heard: list[str] = []

    def listening(request: Request) -> Reply:
        parts = [part for message in request.messages for part in message.parts]
        heard.extend(part.text for part in parts if isinstance(part, Opaque) and part.kind == "compaction")
        return thinking_aloud(request)

    long_talk.shorten(8)
    long_talk.simulator.responder = listening
    long_talk.say("What was it about?")
    (words,) = heard
    assert words.startswith(LEAD)
    assert "user: Tell me tale 3." in words
