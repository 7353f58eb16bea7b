"""Requests to Anthropic: what is written, in which order, under which ids."""

import json

import pytest
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.providers.wire.encoded_history import CONTINUE_TEXT
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Message, Opaque, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Origin
from bridle.values.request import Breakpoint, Request, Thinking, ToolSpec
from tests.providers.anthropic.anthropic_requests import ENDPOINT, OWN, SIGNED, TALK
from tests.providers.kit.encode_kit import FOREIGN, call, results, user

CODEC, MODEL = TALK.codec, TALK.model
ask, sent, written, assistant = TALK.ask, TALK.sent, TALK.written, TALK.assistant


# Body and headers


def test_an_endpoint_may_name_another_version():
    assert CODEC.encode(ask(user("hi"))).path == "/v1/messages"
    newer = replace(ENDPOINT, headers=(("Anthropic-Version", "2026-10-21"), ("anthropic-beta", "b")))
    headers = dict(CODEC.encode(ask(user("hi"), model=replace(MODEL, endpoint=newer))).headers)
    assert headers["anthropic-version"] == "2026-10-21"
    assert headers["anthropic-beta"] == "b"


@pytest.mark.parametrize(
    ("output_tokens", "thinking", "expected"),
    [
        (64_000, None, 20_000),
        (8_192, None, 8_192),
        (64_000, Thinking(budget_tokens=30_000), 50_000),
        (32_000, Thinking(budget_tokens=30_000), 32_000),
    ],
)
def test_max_tokens_has_a_default(output_tokens, thinking, expected):
    model = replace(MODEL, abilities=Abilities(output_tokens=output_tokens))
    assert sent(ask(user("hi"), model=model, thinking=thinking))["max_tokens"] == expected


def test_a_mark_on_tools_stands_on_the_last():
    tools = (
        ToolSpec(name="look"),
        ToolSpec(name="web_search", native='{"type":"web_search_20250305","name":"web_search"}'),
    )
    marks = (Breakpoint(position="tools"), Breakpoint(position="system"))
    marked = sent(ask(user("hi"), tools=tools, breakpoints=marks))["tools"]
    assert [tool.get("cache_control") for tool in marked] == [None, {"type": "ephemeral"}]


def test_a_mark_on_tools_avoids_a_tool_that_is_loaded_later():
    later = ToolSpec(name="b", native='{"name":"b","input_schema":{"type":"object"},"defer_loading":true}')
    body = sent(
        ask(
            user("hi"),
            tools=(ToolSpec(name="a"), later),
            breakpoints=(Breakpoint(position="tools", ttl="1h"),),
        )
    )
    assert body["tools"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in body["tools"][1]


# Messages


def test_neighbours_of_one_role_become_one_turn_and_results_come_first():
    turns = written(
        user("go"),
        assistant(call("c1", "toolu_1"), call("c2", "toolu_2")),
        results(ToolResult(call_id="c2"), ToolResult(call_id="c1", parts=(Text(text="one"),))),
        user("and?"),
        assistant("so", stop=Stop.PAUSED),
        assistant("on"),
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant"]
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_2"},
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
        {"type": "text", "text": "and?"},
    ]
    assert [block["text"] for block in turns[3]["content"]] == ["so", "on"]


def test_our_id_gives_way_to_a_providers_id_that_came_first():
    turns = written(user("go"), assistant(call("c9", "c1")), results(ToolResult(call_id="c9")),
                    assistant(call("c1")), results(ToolResult(call_id="c1")))  # fmt: skip
    assert [turn["content"][0].get("id") for turn in turns[1::2]] == ["c1", "c1_"]
    assert [turn["content"][0].get("tool_use_id") for turn in turns[2::2]] == ["c1", "c1_"]


def test_a_turn_does_not_end_in_reasoning_unless_it_was_paused():
    assert written(user("x"), assistant(SIGNED), user("y"))[0]["content"][-1]["text"] == "y"
    assert len(written(user("x"), assistant(SIGNED, stop=Stop.PAUSED))) == 2


def test_natives_go_out_again_to_their_own_family_only():
    search = '{"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"q": 1.10}}'
    cited = Text(text="so", native='{"citations":[{"type":"char_location"}]}')
    called = call("c1", "toolu_1", native='{"caller":{"type":"direct"}}')
    own = ask(user("x"), assistant(Opaque(kind="server_tool_use", native=search), cited, called))
    assert search.encode() in CODEC.encode(own).body
    blocks = sent(own)["messages"][1]["content"]
    assert blocks[1] == {"type": "text", "text": "so", "citations": [{"type": "char_location"}]}
    assert blocks[2]["caller"] == {"type": "direct"}
    foreign = written(user("x"), assistant(*own.messages[1].parts, origin=FOREIGN))
    assert foreign[1]["content"] == [
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
    ]


def test_what_a_declined_model_thought_and_called_is_not_sent_back():
    fallback = Opaque(kind="fallback", native='{"type":"fallback","from":"a","to":"b"}')
    sealed = Opaque(kind="tool_use", native='{"type":"tool_use","id":"t0","name":"look","input":{}}')
    turns = written(user("x"), assistant(SIGNED, "no", sealed, fallback, SIGNED, "yes"))
    assert [block["type"] for block in turns[1]["content"]] == ["text", "fallback", "thinking", "text"]


def test_an_error_without_words_gets_some():
    block = written(user("x"), assistant(call("c1")), results(ToolResult(call_id="c1", outcome="denied")))[2]
    assert block["content"][0]["is_error"] is True
    assert "denied" in block["content"][0]["content"]


def test_a_text_document_is_base64_and_a_result_may_hold_pictures():
    with pytest.raises(MisuseError, match="base64"):
        written(user(Media(kind="document", media_type="text/plain", data="!")))
    picture = Media(kind="image", media_type="image/png", data="aGk=")
    inside = written(user("x"), assistant(call("c1")), results(ToolResult(call_id="c1", parts=(picture,))))
    assert inside[2]["content"][0]["content"] == written(user(picture))[0]["content"]


# Marks


def test_marks_on_messages_do_not_move_the_kept_bytes():
    kept = CODEC.new_history()
    request = ask(user("a"), assistant("b", SIGNED, "c", SIGNED, stop=Stop.PAUSED), user("d"))
    plain = CODEC.encode(request, kept).body
    marks = (
        Breakpoint(position="message", message=0, ttl="1h"),
        Breakpoint(position="message", message=1),
        Breakpoint(position="message"),
    )
    turns = json.loads(CODEC.encode(replace(request, breakpoints=marks), kept).body)["messages"]
    assert turns[0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert [block.get("cache_control") for block in turns[1]["content"]] == [
        None, None, {"type": "ephemeral"}, None,
    ]  # fmt: skip
    assert turns[2]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert CODEC.encode(request, kept).body == plain
    with pytest.raises(MisuseError, match="7"):
        CODEC.encode(replace(request, breakpoints=(Breakpoint(position="message", message=7),)))


def test_the_end_is_marked_by_hand_where_the_provider_does_not():
    by_hand = replace(MODEL, abilities=Abilities(cache_marks=4))
    body = sent(ask(user("a"), user("b"), model=by_hand, breakpoints=(Breakpoint(position="end"),)))
    assert "cache_control" not in body
    assert [block.get("cache_control") for block in body["messages"][0]["content"]] == [
        None,
        {"type": "ephemeral"},
    ]
    unmarked = sent(
        ask(user("a"), model=replace(MODEL, abilities=Abilities()), breakpoints=(Breakpoint(position="end"),))
    )
    assert "cache_control" not in json.dumps(unmarked)


@pytest.mark.parametrize(
    "model_name", ["anthropic:claude-sonnet-5", "bedrock:global.anthropic.claude-sonnet-5"]
)
def test_a_conversation_that_may_not_end_with_the_model_is_continued(model_name):
    """Handed to the codec directly; the loop never asks like this."""
    model = find_model(model_name, environ={"AWS_REGION": "us-east-1"})
    codec = load_codec(model.endpoint.family)
    kept = codec.new_history()

    def sent(*messages, able=model):
        return json.loads(codec.encode(Request(model=able, messages=messages), kept).body)["messages"]

    said = Message(role="assistant", parts=(Text(text="One, two"),))
    ended = sent(user("Count"), said)
    assert [turn["role"] for turn in ended] == ["user", "assistant", "user"]
    assert ended[2]["content"][0]["text"] == CONTINUE_TEXT
    went_on = sent(user("Count"), said, said, user("more"))
    assert [turn["role"] for turn in went_on] == ["user", "assistant", "user"]
    assert CONTINUE_TEXT not in json.dumps(went_on)
    paused = replace(said, stop=Stop.PAUSED, origin=OWN)
    assert [turn["role"] for turn in sent(user("Count"), paused)] == ["user", "assistant", "user"]
    answered = sent(user("Count"), paused, said, user("more"))
    assert answered[:3] == sent(user("Count"), paused), "the prefix of the request that was answered stays"
    assert [turn["role"] for turn in answered] == ["user", "assistant", "user", "assistant", "user"]
    searched = Opaque(
        kind="server_tool_use", native='{"type":"server_tool_use","id":"s","name":"web_search"}'
    )
    hosted = replace(paused, parts=(searched, *paused.parts))
    last = ["user", "assistant"] if model.endpoint.family == "anthropic" else ["user", "assistant", "user"]
    assert [turn["role"] for turn in sent(user("Count"), hosted)] == last
    goes_on = model.endpoint.family == "anthropic"
    assert [turn["role"] for turn in sent(user("Count"), hosted, paused)] == (
        last if goes_on else [*last, *last[1:]]
    )
    able = replace(model, abilities=replace(model.abilities, prefill=True))
    assert [turn["role"] for turn in sent(user("Count"), said, able=able)] == ["user", "assistant"]


def test_a_picture_another_model_made_is_told_in_words():
    drawn = Message(
        role="assistant",
        parts=(Text(text="Here:"), Media(kind="image", media_type="image/png", data="aGk=")),
        origin=Origin(family="gemini", endpoint="gemini", model="g"),
    )
    body = json.loads(CODEC.encode(Request(model=MODEL, messages=(user("draw"), drawn, user("ok")))).body)
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "text"]


LATER = (ToolSpec(name="b", description="Later."), ToolSpec(name="c.d"))


def messages_with_results(*given: ToolResult):
    made = [ToolCall(id=result.call_id, name="a", arguments="{}") for result in given]
    return user("hi"), Message(role="assistant", parts=tuple(made)), Message(role="tool", parts=given)


def test_tools_outside_the_prompt_are_declared_last_and_let_in_by_answered():
    found = ToolResult(call_id="1", parts=(Text(text="Two."),), reveals_tools=("b", "c.d", "gone"))
    request = ask(
        *messages_with_results(found),
        tools=(ToolSpec(name="a"),),
        deferred_tools=LATER,
        breakpoints=(Breakpoint(position="tools"),),
    )
    body = sent(request)
    assert [tool.get("defer_loading") for tool in body["tools"]] == [None, True, True]
    assert ["cache_control" in tool for tool in body["tools"]] == [True, False, False]
    (block,) = body["messages"][-1]["content"]
    named = body["tools"][2]["name"]
    assert block["content"] == [
        {"type": "text", "text": "Two."},
        {"type": "tool_reference", "tool_name": "b"},
        {"type": "tool_reference", "tool_name": named},
    ]


def test_a_result_lets_nothing_in_where_nothing_is_outside_or_where_it_is_an_error():
    ok = ToolResult(call_id="1", parts=(Text(text="One."),), reveals_tools=("b",))
    wrong = ToolResult(call_id="2", parts=(Text(text="No."),), outcome="error", reveals_tools=("b",))
    plain = sent(ask(*messages_with_results(ok), tools=(ToolSpec(name="a"),)))
    assert plain["messages"][-1]["content"][0]["content"] == "One."
    failed = sent(ask(*messages_with_results(wrong), tools=(ToolSpec(name="a"),), deferred_tools=LATER))
    assert failed["messages"][-1]["content"][0]["content"] == "No."


def test_the_kept_body_is_rewritten_when_the_deferred_tools_change():
    kept = CODEC.new_history()
    line = messages_with_results(ToolResult(call_id="1", parts=(Text(text="One."),), reveals_tools=("b",)))
    line = tuple(replace(message, id=f"m{at}") for at, message in enumerate(line))
    for deferred in (LATER, (), LATER):
        request = ask(*line, tools=(ToolSpec(name="a"),), deferred_tools=deferred)
        body = CODEC.encode(request, kept).body
        assert body == CODEC.encode(request).body
        assert (b"tool_reference" in body) is bool(deferred)


def test_tools_outside_the_prompt_are_read_as_such():
    request = ask(user("hi"), tools=(ToolSpec(name="a"),), deferred_tools=LATER[:1])
    again = CODEC.decode_request(CODEC.encode(request))
    assert (again.tools, again.deferred_tools) == (request.tools, request.deferred_tools)
    own = ToolSpec(
        name="b", native='{"name":"b","input_schema":{"type":"object"},"defer_loading":true,"x":1}'
    )
    alone = CODEC.decode_request(CODEC.encode(ask(user("hi"), tools=(ToolSpec(name="a"), own))))
    assert (len(alone.tools), alone.deferred_tools) == (2, ())
