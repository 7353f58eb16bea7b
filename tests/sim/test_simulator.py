"""The simulator's state: scripts with faults, refusals, its log, shutdown."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from bridle import Agent
from bridle.ports.transport import ConnectionCut, OutgoingRequest, SilentPause
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.sim.responder.alternatives import ScriptedResponder
from bridle.sim.responder.script_file import parse_steps
from bridle.sim.simulator import Simulator
from bridle.testing import FakeClock
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Reply, Stop, ToolCall
from tests.sim.sim_families import FAMILIES, MODELS, decode_answer, make_outgoing, question, send_request

BOTH = pytest.mark.parametrize("stream", [True, False])
EVERY = pytest.mark.parametrize("family", FAMILIES)


@EVERY
@BOTH
def test_a_truncated_call_arrives_in_half_and_for_want_of_room(family, stream):
    request = question(family, '!say Look.\n!call look {"city": "Reykjavik"}\n!truncate', stream=stream)
    reply = decode_answer(request, send_request(Simulator(), request))
    assert isinstance(reply, Reply)
    assert reply.stop is Stop.LENGTH
    assert reply.text == "Look."
    (call,) = reply.calls
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(call.arguments)


@EVERY
@BOTH
def test_words_are_truncated_where_there_is_no_call(family, stream):
    request = question(family, "!say one two\n!truncate", stream=stream)
    reply = decode_answer(request, send_request(Simulator(), request))
    assert (reply.text, reply.stop) == ("one", Stop.LENGTH)


WORDS = {
    "anthropic": ("pause_turn", Stop.PAUSED),
    "bedrock_converse": ("guardrail_intervened", Stop.FILTERED),
    "gemini": ("RECITATION", Stop.FILTERED),
    "openai_chat": ("content_filter", Stop.FILTERED),
    "openai_responses": ("content_filter", Stop.FILTERED),
}


@EVERY
@BOTH
def test_a_reply_ends_with_the_providers_own_word(family, stream):
    word, stop = WORDS[family]
    request = question(family, f"!say x\n!stop {word}", stream=stream)
    timeline = send_request(Simulator(), request)
    assert word.encode() in timeline.body
    assert decode_answer(request, timeline).stop is stop


@EVERY
@pytest.mark.parametrize("word", ["length", "refused", "word_of_the_future"])
def test_a_reply_ends_with_a_known_or_an_unknown_stop_reason(family, word):
    request = question(family, f"!say x\n!stop {word}")
    reply = decode_answer(request, send_request(Simulator(), request))
    assert reply.stop is {"length": Stop.LENGTH, "refused": Stop.REFUSED}.get(word, Stop.OTHER)
    assert "future" not in word or word in reply.stop_detail


@EVERY
@BOTH
def test_errors_and_cuts_are_used_up_one_an_attempt_and_then_start_over(family, stream):
    simulator = Simulator()
    request = question(family, "!error 429 7\n!error 503\n!cut 20\n!say at last", stream=stream)
    for _ in range(2):
        limited, down, cut, reply = (
            decode_answer(request, send_request(simulator, request)) for _ in range(4)
        )
        assert (limited.status, limited.kind, limited.retry_after_seconds) == (429, "rate_limited", 7)
        assert (down.status, down.kind, down.retry_after_seconds) == (503, "overloaded", None)
        assert cut.kind == "cut"
        assert reply.text == "at last"
    assert simulator.refusals == []


def test_a_failure_without_retry_is_given_every_time():
    simulator, request = Simulator(), question("anthropic", "!error 400\n!say never")
    assert [decode_answer(request, send_request(simulator, request)).status for _ in range(3)] == [
        400,
        400,
        400,
    ]


@EVERY
def test_a_cut_is_exact_to_the_byte(family):
    request = question(family, "!cut 33\n!say some words")
    timeline = send_request(Simulator(), request)
    whole = send_request(Simulator(), question(family, "!say some words")).body
    assert len(timeline.body) == 33 < len(whole)
    assert timeline.steps[-1] == ConnectionCut()


def test_silence_stands_where_the_script_has_it():
    simulator = Simulator()
    first = send_request(simulator, question("anthropic", "!stall 5\n!say one two three"))
    middle = send_request(simulator, question("anthropic", "!say one two three\n!stall 5"))
    assert (first.delay_seconds, any(isinstance(beat, SilentPause) for beat in first.steps)) == (5.0, False)
    assert (middle.delay_seconds, middle.steps.count(SilentPause(seconds=5.0))) == (0.0, 1)
    assert isinstance(middle.steps[0], bytes)


def test_a_pace_lies_between_all_pieces():
    timeline = send_request(Simulator(), question("anthropic", "!pace 20\n!say one two three"))
    pieces = [beat for beat in timeline.steps if isinstance(beat, bytes)]
    assert [beat for beat in timeline.steps if isinstance(beat, SilentPause)] == [
        SilentPause(seconds=0.02)
    ] * (len(pieces) - 1)


def run(prompt, clock=None, **settings):
    """An agent against a simulator of its own; its clock moves by itself."""
    simulator = Simulator(**settings)
    clock = clock or FakeClock()
    line = ModelConnection(
        model=MODELS["anthropic"],
        codec=load_codec("anthropic"),
        transport=InProcessTransport(simulator.answer, clock=clock),
    )
    seen = []

    def look(city: str = "") -> str:
        """Look at a city."""
        seen.append(city)
        return "fine"

    result = asyncio.run(Agent(line, tools=[look], clock=clock, random_source=lambda: 0.5).run(prompt))
    return result, seen, clock, simulator


def test_a_run_outlives_its_troubles_on_its_own_clock():
    result, _, clock, simulator = run("!error 429 30\n!error 529\n!say done")
    assert (result.stop, result.text) == ("done", "done")
    assert clock.slept == [30.0, 0.5]
    assert simulator.refusals == []


def test_a_provider_that_hangs_is_given_up_and_asked_again():
    result, _, clock, simulator = run("!say hi", faults=["stall-at-connect"])
    assert (result.stop, result.text) == ("done", "hi")
    assert 600.0 in clock.slept
    assert simulator.injected_faults == ["stall-at-connect"]


def test_a_reply_can_be_repeated():
    result, seen, _, _ = run('!call look {"city": "Oslo"}\n!repeat 2\n!then\n!call look {"city": "Rome"}')
    assert seen == ["Oslo", "Oslo", "Rome"]
    assert result.stop == "done"


@pytest.mark.refusals
def test_what_is_refused_is_remembered():
    simulator, request = Simulator(), question("anthropic", "Hi", max_tokens=10**9)
    assert decode_answer(request, send_request(simulator, request)).status == 400
    (refusal,) = simulator.refusals
    assert (refusal.family, refusal.rule, refusal.path) == ("anthropic", "max-tokens-limit", "/v1/messages")
    assert "maximum allowed" in refusal.message


@EVERY
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.refusals
def test_the_main_endpoint_is_asked_in_one_way_only(family, method):
    simulator, request = Simulator(), question(family, "!say hello")
    asked = replace(make_outgoing(request), method=method)
    assert decode_answer(request, asyncio.run(simulator.answer(asked))).status == 405
    assert len(simulator.refusals) == 1


@EVERY
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.refusals
def test_a_body_nested_beyond_reading_is_refused_like_any_other_rubbish(family, strict):
    request = question(family, "!say hello")
    asked = replace(make_outgoing(request), body=b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    answer = asyncio.run(Simulator(strict=strict).answer(asked))
    assert decode_answer(request, answer).status == 400


def test_an_unknown_profile_is_misuse_from_the_start():
    with pytest.raises(MisuseError, match="unknown profile 'rude'; choose one of: first-party"):
        Simulator(profile="rude")


@pytest.mark.refusals
def test_a_lenient_one_refuses_only_what_it_cannot_read():
    request = question("anthropic", "!say hello", max_tokens=10**9)
    assert isinstance(decode_answer(request, send_request(Simulator(), request)), Failure)
    lenient = Simulator(strict=False)
    assert decode_answer(request, send_request(lenient, request)).text == "hello"
    assert lenient.refusals == []


def test_every_exchange_is_logged_without_its_secrets():
    logged = []
    simulator = Simulator(log=logged.append)
    asked = make_outgoing(question("anthropic", "!say my key is sk-very-secret"))
    keyed = OutgoingRequest(
        method=asked.method,
        url=asked.url,
        headers=(*asked.headers, ("authorization", "Bearer sk-very-secret")),
        body=asked.body,
    )
    asyncio.run(simulator.answer(keyed))
    (exchanged,) = logged
    assert exchanged.family == "anthropic"
    assert exchanged.answer.status == 200
    assert b"my key is" in exchanged.body
    assert b"sk-very-secret" not in msgspec.json.encode(exchanged.answer) + exchanged.body
    assert "authorization" not in dict(exchanged.headers)


def test_a_script_that_is_not_played_to_its_end_fails_loudly():
    simulator = Simulator(ScriptedResponder(parse_steps(["one", "two"])))
    request = question("anthropic", "go on")
    assert decode_answer(request, send_request(simulator, request)).text == "one"
    with pytest.raises(MisuseError, match="1 of 2 replies of the script were never asked for"):
        simulator.check_finished()


@EVERY
def test_a_question_beyond_the_script_is_refused_and_told_at_the_end(family):
    simulator = Simulator(ScriptedResponder(parse_steps(["one"])))
    first, second = question(family, "go on"), question(family, "and now?")
    assert decode_answer(first, send_request(simulator, first)).text == "one"
    failure = decode_answer(second, send_request(simulator, second))
    assert failure.status == 400
    assert "asked for one more, after 'and now?'" in failure.message
    with pytest.raises(MisuseError, match="asked for one more"):
        simulator.check_finished()


def test_a_fault_that_never_happened_is_told_at_the_end():
    simulator, request = Simulator(faults=["continuation"]), question("openai_chat", "!say hi")
    assert decode_answer(request, send_request(simulator, request)).text == "hi"
    with pytest.raises(MisuseError, match="planned faults never happened: continuation"):
        simulator.check_finished()


def test_calls_have_ids_of_their_own():
    request = question("openai_chat", "!call look {}\n!call look {}")
    calls = decode_answer(request, send_request(Simulator(), request)).calls
    assert len({call.wire_id for call in calls}) == 2
    assert all(isinstance(call, ToolCall) for call in calls)
