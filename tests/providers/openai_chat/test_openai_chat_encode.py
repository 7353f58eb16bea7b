"""Requests on Chat Completions: what is written, in which order, under which ids, for which server."""

import json
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.providers.openai_chat.codec import ChatCodec
from bridle.providers.openai_chat.dialect import ChatDialect
from bridle.testing import check_codec
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Message, Reasoning, Stop, Text, ToolCall
from bridle.values.model import Abilities
from bridle.values.request import (
    Breakpoint,
    Extra,
    OutputSpec,
    Request,
    Sampling,
    Thinking,
    ToolChoice,
    ToolSpec,
)
from tests.providers.kit.encode_kit import FOREIGN, PNG, call, make_line, results, user
from tests.providers.kit.encode_kit import answer as result
from tests.providers.openai_chat.openai_chat_requests import (
    ENDPOINT,
    NEAR,
    OWN,
    SIGNED,
    TALK,
    THOUGHT,
    list_complaints,
)

CODEC = load_codec("openai_chat")
MODEL = TALK.model
assistant = TALK.assistant


def ask(*messages, dialect=None, endpoint=ENDPOINT, **fields):
    model = fields.pop("model", replace(MODEL, endpoint=endpoint))
    codec = ChatCodec({endpoint.name: dialect}) if dialect else CODEC
    return codec, Request(model=model, messages=messages, **fields)


def encode_body(*messages, **fields):
    codec, request = ask(*messages, **fields)
    return json.loads(codec.encode(request).body)


def encode_messages(*messages, **fields):
    return encode_body(*messages, **fields)["messages"]


def picture(**more):
    return replace(PNG, **more)


def wire_call(call_id, name="look", arguments="{}"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


# --- the laws -------------------------------------------------------------------------------------------

DIALECTS = {
    "protocol": ChatDialect(),
    "older": ChatDialect(
        max_tokens="max_tokens", system_role="developer", stream_usage=False, empty_content="empty"
    ),
    "text only": ChatDialect(content="string", empty_content="absent", parallel_switch=False),
    "short ids": ChatDialect(
        id_length=9, result_images="result", tool_required="any", documents="document_url"
    ),
    "strict turns": ChatDialect(alternates=True, result_images="omit"),
    "marks": ChatDialect(cache_marks=True),
    "tags": ChatDialect(think_tags=True),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_obeys_the_laws(name):
    check_codec(ChatCodec(otherwise=DIALECTS[name]), forget=without_dialect)


def without_dialect(request):
    """Nobody can tell from a request which names were chosen, or that a picture had to stay behind."""
    words = "[image left out: it cannot be sent to this model]"
    messages = [
        replace(
            message,
            parts=tuple(
                Text(text=f"{part.text}\n\n{words}")
                if isinstance(part, Text) and part.text.startswith("Warm")
                else part
                for part in message.parts
                if not isinstance(part, Media)
            ),
        )
        if any(isinstance(part, Media) for part in message.parts)
        else message
        for message in request.messages
    ]
    chosen = request.tool_choice.mode == "tool"
    choice = request.tool_choice if chosen else replace(request.tool_choice, mode="auto")
    system = tuple(replace(text, native=None) for text in request.system)
    return replace(request, messages=tuple(messages), extras=(), tool_choice=choice, system=system)


# --- the body -------------------------------------------------------------------------------------------


def test_a_stream_only_adds_to_the_body():
    codec, request = ask(user("Hi"), max_tokens=7)
    http, whole = codec.encode(request), codec.encode(replace(request, stream=False))
    assert (http.path, http.method) == ("/chat/completions", "POST")
    assert http.body.startswith(whole.body[:-1])


def test_instructions_are_the_first_message():
    assert encode_messages(user("Hi"), system=(Text(text="Be brief."),)) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert encode_messages(system=(Text(text="Be brief."),)) == [{"role": "system", "content": "Be brief."}]
    assert encode_messages(user(" "), system=(Text(text="Be brief."),)) == [
        {"role": "system", "content": "Be brief."}
    ]
    assert encode_messages(user("Hi"), system=(Text(text=" "),)) == [{"role": "user", "content": "Hi"}]
    two = encode_messages(user("Hi"), system=(Text(text="Be brief."), Text(text="Be kind.")))
    assert two[0]["content"] == [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]
    late = encode_messages(user("Hi"), Message(role="system", parts=(Text(text="It is noon."),)))
    assert late[1] == {"role": "system", "content": "It is noon."}


def test_a_request_with_nothing_in_it_is_still_json():
    assert encode_body(stream=False) == {"model": "model-x", "messages": []}


def test_tools_are_functions():
    schema = {"type": "object", "properties": {}}
    tools = (ToolSpec(name="now"), ToolSpec(name="look", description="Look.", parameters=json.dumps(schema)))
    look = {"name": "look", "description": "Look.", "parameters": schema}
    now = {"name": "now", "parameters": json.loads(tools[0].parameters)}
    functions = [{"type": "function", "function": each} for each in (now, look)]
    assert encode_body(tools=tools)["tools"] == functions


@pytest.mark.parametrize(
    "choice", [ToolChoice(), ToolChoice(mode="any"), ToolChoice(mode="tool", name="now")]
)
def test_a_model_that_cannot_be_forced_is_not(choice):
    unforced = replace(MODEL, abilities=Abilities(forced_tools=False))
    assert "tool_choice" not in encode_body(tools=(ToolSpec(name="now"),), tool_choice=choice, model=unforced)


def test_one_call_at_a_time_is_a_switch_of_its_own():
    body = encode_body(tools=(ToolSpec(name="now"),), tool_choice=ToolChoice(parallel=False))
    assert body["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in encode_body(tools=(ToolSpec(name="now"),))


def test_parameters_a_model_refuses_are_not_sent():
    abilities = Abilities(sampling=False, efforts=("low",), thinking=("on",))
    model = replace(MODEL, abilities=abilities)
    sampling = Sampling(temperature=0.5, top_p=0.9, stop_sequences=("END",))
    body = encode_body(model=model, sampling=sampling, thinking=Thinking(effort="max", mode="off"))
    assert body.keys() - {"stream", "stream_options"} == {"model", "messages", "stop"}
    assert encode_body(model=model, thinking=Thinking(effort="low"))["reasoning_effort"] == "low"
    assert "reasoning_effort" not in encode_body(thinking=Thinking(budget_tokens=100))


@pytest.mark.parametrize(
    ("dialect", "thinking", "fields"),
    [
        (ChatDialect(), Thinking(effort="high", mode="enabled"), {"reasoning_effort": "high"}),
        (
            ChatDialect(mode_at="thinking.type"),
            Thinking(mode="enabled", effort="high"),
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        ),
        (
            ChatDialect(effort_at="reasoning.effort", budget_at="reasoning.max_tokens"),
            Thinking(effort="high", budget_tokens=99),
            {"reasoning": {"effort": "high", "max_tokens": 99}},
        ),
        (
            ChatDialect(
                mode_at="chat_template_kwargs.enable_thinking", modes=(("on", "true"), ("off", "false"))
            ),
            Thinking(mode="off"),
            {"chat_template_kwargs": {"enable_thinking": False}},
        ),
        (
            ChatDialect(mode_at="thinking.type", always=(Extra(name="reasoning_split", json="true"),)),
            Thinking(mode="enabled"),
            {"thinking": {"type": "enabled"}, "reasoning_split": True},
        ),
        (
            ChatDialect(
                mode_at="thinking.type",
                always=(Extra(name="thinking", json='{"type":"enabled","clear_thinking":false}'),),
            ),
            Thinking(mode="disabled"),
            {"thinking": {"type": "disabled", "clear_thinking": False}},
        ),
    ],
)
def test_where_thinking_is_asked_for_is_a_fact_about_the_server(dialect, thinking, fields):
    body = encode_body(dialect=dialect, thinking=thinking, stream=False)
    assert {name: body[name] for name in body if name not in ("model", "messages")} == fields


def test_names_of_settings_are_facts_about_the_server():
    dialect = ChatDialect(
        max_tokens="max_tokens",
        system_role="developer",
        tool_required="any",
        parallel_switch=False,
        top_k=True,
        stream_usage=False,
    )
    body = encode_body(
        user("Hi"),
        dialect=dialect,
        system=(Text(text="Be brief."),),
        max_tokens=7,
        tools=(ToolSpec(name="now"),),
        tool_choice=ToolChoice(mode="any", parallel=False),
        sampling=Sampling(top_k=3),
    )
    assert body["max_tokens"] == 7
    assert body["messages"][0]["role"] == "developer"
    assert (body["tool_choice"], body["top_k"], body["stream"]) == ("any", 3, True)
    assert not {"parallel_tool_calls", "max_completion_tokens", "stream_options"} & body.keys()


STRICT = (
    '{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
)


def test_a_shape_is_strict_only_when_it_already_is():
    shape = OutputSpec(name="an answer", parameters=STRICT, description="The answer.")
    assert encode_body(output=shape)["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "an_answer",
            "description": "The answer.",
            "schema": json.loads(STRICT),
            "strict": True,
        },
    }
    loose = encode_body(output=replace(shape, parameters='{"type":"object"}'))["response_format"]
    assert "strict" not in loose["json_schema"]
    assert (
        "strict"
        not in encode_body(output=shape, dialect=ChatDialect(strict=False))["response_format"]["json_schema"]
    )
    assert "response_format" not in encode_body(output=replace(shape, mode="tool"))
    with pytest.raises(MisuseError, match="'an answer'"):
        encode_body(output=replace(shape, parameters="[]"))


def test_extras_add_and_never_replace():
    shape = OutputSpec(name="x", parameters=STRICT)
    body = encode_body(
        output=shape, extras=(Extra(name="response_format", json='{"json_schema":{"strict":false}}'),)
    )
    assert body["response_format"]["json_schema"]["strict"] is False
    assert encode_body(extras=(Extra(name="stream_options", json="null"),)).keys() == {
        "model",
        "messages",
        "stream",
    }
    odd = Extra(name="stream_options", json='{"include_usage":true,"x":1}')
    assert encode_body(extras=(odd,))["stream_options"] == {"include_usage": True, "x": 1}
    with pytest.raises(MisuseError, match="no JSON"):
        encode_body(extras=(Extra(name="seed", json="{"),))
    with pytest.raises(MisuseError, match="set by the request already"):
        encode_body(output=shape, extras=(Extra(name="response_format", json='{"type":"text"}'),))


# --- messages -------------------------------------------------------------------------------------------


def test_media_on_servers_that_take_more_or_less():
    video = Media(kind="video", media_type="video/mp4", data="AAAA")
    document = Media(kind="document", url="https://a/b.pdf", name="b")
    content = encode_messages(
        user(video, document), dialect=ChatDialect(video=True, documents="document_url")
    )[0]["content"]
    assert content == [
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        {"type": "document_url", "document_url": "https://a/b.pdf", "document_name": "b"},
    ]
    text = encode_messages(user("See:", picture(), "Well?"), dialect=ChatDialect(content="string"))[0][
        "content"
    ]
    assert text == "See:\n\n[image left out: it cannot be sent to this model]\n\nWell?"
    with pytest.raises(MisuseError, match="base64"):
        encode_messages(user(Media(kind="document", media_type="text/plain", data="?", name="a.txt")))


def test_calls_and_results():
    messages = encode_messages(
        assistant("Let me look.", call("c1", "call_1"), call("c2", "call_2", arguments='{"a": 1.50}')),
        results(result("c1", "one"), result("c2", "two", outcome="timeout")),
    )
    assert messages == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [wire_call("call_1"), wire_call("call_2", arguments='{"a": 1.50}')],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "[error: timeout] two"},
    ]


def test_a_result_of_several_texts_is_parts():
    (_, message) = encode_messages(assistant(call("c1")), results(result("c1", "one", "two")))
    assert message["content"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


@pytest.mark.parametrize(
    ("arguments", "written_as"),
    [
        ("", "{}"),
        ('{"a": 1.50, "a": 2}', '{"a": 1.50, "a": 2}'),
    ],
)
def test_arguments_go_out_to_the_letter_or_say_that_they_are_broken(arguments, written_as):
    codec, request = ask(assistant(call("c1", arguments=arguments)), results(result("c1", "x")))
    http = codec.encode(request)
    assert json.loads(http.body)["messages"][0]["tool_calls"][0]["function"]["arguments"] == written_as
    assert codec.decode_request(http).messages[0].calls[0].arguments == (arguments or "{}")


@pytest.mark.parametrize(("word", "content"), [("null", None), ("empty", ""), ("absent", "nothing")])
def test_no_words_beside_calls(word, content):
    message = encode_messages(assistant(call("c1")), dialect=ChatDialect(empty_content=word))[0]
    assert message.get("content", "nothing") == content


def test_pictures_of_results_follow_after_all_results():
    messages = encode_messages(
        assistant(call("c1"), call("c2")),
        results(result("c1", "one", picture()), result("c2", picture(), outcome="error")),
        assistant("I see."),
    )
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "assistant"]
    assert messages[1]["content"][1]["text"] == "[image 1: see the next message]"
    assert messages[2]["content"] == "[error] [image 2: see the next message]"
    assert [part["type"] for part in messages[3]["content"]] == ["text", "image_url", "image_url"]


def test_pictures_wait_for_results_that_come_in_a_message_of_their_own():
    line = [
        assistant(call("c1"), call("c2")),
        results(result("c1", picture())),
        results(result("c2", "two")),
        user("Well?"),
    ]
    roles = [message["role"] for message in encode_messages(*line)]
    assert roles == ["assistant", "tool", "tool", "user", "user"]
    assert [m["role"] for m in encode_messages(*line[:3])] == roles[:4]
    assert [m["role"] for m in encode_messages(*line[:2])] == ["assistant", "tool", "tool", "user"]


def test_pictures_of_results_on_other_servers():
    line = [assistant(call("c1")), results(result("c1", picture()))]
    inside = encode_messages(*line, dialect=ChatDialect(result_images="result"))
    assert [part["type"] for part in inside[1]["content"]] == ["image_url"]
    omitted = encode_messages(*line, dialect=ChatDialect(result_images="omit"))
    assert omitted[1]["content"] == "[image left out: it cannot be sent to this model]"
    assert len(inside) == len(omitted) == 2


def test_an_unanswered_call_gets_an_answer():
    unanswered = "[error: unknown] No result of this call was recorded."
    line = [
        user("Go"),
        assistant(call("c1", "call_1"), call("c2", "call_2")),
        results(result("c2", "two")),
        user("Stop"),
    ]
    assert encode_messages(*line)[2:] == [
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
        {"role": "tool", "tool_call_id": "call_1", "content": unanswered},
        {"role": "user", "content": "Stop"},
    ]
    assert [m.get("tool_call_id") for m in encode_messages(*line[:2])[2:]] == ["call_1", "call_2"]
    late = encode_messages(*line, results(result("c1", "late")), user("Go on"))
    assert [m["role"] for m in late] == ["user", "assistant", "tool", "tool", "user", "user"]


def test_results_without_a_call_are_left_out():
    messages = encode_messages(
        results(result("c9", "lost", picture())),
        assistant(call("c1")),
        results(result("c1", "one"), result("c1", "again"), result("c8", "lost")),
        user("Well?"),
    )
    assert [message["role"] for message in messages] == ["assistant", "tool", "user"]
    assert messages[1]["content"] == "one"


def test_ids_are_the_servers_own_where_they_can_be():
    calls = (("c1", "functions.look:0"), ("c2", "functions.look:0"), ("c3", ""), ("c4", "a b"))
    line = [
        assistant(*(call(*each) for each in calls)),
        results(*(result(f"c{at}", str(at)) for at in (4, 3, 2, 1))),
    ]
    first, *answers = encode_messages(*line)
    ids = [each["id"] for each in first["tool_calls"]]
    assert ids == ["functions.look:0", "c2", "c3", "c4"]
    assert [(m["tool_call_id"], m["content"]) for m in answers] == list(
        zip(reversed(ids), "4321", strict=True)
    )
    for origin in (NEAR, FOREIGN):
        foreign = encode_messages(assistant(call("c1", "call_1"), origin=origin), results(result("c1", "x")))
        assert foreign[0]["tool_calls"][0]["id"] == foreign[1]["tool_call_id"] == "c1"


def test_ids_of_one_length():
    line = [
        assistant(call("c1", "aB3456789"), call("c2", "toolong_id"), call("c3", "aB3456789")),
        results(result("c1", "1"), result("c2", "2"), result("c3", "3")),
    ]
    first, *answers = encode_messages(*line, dialect=ChatDialect(id_length=9))
    ids = [each["id"] for each in first["tool_calls"]]
    assert ids[0] == "aB3456789"
    assert len(set(ids)) == 3
    assert all(len(each) == 9 and each.isalnum() for each in ids)
    assert [m["tool_call_id"] for m in answers] == ids


def test_neighbours_of_one_speaker_are_one_where_turns_must_alternate():
    line = [user("One"), user("Two", picture()), assistant("Three"), user("Four"), user("Five")]
    assert len(encode_messages(*line)) == 5
    merged = encode_messages(*line, dialect=ChatDialect(alternates=True))
    assert [message["role"] for message in merged] == ["user", "assistant", "user"]
    assert [part.get("text") for part in merged[0]["content"]] == ["One", "Two", None]
    strings = encode_messages(*line, dialect=ChatDialect(alternates=True, content="string"))
    assert [message["content"] for message in strings] == [
        "One\n\nTwo\n\n[image left out: it cannot be sent to this model]",
        "Three",
        "Four\n\nFive",
    ]


def test_speakers_that_cannot_meet_have_somebody_between_them():
    dialect = ChatDialect(alternates=True, content="string")
    late = Message(role="system", parts=(Text(text="It is noon."),))
    line = [
        assistant("Hello."),
        assistant("Well?", THOUGHT),
        user("Go"),
        late,
        assistant(call("c1")),
        user("Stop"),
        assistant("Yes."),
        assistant(call("c2")),
        results(result("c2", "two")),
        user("And?"),
    ]
    assert [(m["role"], m["content"]) for m in encode_messages(*line, dialect=dialect)] == [
        ("user", "(The conversation begins here.)"),
        ("assistant", "Hello.\n\nWell?"),
        ("user", "Go\n\nIt is noon."),
        ("assistant", None),
        ("tool", "[error: unknown] No result of this call was recorded."),
        ("assistant", "(Noted.)"),
        ("user", "Stop"),
        ("assistant", "Yes."),
        ("user", "(Go on.)"),
        ("assistant", None),
        ("tool", "two"),
        ("assistant", "(Noted.)"),
        ("user", "And?"),
    ]


def test_a_refusal_goes_back_as_one():
    message = encode_messages(assistant("Half of", "I will not.", stop=Stop.REFUSED))[0]
    assert message == {"role": "assistant", "content": "Half of", "refusal": "I will not."}
    foreign = encode_messages(assistant("I will not.", stop=Stop.REFUSED, origin=FOREIGN))[0]
    assert foreign == {"role": "assistant", "content": "I will not."}


def test_marks_are_put_where_a_server_understands_them():
    marks = (
        Breakpoint(position="tools"),
        Breakpoint(position="system", ttl="1h"),
        Breakpoint(position="message", message=0),
        Breakpoint(position="end"),
    )
    line = [user("Hi"), assistant(call("c1")), results(result("c1", "x"))]
    fields = {"system": (Text(text="Be brief."),), "tools": (ToolSpec(name="look"),)}
    body = encode_body(*line, breakpoints=marks, dialect=ChatDialect(cache_marks=True), **fields)
    short = {"type": "ephemeral"}
    assert body["tools"][0]["cache_control"] == short
    assert body["messages"][0]["content"][0]["cache_control"] == {**short, "ttl": "1h"}
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Hi", "cache_control": short}]
    assert body["messages"][3]["content"] == [{"type": "text", "text": "x", "cache_control": short}]
    assert b"cache_control" not in json.dumps(encode_body(*line, breakpoints=marks, **fields)).encode()
    alike = ChatDialect(cache_marks=True, alternates=True)
    merged = encode_body(
        user("Hi"), user("there", picture()), breakpoints=(Breakpoint(position="end"),), dialect=alike
    )["messages"]
    assert [part.get("cache_control") for part in merged[0]["content"]] == [None, None, short]
    with pytest.raises(MisuseError, match="no message 3"):
        encode_body(
            *line,
            breakpoints=(Breakpoint(position="message", message=3),),
            dialect=ChatDialect(cache_marks=True),
        )


# --- reasoning ------------------------------------------------------------------------------------------


def policy(name):
    return replace(ENDPOINT, reasoning=name)


@pytest.mark.parametrize(
    ("name", "origin", "thought", "fields"),
    [
        ("must_echo", NEAR, THOUGHT, {"reasoning_content": "Well."}),
        ("must_echo", FOREIGN, replace(SIGNED, native='{"x":1}'), {"reasoning_content": "Well."}),
        ("must_echo", FOREIGN, Reasoning(signature="sealed", redacted=True), {"reasoning_content": " "}),
        ("must_echo", OWN, None, {"reasoning_content": " "}),
    ],
)  # fmt: skip
def test_reasoning_goes_where_the_policy_says(name, origin, thought, fields):
    parts = [thought] if thought else []
    message = encode_messages(assistant(*parts, call("c1"), origin=origin), endpoint=policy(name))[0]
    assert {k: v for k, v in message.items() if k.startswith("reasoning")} == fields
    assert "sig" not in json.dumps(message) or origin is OWN


def test_servers_insist_on_reasoning_only_beside_calls():
    foreign = encode_messages(assistant(THOUGHT, "27 °C", origin=FOREIGN), endpoint=policy("must_echo"))
    assert foreign == [{"role": "assistant", "content": "27 °C"}]
    dialect = ChatDialect(reasoning_field="reasoning")
    renamed = encode_messages(
        assistant(call("c1"), origin=FOREIGN), endpoint=policy("must_echo"), dialect=dialect
    )
    assert renamed[0]["reasoning"] == " "


def test_thoughts_alone_are_no_message():
    assert encode_messages(user("Hi"), assistant(THOUGHT), user("Well?")) == [
        {"role": "user", "content": "Hi"},
        {"role": "user", "content": "Well?"},
    ]


DETAILS = [
    {"type": "reasoning.summary", "summary": "Well.", "format": "f", "index": 0},
    {"type": "reasoning.encrypted", "data": "blob==", "id": "rs_1", "format": None, "index": 0},
    {"type": "reasoning.text", "text": "", "signature": "sig", "index": 1},
    {"type": "reasoning.next_year", "shape": [1, {"a": None}]},
]
MESSAGES: dict[str, Any] = {
    "reasoning": {"content": "Hi", "reasoning": "Well."},
    "reasoning_content": {"content": "Hi", "reasoning_content": "Well."},
    "both": {"content": "Hi", "reasoning": "Well.", "reasoning_content": "Well."},
    "unlike": {"content": "Hi", "reasoning": "Well.", "reasoning_content": "Hm."},
    "details": {"content": "Hi", "reasoning_details": DETAILS},
    "details and words": {"content": "Hi", "reasoning": "Well.", "reasoning_details": DETAILS},
    "details and other words": {"content": "Hi", "reasoning": "Hm.", "reasoning_details": DETAILS},
    "chunks": {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "Well."}], "closed": True},
            {"type": "text", "text": "Hi"},
            {"type": "reference", "reference_ids": [1]},
        ]
    },
    "next year": {"content": "Hi", "mood": {"calm": True}, "name": "model"},
    "audio": {"content": None, "audio": {"id": "audio_1"}},
    "pictures": {
        "content": "Here.",
        "images": [
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG.data}"}, "index": 0},
            {"type": "image_url", "image_url": {"url": "https://a/b.png"}},
        ],
    },
    "signed calls": {
        "content": None,
        "extra_content": {"google": {"thought_signature": "sig"}},
        "tool_calls": [
            {**wire_call("call_1"), "extra_content": {"google": {"thought_signature": "sig"}}},
            wire_call("call_2"),
        ],
    },
    "custom call": {
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "custom", "custom": {"name": "sh", "input": "ls\n"}}],
    },
    "old call": {"content": None, "function_call": {"name": "look", "arguments": '{"a": 1}'}},
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_a_server_said_goes_back_as_it_came(name):
    """Told whole or in pieces, kept in our values, and sent again."""
    message = {"role": "assistant", **MESSAGES[name]}
    choice = {"index": 0, "finish_reason": "stop"}
    delta = {
        **message,
        "tool_calls": [{"index": at, **each} for at, each in enumerate(message.get("tool_calls", []))],
    }
    whole = json.dumps({"choices": [{**choice, "message": message}]})
    stream = f"data: {json.dumps({'choices': [{**choice, 'delta': delta}]})}\n\ndata: [DONE]\n\n"
    replies = [decode_body(whole), decode_body(stream)]
    assert replies[0] == replies[1]
    said = [replace(p, id=f"c{n}") if isinstance(p, ToolCall) else p for n, p in enumerate(replies[0].parts)]
    assert encode_messages(assistant(*said, origin=replies[0].origin))[0] == message
    # Elsewhere nothing of it is shown that only this server can read.
    elsewhere = json.dumps(encode_messages(assistant(*said, origin=NEAR)))
    assert not {"reasoning", "sig", "blob", "audio_1", "mood", "thinking", "images"} & set(
        elsewhere.replace('"', " ").split()
    )


def decode_body(body):
    decoder = CODEC.new_decoder(Request(model=MODEL), 200, {})
    decoder.feed(body.encode())
    return decoder.close()


def test_thoughts_in_tags_go_back_in_tags():
    dialect = ChatDialect(think_tags=True)
    codec = ChatCodec({"here": dialect})
    for content in ("<think>\nWell.\n</think>\n\nHi", "\n<think>Well.</think>Hi", "<think></think>Hi"):
        decoder = codec.new_decoder(Request(model=MODEL), 200, {})
        decoder.feed(
            json.dumps({"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}).encode()
        )
        reply = decoder.close()
        assert reply.text.strip() == "Hi"
        message = assistant(*reply.parts, origin=reply.origin)
        assert encode_messages(message, dialect=dialect) == [{"role": "assistant", "content": content}]
        stripped = encode_messages(message, dialect=dialect, endpoint=policy("strip"))[0]["content"]
        assert stripped == reply.text


def test_members_a_server_does_not_take_back_stay_here():
    message = {
        "content": "Hi",
        "executed_tools": [{"index": 0}],
        "padding": "abc",
        "provider_metadata": {"a": 1},
    }
    reply = decode_body(json.dumps({"choices": [{"finish_reason": "stop", "message": message}]}))
    assert "executed_tools" in (reply.parts[0].native or "")
    assert "padding" not in (reply.parts[0].native or "")
    assert encode_messages(assistant(*reply.parts)) == [{"role": "assistant", "content": "Hi"}]


# --- as a server reads it -------------------------------------------------------------------------------


def read(body, path="/v1/chat/completions"):
    return CODEC.decode_request(
        HttpRequest(path=path, body=body if isinstance(body, bytes) else json.dumps(body).encode())
    )


def test_a_request_is_read_into_our_words():
    request = read(
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
                {"role": "user", "content": "Hi", "name": "ann"},
                {"role": "assistant", "content": "", "tool_calls": [wire_call("x"), wire_call("x")]},
                {"role": "tool", "tool_call_id": "x", "content": "one"},
                {"role": "tool", "tool_call_id": "x", "content": "[error: denied] two", "name": "look"},
                {"role": "assistant", "content": None, "refusal": "No."},
            ],
            "max_tokens": 7,
            "temperature": 1,
            "stop": "END",
            "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "reasoning_effort": "low",
            "stream": True,
            "seed": 7,
            "user": None,
        }
    )
    assert request.system == (Text(text="Be brief.", native='{"message":{"role":"developer"}}'),)
    assert [message.role for message in request.messages] == [
        "system", "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert [each.id for each in request.messages[2].calls] == ["c3_0", "c3_1"]
    first, second = request.messages[3].results[0], request.messages[4].results[0]
    assert (first.call_id, first.outcome, first.text) == ("c3_0", "ok", "one")
    assert (second.call_id, second.outcome, second.text) == ("c3_1", "denied", "two")
    assert request.messages[5].stop is Stop.REFUSED
    assert request.max_tokens == 7
    assert request.sampling == Sampling(temperature=1.0, stop_sequences=("END",))
    (tool,) = request.tools
    assert (tool.name, tool.parameters) == ("look", '{"type":"object"}')
    assert tool.native == '{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}', (
        "it would not go out again as it came"
    )
    assert request.tool_choice == ToolChoice(mode="any", parallel=False)
    assert request.thinking == Thinking(effort="low")
    assert request.stream
    assert request.extras == (Extra(name="seed", json="7"), Extra(name="stream_options", json="null"))


def test_the_path_may_name_the_model():
    path = "/openai/deployments/my%20model/chat/completions?api-version=2025-01-01"
    assert read({"messages": []}, path).model.id == "my model"
    assert read({"messages": [], "model": "m"}, path).model.id == "m"
    assert read({"messages": []}, "/v1/chat/completions/").model.id == ""


# --- whatever the history -------------------------------------------------------------------------------


STRICT_DIALECTS = (
    ChatDialect(),
    ChatDialect(id_length=9),
    ChatDialect(alternates=True, result_images="omit"),
    ChatDialect(alternates=True, result_images="omit", content="string"),
)


@pytest.mark.parametrize("seed", range(40))
def test_any_history_is_written_legally_and_grows_at_its_end(seed):
    random = Random(seed)
    for _ in range(25):
        line = make_line(random, OWN)
        endpoint = policy(random.choice(("may_echo", "must_echo", "signed", "strip")))
        dialect = random.choice(STRICT_DIALECTS)
        codec, request = ask(*line, endpoint=endpoint, dialect=dialect)
        kept = codec.new_history()
        bodies = []
        for count in range(len(line) + 1):
            grown = replace(request, messages=tuple(line[:count]))
            http = codec.encode(grown, kept)
            assert http == codec.encode(grown)
            messages = json.loads(http.body)["messages"]
            assert list(list_complaints(messages, alternate=dialect.alternates)) == [], line[:count]
            bodies.append((messages, count))
        # What is settled never changes: all but what the last turn still owed, or may still say.
        for (shorter, _), (longer, count) in pairwise(bodies):
            settled = shorter[:-1] if dialect.alternates else shorter
            if line[count - 1].role == "assistant":
                assert longer[: len(settled)] == settled


def test_annotations_are_kept_and_not_sent_back():
    """They are in no request type: the server wrote them for the reader."""
    cited = [{"type": "url_citation", "url_citation": {"url": "u"}}]
    message = {"role": "assistant", "content": "Hi", "annotations": cited, "mood": "calm"}
    reply = decode_body(json.dumps({"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}))
    assert "url_citation" in reply.parts[0].native
    sent = encode_messages(assistant(*reply.parts, origin=reply.origin))[0]
    assert sent == {"role": "assistant", "content": "Hi", "mood": "calm"}
