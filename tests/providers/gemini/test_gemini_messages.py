"""Messages on their way to Gemini: turns, ids, signatures, content, and what is gone on with."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from bridle.core.effects import AskModel
from bridle.core.loop import apply_event, next_effects
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Message, Opaque, Reasoning, Reply, Stop, Text, ToolResult
from bridle.values.settings import Settings
from tests.providers.gemini.gemini_requests import (
    CODEC,
    COUSIN,
    ENDPOINT,
    LENIENT,
    LOST,
    MODEL,
    OWN,
    SIGNED,
    SKIP,
    TALK,
    in_turn,
    response,
    result,
)
from tests.providers.kit.encode_kit import FOREIGN, call, results, user

ask, sent, written, assistant = TALK.ask, TALK.sent, TALK.written, TALK.assistant


# Turns


def test_two_speakers_alternate_whoever_they_were():
    contents = written(
        user("a"),
        Message(role="system", parts=(Text(text="b"),)),
        assistant("c", origin=FOREIGN),
        assistant("d"),
        assistant(" \n"),
        user("e", "\t"),
    )
    assert contents == [
        {"role": "user", "parts": [{"text": "a"}, {"text": "b"}]},
        {"role": "model", "parts": [{"text": "c"}, {"text": "d"}]},
        {"role": "user", "parts": [{"text": "e"}]},
    ]


def test_three_parallel_calls_then_two_steps():
    """All calls of a step in one content, all responses in the next, signatures where they came."""
    contents = in_turn(
        assistant(call("c1", native=SIGNED), call("c2", name="find"), call("c3")),
        results(result("c1", "1"), result("c2", "2"), result("c3", "3")),
        assistant(call("c4", native='{"thoughtSignature":"dHdv"}')),
        results(result("c4", "4")),
        assistant("Done.", Text(text="", native='{"thoughtSignature":"ZW5k"}')),
        user("Thanks."),
    )
    assert contents == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "find", "args": {}}},
                {"functionCall": {"name": "look", "args": {}}},
            ],
        },
        {"role": "user", "parts": [response("look", "1"), response("find", "2"), response("look", "3")]},
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "dHdv"}],
        },
        {"role": "user", "parts": [response("look", "4")]},
        {"role": "model", "parts": [{"text": "Done."}, {"text": "", "thoughtSignature": "ZW5k"}]},
        {"role": "user", "parts": [{"text": "Thanks."}]},
    ]


def test_what_was_stored_and_read_again_goes_out_in_the_same_bytes():
    line = (
        user("q"),
        assistant(Reasoning(text="hm", signature="cw=="), call("c1", "x", native=SIGNED), call("c2")),
        results(result("c1"), result("c2")),
        assistant("Done.", Text(text="", native=SIGNED)),
        user("more"),
    )
    stored = msgspec.json.decode(msgspec.json.encode(line), type=tuple[Message, ...])
    assert CODEC.encode(ask(*stored)) == CODEC.encode(ask(*line))


def test_results_go_out_in_the_order_of_the_calls_however_they_came():
    calls = assistant(call("c1"), call("c2"), call("c3"))
    answers = [result(f"c{number}", str(number)) for number in (1, 2, 3)]
    ways = [
        [results(answers[2], answers[0], answers[1])],
        [results(answers[2]), results(answers[1]), results(answers[0])],
        [results(answers[1]), results(answers[2], answers[0])],
    ]
    expected = in_turn(calls, results(*answers), assistant("x"))
    assert [part["functionResponse"]["response"]["output"] for part in expected[1]["parts"]] == [
        "1",
        "2",
        "3",
    ]
    for way in ways:
        assert in_turn(calls, *way, assistant("x")) == expected
        assert in_turn(calls, *way) == expected[:2]


def test_a_call_without_a_result_is_answered_with_an_error():
    calls = assistant(call("c1"), call("c2"))
    both = [{"functionResponse": {"name": "look", "response": LOST}}] * 2
    for rest in [(), (user("go on"),), (assistant("well"), user("go on"))]:
        contents = in_turn(calls, *rest)
        assert contents[1]["parts"][:2] == both, rest
        assert sum("functionResponse" in str(part) for content in contents for part in content["parts"]) == 2
    kept = in_turn(calls, results(result("c2", "2")), user("go on"))[1]["parts"]
    assert kept == [both[0], response("look", "2"), {"text": "go on"}]
    assert in_turn(calls, results(result("c2", "2")))[1]["parts"] == kept[:2]
    followed = in_turn(calls, results(result("c2", "2")), assistant("well"), user("go on"))
    assert [content["role"] for content in followed] == ["model", "user", "model", "user"]


def test_results_without_a_call_and_second_results_are_left_out():
    contents = in_turn(
        results(result("c0")),
        assistant(call("c1")),
        results(result("c1", "first"), result("c1", "second"), result("c9")),
        results(result("c1", "late")),
        user("go on"),
        results(result("c1", "later")),
    )
    assert contents[1:] == [{"role": "user", "parts": [response(said="first"), {"text": "go on"}]}]


def test_a_line_that_opens_with_a_call_opens_with_the_user():
    contents = written(assistant(call("c1")), results(result("c1")))
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert [content["role"] for content in written(assistant("hello"), user("hi"))] == ["model", "user"]


# Ids


def test_calls_go_out_under_the_id_this_endpoint_gave_them():
    contents = in_turn(
        assistant(call("c1", "aa"), call("c2")),
        results(result("c1"), result("c2")),
        assistant(call("c3", "bb", name="x"), origin=COUSIN),
        results(result("c3")),
        assistant(call("c4", "cc"), origin=FOREIGN),
        results(result("c4")),
    )
    ids = [
        part.get("functionCall", part.get("functionResponse")).get("id")
        for c in contents
        for part in c["parts"]
    ]
    assert ids == ["aa", None, "aa", None, None, None, None, None]


@pytest.mark.parametrize("wire_id", ["", "same"])
def test_calls_of_one_name_without_ids_or_with_equal_ones_keep_their_own_results(wire_id):
    contents = in_turn(
        assistant(call("c1", wire_id, arguments='{"n":1}'), call("c2", wire_id, arguments='{"n":2}')),
        results(result("c2", "two"), result("c1", "one")),
    )
    calls = [part["functionCall"] for part in contents[0]["parts"]]
    answers = [part["functionResponse"] for part in contents[1]["parts"]]
    assert [each["args"]["n"] for each in calls] == [1, 2]
    assert [each["response"]["output"] for each in answers] == ["one", "two"]
    assert [each.get("id") for each in calls] == [each.get("id") for each in answers]
    assert [each.get("id") for each in calls] == (["same", "c2"] if wire_id else [None, None])


# Signatures and reasoning


@pytest.mark.parametrize("origin", [FOREIGN, COUSIN, None])
def test_no_signature_goes_to_an_endpoint_that_did_not_make_it(origin):
    code = Opaque(kind="executableCode", native='{"executableCode":{"code":"1"},"thoughtSignature":"eA=="}')
    message = assistant(
        Reasoning(text="hm", signature="cw=="),
        Text(text="words", native='{"thoughtSignature":"c2ln","partMetadata":{"a":1}}'),
        code,
        call("c1", native=SIGNED),
        call("c2", native=SIGNED),
        origin=origin,
    )
    contents = in_turn(message, results(result("c1"), result("c2")))
    text = json.dumps(contents)
    assert not any(secret in text for secret in ("c2ln", "eA==", "cw==", "hm"))
    calls = [part for part in contents[0]["parts"] if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in calls] == [SKIP, None]
    assert ("executableCode" in text) == ("partMetadata" in text) == (origin is COUSIN)
    lenient = in_turn(message, results(result("c1"), result("c2")), model=LENIENT)
    assert "thoughtSignature" not in json.dumps(lenient)


def test_an_unsigned_call_of_our_own_says_that_it_never_had_one():
    """Signatures came with a later generation; history of an earlier one has none."""
    unsigned = in_turn(assistant(call("c1"), call("c2")), results(result("c1"), result("c2")))
    assert [part.get("thoughtSignature") for part in unsigned[0]["parts"]] == [SKIP, None]
    signed = in_turn(assistant(call("c1"), call("c2", native=SIGNED)), results(result("c1"), result("c2")))
    assert [part.get("thoughtSignature") for part in signed[0]["parts"]] == [None, "c2ln"]


def test_own_parts_go_back_as_they_came():
    native = '{"toolCall":{"toolType":"X","id":"x","args":{"q":[1.50,null]}},"thoughtSignature":"YQ=="}'
    (content,) = in_turn(
        assistant(
            Opaque(kind="toolCall", native=native),
            Media(kind="image", media_type="image/png", data="AAAA", native=SIGNED),
            Opaque(kind="candidate.fields", native='{"groundingMetadata":{"x":1}}'),
        )
    )
    picture = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thoughtSignature": "c2ln"}
    assert content["parts"] == [json.loads(native), picture]
    with pytest.raises(MisuseError, match="holds no JSON object"):
        in_turn(assistant(Opaque(kind="toolCall", native="[]")))


# Content


def test_a_result_may_hold_a_picture():
    picture = Media(kind="image", media_type="image/png", data="AAAA")
    seen = ToolResult(call_id="c1", parts=(picture, Text(text="seen"), Opaque(kind="x", native="{}")))
    (_, content) = in_turn(assistant(call("c1"), origin=FOREIGN), results(seen), model=LENIENT)
    (given,) = [part["functionResponse"] for part in content["parts"]]
    assert given["response"] == {"output": "seen"}
    assert given["parts"] == [{"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]


# Going on with a paused reply


def paused_reply(text, token):
    held = Opaque(kind="continuation", native=json.dumps({"continuationToken": token}))
    return assistant(text, held, stop=Stop.PAUSED)


def test_a_paused_reply_is_gone_on_with_by_its_token():
    """The same question again, and the token of the last pause, which stands for all that was said."""
    question = sent(ask(user("write"), max_tokens=5))
    assert sent(ask(user("write"), paused_reply("one ", "dG9r"), max_tokens=5)) == {
        **question,
        "continuationToken": "dG9r",
    }
    twice = sent(ask(user("write"), paused_reply("one ", "dG9r"), paused_reply("two ", "dG9s"), max_tokens=5))
    assert twice == {**question, "continuationToken": "dG9s"}


def test_the_loop_goes_on_with_a_paused_reply_by_itself():
    reply = Reply(parts=paused_reply("one ", "dG9r").parts, stop=Stop.PAUSED, origin=OWN)
    state = State()
    for event in (
        e.Configured(settings=Settings(model=MODEL), session="s"),
        e.Prompted(parts=(Text(text="write"),)),
        e.ModelAsked(step=1, attempt=1, digest=""),
        e.ModelReplied(reply=reply),
    ):
        state = apply_event(state, event)
    (effect,) = next_effects(state)
    assert isinstance(effect, AskModel)
    body = sent(effect.request)
    assert body["contents"] == [{"role": "user", "parts": [{"text": "write"}]}]
    assert body["continuationToken"] == "dG9r"


def test_a_reply_that_was_gone_on_with_is_history_like_any_other():
    line = (user("write"), paused_reply("one ", "dG9r"), assistant("two"), user("thanks"))
    body = sent(ask(*line))
    assert "continuationToken" not in body
    assert body["contents"][1] == {"role": "model", "parts": [{"text": "one "}, {"text": "two"}]}
    kept = CODEC.new_history()
    before = CODEC.encode(ask(*line[:2]), kept).body
    after = CODEC.encode(ask(*line), kept).body
    assert after == CODEC.encode(ask(*line)).body
    assert after.startswith(before[: before.index(b"]}]")])


def test_a_token_is_not_for_another_endpoint():
    away = replace(MODEL, endpoint=replace(ENDPOINT, name="there"))
    body = sent(ask(user("write"), paused_reply("one", "dG9r"), model=away))
    assert "continuationToken" not in body
    assert body["contents"][1]["parts"] == [{"text": "one"}]


# Kept messages


def test_open_calls_answered_for_now_are_forgotten_when_the_result_comes():
    kept = CODEC.new_history()
    line = (user("q"), assistant(call("c1"), call("c2")))
    for messages in (line, (*line, results(result("c1"))), (*line, results(result("c1"), result("c2")))):
        assert CODEC.encode(ask(*messages), kept) == CODEC.encode(ask(*messages))
