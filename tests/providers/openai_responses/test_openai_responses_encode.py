"""Requests on the Responses wire: what is written, in which order, under which ids."""

import json

import pytest
from msgspec.structs import replace

from bridle.providers.openai_responses.codec import ResponsesCodec, ResponsesDialect
from bridle.testing.conformance.codec import check_codec, check_requests_round_trip
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Message, Opaque, Reasoning, Reply, Stop, Text, ToolResult
from bridle.values.model import Abilities, Origin
from bridle.values.request import Extra, Request, Sampling, Thinking, ToolChoice, ToolSpec
from bridle.values.usage import Usage
from tests.providers.kit.encode_kit import FOREIGN, Talk, call, results, user
from tests.providers.openai_responses.openai_responses_replies import CLOSED, forget
from tests.providers.openai_responses.openai_responses_requests import (
    ENDPOINT,
    OWN,
    SIBLING,
    TALK,
    make_extra,
    reasoning_with_id,
    text_with_id,
)

CODEC, MODEL = TALK.codec, TALK.model
ask, sent, written, assistant = TALK.ask, TALK.sent, TALK.written, TALK.assistant


def answer(call_id, text="ok", **more):
    return ToolResult(call_id=call_id, parts=(Text(text=text),), **more)


# Body


def test_instructions_are_one_text():
    system = (Text(text="Be brief."), Text(text=" "), Text(text="Be kind."))
    request = ask(user("hi"), system=system)
    assert sent(request)["instructions"] == "Be brief.\n\nBe kind."
    assert CODEC.encode(request).path == "/responses"


def test_options_of_a_stream_go_with_a_stream_alone():
    request = ask(user("hi"), extras=(make_extra("stream_options", {"include_obfuscation": False}),))
    assert sent(request)["stream_options"] == {"include_obfuscation": False}
    assert not {"stream", "stream_options"} & sent(replace(request, stream=False)).keys()


def test_what_a_model_cannot_do_is_not_asked_of_it():
    plain = replace(MODEL, abilities=Abilities(sampling=False))
    body = sent(
        ask(user("hi"), model=plain, thinking=Thinking(effort="low"), sampling=Sampling(temperature=1.0))
    )
    assert body.keys() == {"model", "input", "store", "stream"}
    unknown = Thinking(effort="max", mode="adaptive", display="omitted")
    assert "reasoning" not in sent(ask(user("hi"), thinking=unknown))
    shown = sent(ask(user("hi"), thinking=Thinking(display="summarized")))
    assert shown["reasoning"] == {"summary": "auto"}
    assert sent(ask(user("hi"), max_tokens=1))["max_output_tokens"] == 16


def test_a_tool_is_strict_only_when_its_schema_is():
    tools = (
        ToolSpec(name="open", description="Opens.", parameters='{"type": "object", "properties": {}}'),
        ToolSpec(name="closed", parameters=CLOSED),
    )
    loose = {"type": "object", "properties": {}}
    assert sent(ask(user("hi"), tools=tools))["tools"] == [
        {"type": "function", "name": "open", "description": "Opens.", "parameters": loose, "strict": False},
        {"type": "function", "name": "closed", "parameters": json.loads(CLOSED), "strict": True},
    ]


def test_a_free_text_tool_is_chosen_by_its_own_type():
    tools = (ToolSpec(name="patch", native='{"type":"custom","name":"patch"}'),)
    body = sent(ask(user("hi"), tools=tools, tool_choice=ToolChoice(mode="tool", name="patch")))
    assert body["tool_choice"] == {"type": "custom", "name": "patch"}


def test_extras_add_what_the_request_lacks():
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}
    body = sent(
        ask(
            user("hi"),
            thinking=Thinking(effort="high"),
            tools=(ToolSpec(name="look"),),
            extras=(
                make_extra("reasoning", {"effort": "high", "context": "all_turns"}),
                make_extra("tool_choice", allowed),
            ),
        )
    )
    assert body["reasoning"] == {"effort": "high", "context": "all_turns"}
    assert body["tool_choice"] == allowed


# Items


def test_plain_words_are_strings():
    line = (
        Message(role="system", parts=(Text(text="be kind"),)),
        user("look"),
        assistant("I see.", origin=None),
    )
    assert written(*line) == [
        {"type": "message", "role": "system", "content": "be kind"},
        {"type": "message", "role": "user", "content": "look"},
        {"type": "message", "role": "assistant", "content": "I see."},
    ]


def test_a_turn_of_this_endpoint_goes_back_as_it_came():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
    turn = assistant(
        reasoning_with_id("rs_1", text="Hm."),
        Opaque(kind="web_search_call", native=json.dumps(search)),
        reasoning_with_id("rs_2"),
        text_with_id("Looking.", "msg_1", phase="commentary"),
        Text(text=" Now."),
        text_with_id("Done.", "msg_2", phase="final_answer"),
        call("c1", "call_1", native='{"id":"fc_1","status":"completed"}'),
    )
    message = {"type": "message", "role": "assistant", "status": "completed"}
    words = {"type": "output_text", "annotations": []}
    proof = {"type": "reasoning", "encrypted_content": "gAAA"}
    commentary = [{**words, "text": "Looking."}, {**words, "text": " Now."}]
    asked = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    assert written(user("go"), turn, results(answer("c1")))[1:] == [
        {**proof, "summary": [{"type": "summary_text", "text": "Hm."}], "id": "rs_1"},
        search,
        {**proof, "summary": [], "id": "rs_2"},
        {**message, "id": "msg_1", "phase": "commentary", "content": commentary},
        {**message, "id": "msg_2", "phase": "final_answer", "content": [{**words, "text": "Done."}]},
        {**asked, "id": "fc_1", "status": "completed"},
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"},
    ]


FC = call("c1", "call_1", native='{"id":"fc_1"}')


@pytest.mark.parametrize(
    "turn",
    [
        assistant(reasoning_with_id("rs_1", blob=""), FC),
        assistant(reasoning_with_id("rs_1"), Text(text=" "), FC),
        assistant(reasoning_with_id("rs_1"), Text(text="put here by somebody else"), FC),
        assistant(FC, usage=Usage(output=9, reasoning=5)),
    ],
    ids=["no proof", "an item is missing", "an item was replaced", "the reasoning is gone"],
)
def test_a_turn_that_is_not_whole_goes_back_without_reasoning_and_ids(turn):
    items = written(user("go"), turn, results(answer("c1")))
    assert "reasoning" not in [item["type"] for item in items]
    assert not any("id" in item for item in items)
    assert items[-2]["call_id"] == items[-1]["call_id"] == "call_1"


def test_the_same_item_is_not_sent_twice_under_its_id():
    turn = assistant(reasoning_with_id("rs_1"), text_with_id("a", "msg_1"))
    items = written(user("go"), turn, user("again"), turn)
    assert [item.get("id") for item in items] == [None, "rs_1", "msg_1", None, None]
    assert [item["type"] for item in items].count("reasoning") == 1


def test_a_turn_in_which_nothing_was_said_is_nothing():
    """All it was asked for went into thinking, and none of that was shown."""
    silent = assistant(usage=Usage(output=9, reasoning=9))
    assert written(user("q"), silent, user("And?")) == written(user("q"), user("And?"))


def test_reasoning_that_led_to_nothing_is_left_out():
    items = written(
        user("go"),
        assistant(text_with_id("a", "msg_1"), reasoning_with_id("rs_1")),
        user("on"),
        assistant(reasoning_with_id("rs_2")),
    )
    assert [item.get("id") for item in items] == [None, "msg_1", None]


UNSIGNED = Reasoning(text="hm", native='{"id":"rs_1"}')


@pytest.mark.parametrize(
    ("policy", "store", "origin", "is_known"),
    [
        ("signed", None, OWN, False),
        ("signed", True, OWN, True),
        ("may_echo", None, OWN, True),
        ("may_echo", None, SIBLING, False),
        ("must_echo", None, FOREIGN, False),
    ],
)
def test_ids_go_back_only_with_reasoning_of_the_provider(policy, store, origin, is_known):
    model = replace(MODEL, endpoint=replace(ENDPOINT, reasoning=policy))
    extras = () if store is None else (make_extra("store", store),)
    items = written(
        user("x"), assistant(UNSIGNED, text_with_id("a", "msg_1"), origin=origin), model=model, extras=extras
    )
    assert ("id" in items[-1]) is is_known
    assert any(item.get("id") == "rs_1" for item in items) is is_known


@pytest.mark.parametrize("origin", [SIBLING, FOREIGN])
def test_what_another_endpoint_sealed_never_leaves(origin):
    turn = assistant(
        reasoning_with_id("rs_1", blob="SECRET"),
        Opaque(kind="web_search_call", native='{"type":"web_search_call","id":"SECRET"}'),
        text_with_id("words", "SECRET", phase="SECRET"),
        call("c1", "SECRET", native='{"id":"SECRET"}'),
        origin=origin,
    )
    for policy in ("signed", "may_echo", "must_echo", "strip"):
        model = replace(MODEL, endpoint=replace(ENDPOINT, reasoning=policy))
        body = CODEC.encode(ask(user("x"), turn, results(answer("c1")), model=model)).body
        assert b"SECRET" not in body
        assert [item["type"] for item in json.loads(body)["input"]][1:] == [
            "message", "function_call", "function_call_output",
        ]  # fmt: skip


def test_a_server_that_binds_ids_to_a_connection_gets_none():
    talk = Talk(MODEL, "input", ResponsesCodec(ResponsesDialect(with_ids=False)))
    turn = assistant(reasoning_with_id("rs_1"), text_with_id("a", "msg_1"), FC)
    items = talk.written(user("x"), turn, results(answer("c1")))
    assert [item["type"] for item in items] == [
        "message", "reasoning", "message", "function_call", "function_call_output",
    ]  # fmt: skip
    assert not any("id" in item for item in items)
    assert items[1]["encrypted_content"] == "gAAA"


def test_a_refusal_goes_back_as_one():
    refused = assistant(text_with_id("I will not.", "msg_1"), stop=Stop.REFUSED)
    assert written(user("x"), refused)[1]["content"] == [{"type": "refusal", "refusal": "I will not."}]


def test_generated_pictures_go_back_without_what_is_refused():
    item = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "AA",
        "action": "a",
        "size": "b",
    }
    sent_back = written(user("x"), assistant(Opaque(kind="image_generation_call", native=json.dumps(item))))[
        1
    ]
    assert sent_back == {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "AA"}


# Calls and results


def test_ids_are_the_providers_where_they_are_legal_and_new():
    long = "x" * 65
    items = written(
        user("go"),
        assistant(
            call("c1", "call_1"), call("c2", "call_1"), call("c3", ""), call("c4", long), call("c5", "a b")
        ),
        results(*(answer(f"c{n}", str(n)) for n in (5, 4, 3, 2, 1))),
        assistant(call("c6", "call_6"), origin=FOREIGN),
        results(answer("c6", "6")),
        assistant(call("c7", "c8"), call("c8", "c6")),
        results(answer("c7", "7"), answer("c8", "8")),
    )
    called = {item["call_id"]: item for item in items if item["type"] == "function_call"}
    assert list(called) == ["call_1", "c2", "c3", long, "c5", "c6", "c8", "c8_7"]
    answers = [(item["call_id"], item["output"]) for item in items if item["type"] == "function_call_output"]
    assert answers == [
        ("c5", "5"), (long, "4"), ("c3", "3"), ("c2", "2"), ("call_1", "1"),
        ("c6", "6"), ("c8", "7"), ("c8_7", "8"),
    ]  # fmt: skip


def test_calls_and_results_that_miss_one_another_never_reach_the_wire():
    items = written(
        user("go"),
        assistant(call("c1", "call_1"), call("c2", "call_2")),
        results(answer("c2"), answer("c2", "twice"), answer("nobody")),
        user("and?"),
        results(answer("c1", "too late")),
        assistant(call("c3", "call_3")),
    )
    told = [(item["type"], item.get("call_id"), item.get("output")) for item in items[1:]]
    unknown = "[tool error: unknown] no result of this call was recorded"
    assert told == [
        ("function_call", "call_1", None),
        ("function_call", "call_2", None),
        ("function_call_output", "call_2", "ok"),
        ("function_call_output", "call_1", unknown),
        ("message", None, None),
        ("function_call", "call_3", None),
        ("function_call_output", "call_3", unknown),
    ]


def test_a_stand_in_gives_way_to_a_result_and_stays_once_the_conversation_went_on():
    kept = CODEC.new_history()
    line = [user("go"), assistant(call("c1", "call_1"), call("c2", "call_2"))]
    bodies = []
    for message in (
        results(answer("c1")),
        results(answer("c2")),
        user("on"),
        assistant(call("c3", "call_3")),
        user("?"),
    ):
        line.append(message)
        bodies.append(CODEC.encode(ask(*line), kept).body)
        assert bodies[-1] == CODEC.encode(ask(*line)).body
    outputs = [[item["output"] for item in json.loads(body)["input"] if "output" in item] for body in bodies]
    assert [sum("no result" in output for output in each) for each in outputs] == [1, 0, 0, 1, 1]
    assert [len(each) for each in outputs] == [2, 2, 2, 3, 3]


def test_a_failed_call_says_so_in_words_and_is_read_back():
    request = ask(
        user("go"),
        assistant(*(call(f"c{n}", f"call_{n}") for n in range(5))),
        results(
            answer("c0", "boom", outcome="error"),
            answer("c1", "slow", outcome="timeout"),
            ToolResult(call_id="c2", outcome="denied"),
            ToolResult(call_id="c3", outcome="error", parts=(Media(kind="image", url="https://x/y"),)),
            ToolResult(call_id="c4"),
        ),
    )
    outputs = [item["output"] for item in sent(request)["input"] if "output" in item]
    assert outputs[:3] == ["[tool error] boom", "[tool error: timeout] slow", "[tool error: denied]"]
    assert outputs[3][0] == {"type": "input_text", "text": "[tool error]"}
    assert outputs[4] == ""
    heard = CODEC.decode_request(CODEC.encode(request)).messages[2].results
    assert [(result.outcome, result.text) for result in heard] == [
        ("error", "boom"), ("timeout", "slow"), ("denied", ""), ("error", ""), ("ok", ""),
    ]  # fmt: skip


def test_free_text_calls_keep_their_kind_here_and_become_plain_calls_elsewhere():
    free = call(
        "c1",
        "call_1",
        name="patch",
        arguments='{"input":"a\\nb"}',
        native='{"type":"custom_tool_call","id":"ctc_1"}',
    )
    items = written(user("x"), assistant(free), results(answer("c1")))
    assert items[1:] == [
        {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "a\nb", "id": "ctc_1"},
        {"type": "custom_tool_call_output", "call_id": "call_1", "output": "ok"},
    ]
    items = written(user("x"), assistant(free, origin=FOREIGN), results(answer("c1")))
    assert [item["type"] for item in items[1:]] == ["function_call", "function_call_output"]
    assert items[1]["arguments"] == '{"input":"a\\nb"}'


def test_no_arguments_go_back_as_none_and_legally_elsewhere():
    empty = call("c1", "call_1", arguments="")
    assert written(user("x"), assistant(empty))[1]["arguments"] == ""
    assert written(user("x"), assistant(empty, origin=FOREIGN))[1]["arguments"] == "{}"


# What the provider holds


LINE = (
    user("one"),
    assistant(text_with_id("1", "msg_1"), call("c1", "call_1"), reply_id="resp_1"),
    results(answer("c1")),
    assistant(text_with_id("2", "msg_2"), reply_id="resp_2"),
    user("two"),
    assistant("elsewhere", origin=FOREIGN, reply_id="resp_2"),
    user("three"),
)


def texts(items):
    return [item.get("output") or item.get("content") for item in items]


def test_only_what_came_after_the_parent_is_sent():
    chained = ask(*LINE, system=(Text(text="s"),), extras=(make_extra("previous_response_id", "resp_2"),))
    body = sent(chained)
    assert texts(body["input"]) == ["two", "elsewhere", "three"]
    assert (body["instructions"], body["store"], body["previous_response_id"]) == ("s", True, "resp_2")
    after_a_call = ask(*LINE[:3], extras=(make_extra("previous_response_id", "resp_1"),))
    assert sent(after_a_call)["input"] == [
        {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
    ]
    left_open = ask(*LINE[:2], extras=(make_extra("previous_response_id", "resp_1"),))
    assert ["no result" in output for output in texts(sent(left_open)["input"])] == [True]


def test_a_parent_from_before_the_first_message_holds_nothing_of_this_line():
    body = sent(
        ask(user("hi"), results(answer("call_9")), extras=(make_extra("previous_response_id", "resp_0"),))
    )
    assert texts(body["input"]) == ["hi", "ok"]
    assert body["input"][1]["call_id"] == "call_9"


def test_a_conversation_holds_everything_up_to_the_last_reply():
    body = sent(ask(*LINE, extras=(make_extra("conversation", {"id": "conv_1"}),)))
    assert texts(body["input"]) == ["two", "elsewhere", "three"]
    assert (body["store"], body["conversation"]) == (True, {"id": "conv_1"})
    both = (make_extra("conversation", "conv_1"), make_extra("previous_response_id", "resp_1"))
    with pytest.raises(MisuseError, match="exclude each other"):
        CODEC.encode(ask(*LINE, extras=both))


def test_without_the_parent_the_same_messages_go_out_in_full():
    kept = CODEC.new_history()
    chained = ask(*LINE, extras=(make_extra("previous_response_id", "resp_2"),))
    first, second = CODEC.encode(chained, kept), CODEC.encode(ask(*LINE), kept)
    assert first == CODEC.encode(chained)
    assert second == CODEC.encode(ask(*LINE))
    assert first.digest != second.digest
    assert texts(json.loads(second.body)["input"])[0] == "one"


def test_a_chain_grows_without_writing_the_past_again():
    kept = CODEC.new_history()
    for length, parent, expected in ((1, None, ["one"]), (3, "resp_1", ["ok"]), (5, "resp_2", ["two"])):
        extras = (
            (make_extra("store", True),) if parent is None else (make_extra("previous_response_id", parent),)
        )
        request = ask(*LINE[:length], extras=extras)
        encoded = CODEC.encode(request, kept)
        assert texts(json.loads(encoded.body)["input"]) == expected
        assert encoded == CODEC.encode(request)


def test_tools_that_a_result_brings_are_defined_behind_it_and_nowhere_else():
    later = (ToolSpec(name="b", description="Later.", parameters=CLOSED), ToolSpec(name="c"))
    line = (
        user("hi"),
        assistant(call("1"), call("2")),
        results(answer("1", reveals_tools=("b", "gone")), answer("2")),
    )
    body = sent(ask(*line, user("go on"), tools=(ToolSpec(name="look"),), deferred_tools=later))
    assert [tool["name"] for tool in body["tools"]] == ["look"]
    kinds = [item["type"] for item in body["input"]]
    assert kinds[-4:] == ["function_call_output", "function_call_output", "additional_tools", "message"]
    (brought,) = body["input"][-2]["tools"]
    assert (brought["name"], brought["description"]) == ("b", "Later.")
    assert body["input"][-2]["role"] == "developer"


def test_where_no_tool_is_outside_a_result_brings_none():
    line = (user("hi"), assistant(call("1")), results(answer("1", reveals_tools=("b",))))
    assert b"additional_tools" not in CODEC.encode(ask(*line, tools=(ToolSpec(name="look"),))).body


def test_kept_items_are_rewritten_when_the_deferred_tools_change():
    kept = CODEC.new_history()
    line = (user("hi"), assistant(call("1")), results(answer("1", reveals_tools=("b",))))
    line = tuple(replace(message, id=f"m{at}") for at, message in enumerate(line))
    for deferred in ((ToolSpec(name="b"),), (), (ToolSpec(name="b", description="Other."),)):
        request = ask(*line, tools=(ToolSpec(name="look"),), deferred_tools=deferred)
        assert CODEC.encode(request, kept).body == CODEC.encode(request).body


# --- conversations made short -------------------------------------------------------------------

SHORT = (
    Opaque(
        kind="message",
        native='{"id":"msg_1","type":"message","role":"user","content":[{"type":"input_text","text":"Hi ü"}]}',
        text="Hi ü",
    ),
    Opaque(kind="compaction", native='{"id":"cmp_1","type":"compaction","encrypted_content":"gAAA"}'),
)


def test_a_conversation_is_made_short_at_a_path_that_takes_little():
    asked = Request(
        model=MODEL,
        system=(Text(text="Be brief."),),
        tools=(ToolSpec(name="look"),),
        messages=(Message(role="user", parts=(Text(text="Hi"),)),),
        max_tokens=500,
        asks_native_summary=True,
        extras=(Extra(name="prompt_cache_key", json='"k"'), Extra(name="include", json='["x"]')),
    )
    encoded = CODEC.encode(asked)
    assert encoded.path == "/responses/compact"
    assert json.loads(encoded.body) == {
        "model": MODEL.id,
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "prompt_cache_key": "k",
    }


def test_what_came_of_it_goes_back_as_it_came_and_to_others_in_words():
    origin = Origin(family="openai_responses", endpoint=MODEL.endpoint.endpoint_id, model=MODEL.id)
    bye = Message(role="user", parts=(Text(text="Bye"),))
    short = Message(role="user", parts=SHORT, origin=origin)
    body = CODEC.encode(Request(model=MODEL, messages=(short, bye))).body
    assert ",".join(part.native for part in SHORT).encode() in body
    elsewhere = replace(short, origin=replace(origin, endpoint="elsewhere"))
    body = CODEC.encode(Request(model=MODEL, messages=(elsewhere, bye))).body
    assert b"gAAA" not in body
    assert "Hi ü" in body.decode()


def test_the_laws_hold_for_it():
    origin = Origin(family="openai_responses", endpoint="openai_responses", model="model-1")
    reply = Reply(
        parts=SHORT,
        stop=Stop.PAUSED,
        stop_detail="compaction",
        origin=origin,
        usage=Usage(input=5, cache_read=6, output=7),
        id="resp_1",
    )
    asked = ask(user("Hi"), asks_native_summary=True, stream=False)
    check_requests_round_trip(CODEC, asked, forget)
    check_codec(CODEC, replies=[reply], forget=forget)


def test_one_call_at_a_time_holds_for_tools_that_an_item_brought_in():
    native = '{"type":"additional_tools","role":"developer","tools":[]}'
    told = replace(user("hi"), role="system", parts=(Opaque(kind="additional_tools", native=native),))
    one = ToolChoice(parallel=False)
    assert json.loads(CODEC.encode(ask(told, tool_choice=one)).body)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in json.loads(CODEC.encode(ask(user("hi"), tool_choice=one)).body)
