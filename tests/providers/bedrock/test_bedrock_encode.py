"""Requests to Bedrock Converse: what is written, in which order, under which ids and names."""

import json
import re
from itertools import zip_longest
from random import Random

import pytest
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.wire.system_messages import OPERATOR_PREFIX
from bridle.testing.conformance.codec import check_codec
from bridle.values.errors import BadTool, MisuseError
from bridle.values.message import Media, Message, Opaque, Reasoning, Text, ToolCall, ToolResult
from bridle.values.model import Abilities, Endpoint, Model, Origin
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

CODEC = load_codec("bedrock_converse")
ENDPOINT = Endpoint(name="bedrock", family="bedrock_converse")
OWN = Origin(family="bedrock_converse", endpoint="bedrock", model="maker.model-v1:0")
SIBLING = replace(OWN, model="other.model-v2:0")
FOREIGN = Origin(family="elsewhere", endpoint="elsewhere", model="other")
MODEL = Model(id="maker.model-v1:0", endpoint=ENDPOINT, abilities=Abilities(cache_marks=4))
LOOK = ToolSpec(name="look", description="Looks.")
CACHE_POINT = {"cachePoint": {"type": "default"}}


def ask(*messages, **fields):
    return Request(model=fields.pop("model", MODEL), messages=messages, **fields)


def sent(request):
    return json.loads(CODEC.encode(request).body)


def written(*messages, **fields):
    return sent(ask(*messages, **fields))["messages"]


def user(*parts, origin=None):
    said = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return Message(role="user", parts=said, origin=origin)


def assistant(*parts, origin=OWN):
    said = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return Message(role="assistant", parts=said, origin=origin)


def results(*parts, origin=None):
    return Message(role="tool", parts=parts, origin=origin)


def call(call_id, wire_id="", name="look", arguments="{}", **more):
    return ToolCall(id=call_id, name=name, arguments=arguments, wire_id=wire_id, **more)


def answer(call_id, *words, **more):
    return ToolResult(call_id=call_id, parts=tuple(Text(text=word) for word in words), **more)


# Path, body and digest


def test_what_changes_stands_behind_the_messages():
    request = ask(
        user("hi"),
        system=(Text(text="Be brief."),),
        tools=(LOOK,),
        tool_choice=ToolChoice(mode="any"),
        max_tokens=9,
        thinking=Thinking(mode="adaptive", effort="low", display="summarized"),
        output=OutputSpec(name="o", parameters='{"type": "object"}', description="An answer."),
        sampling=Sampling(temperature=0.5, top_p=0.9, top_k=3, stop_sequences=("END",)),
        extras=(Extra(name="serviceTier", json='{"type": "flex"}'),),
    )
    body = sent(request)
    shape = {"schema": '{"type": "object"}', "name": "o", "description": "An answer."}
    assert list(body)[:2] == ["system", "messages"]
    assert {name: body[name] for name in list(body)[2:]} == {
        "toolConfig": {
            "tools": [
                {
                    "toolSpec": {
                        "name": "look",
                        "description": "Looks.",
                        "inputSchema": {"json": json.loads(LOOK.parameters)},
                    }
                }
            ],
            "toolChoice": {"any": {}},
        },
        "inferenceConfig": {"maxTokens": 9, "stopSequences": ["END"], "temperature": 0.5, "topP": 0.9},
        "additionalModelRequestFields": {"thinking": {"type": "adaptive", "display": "summarized"}},
        "outputConfig": {
            "effort": "low",
            "textFormat": {"type": "json_schema", "structure": {"jsonSchema": shape}},
        },
        "serviceTier": {"type": "flex"},
    }
    assert sent(ask(user("hi"))) == {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}


def test_model_and_delivery_are_in_the_path_and_only_the_model_in_the_digest():
    request = ask(user("hi"))
    whole, streamed = CODEC.encode(replace(request, stream=False)), CODEC.encode(request)
    assert whole.path == "/model/maker.model-v1:0/converse"
    assert streamed.path == "/model/maker.model-v1:0/converse-stream"
    assert (whole.body, whole.digest) == (streamed.body, streamed.digest)
    profile = "arn:aws:cloud:eu-west-1:123456789012:inference-profile/x y"
    other = CODEC.encode(replace(request, model=replace(MODEL, id=profile)))
    assert other.path == f"/model/{profile.replace('/', '%2F').replace(' ', '%20')}/converse-stream"
    assert CODEC.decode_request(other).model.id == profile
    assert other.body == streamed.body
    assert other.digest != streamed.digest
    assert dict(other.headers) == {"content-type": "application/json"}


def spoken(**fields):
    """The model, at an endpoint with a dialect."""
    return replace(MODEL, endpoint=replace(ENDPOINT, dialect=json.dumps(fields)))


def test_settings_go_where_the_dialect_says():
    model = spoken(
        mode_at="additionalModelRequestFields.reasoningConfig.type",
        effort_at="additionalModelRequestFields.reasoningConfig.maxReasoningEffort",
        budget_at="",
        display_at="",
        top_k_at="additionalModelRequestFields.inferenceConfig.topK",
    )
    request = ask(
        user("hi"),
        model=model,
        thinking=Thinking(mode="enabled", effort="low", display="x", budget_tokens=5),
        sampling=Sampling(top_k=7),
        extras=(Extra(name="additionalModelRequestFields", json='{"a":1,"reasoningConfig":{"type":"x"}}'),),
    )
    assert sent(request)["additionalModelRequestFields"] == {
        "a": 1,
        "inferenceConfig": {"topK": 7},
        "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"},
    }


@pytest.mark.parametrize("dialect", ['{"mod_at":""}', "{", '{"result_status":"no"}', "[]"])
def test_a_dialect_nobody_speaks_is_refused(dialect):
    model = replace(MODEL, endpoint=replace(ENDPOINT, dialect=dialect))
    with pytest.raises(MisuseError, match="effort_at"):
        CODEC.encode(ask(user("hi"), model=model))


def test_an_allowance_for_thinking_is_a_mode():
    body = sent(ask(user("hi"), thinking=Thinking(budget_tokens=2_000)))
    assert body["additionalModelRequestFields"]["thinking"] == {"type": "enabled", "budget_tokens": 2_000}


def test_sampling_is_not_sent_to_a_model_that_refuses_it():
    model = replace(MODEL, abilities=Abilities(sampling=False))
    body = sent(ask(user("hi"), model=model, sampling=Sampling(temperature=1.0, stop_sequences=("x",))))
    assert body["inferenceConfig"] == {"stopSequences": ["x"]}


def test_extras_add_and_never_replace():
    for name, value in (("messages", "[]"), ("modelId", '"m"'), ("inferenceConfig", "[]"), ("new", "{")):
        with pytest.raises(MisuseError, match=name):
            CODEC.encode(ask(user("hi"), max_tokens=1, extras=(Extra(name=name, json=value),)))


def test_a_foreign_memory_of_messages_is_refused():
    with pytest.raises(MisuseError, match="another codec"):
        CODEC.encode(ask(user("hi")), load_codec("anthropic").new_history())


# Tools


def test_tools_ours_and_theirs():
    native = '{"systemTool":  {"name": "grounding"}}'
    tools = (ToolSpec(name="look", parameters='{"type":  "object"}'), ToolSpec(name="g", native=native))
    body = CODEC.encode(
        ask(user("hi"), tools=tools, breakpoints=(Breakpoint(position="tools", ttl="1h"),))
    ).body
    assert b'"inputSchema":{"json":{"type":  "object"}}' in body
    assert native.encode() in body
    assert json.loads(body)["toolConfig"]["tools"][2] == {"cachePoint": {"type": "default", "ttl": "1h"}}
    for broken in (ToolSpec(name="look", parameters="{"), ToolSpec(name="look", native="[]")):
        with pytest.raises(BadTool, match="look"):
            CODEC.encode(ask(user("hi"), tools=(broken,)))


HISTORY = (user("go"), assistant(call("c1", "t1", name="a.b")), results(answer("c1", "done")))


def test_a_history_of_calls_without_tools_gets_stand_ins_that_nobody_reads_back():
    request = ask(*HISTORY)
    tools = sent(request)["toolConfig"]["tools"]
    called = sent(request)["messages"][1]["content"][0]["toolUse"]["name"]
    assert [tool["toolSpec"]["name"] for tool in tools] == [called]
    assert called.startswith("a_b_")
    assert "must not be called" in tools[0]["toolSpec"]["description"]
    assert CODEC.decode_request(CODEC.encode(request)).tools == ()
    assert "toolConfig" not in sent(ask(HISTORY[0]))


def test_call_nothing_leaves_the_tools_declared_or_throws_the_models_own_switch():
    nothing = ToolChoice(mode="none")
    request = ask(*HISTORY, tools=(LOOK,), tool_choice=nothing, breakpoints=(Breakpoint(position="tools"),))
    for messages in (HISTORY, HISTORY[:1], (user("go"), assistant(SIGNED, "so"), user("on"))):
        asked = replace(request, messages=messages)
        assert sent(asked) == sent(replace(asked, tool_choice=ToolChoice()))
    assert any("tool choice 'none' was left out" in note for note in CODEC.list_losses(request))
    able = spoken(no_calls='{"additionalModelRequestFields":{"tool_choice":{"type":"none"}}}')
    body = sent(replace(request, model=able))
    assert body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "look"
    assert body["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}
    assert CODEC.list_losses(replace(request, model=able)) == ()


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        (ToolChoice(), None),
        (ToolChoice(mode="any", parallel=False), {"any": {}}),
        (ToolChoice(mode="tool", name="look"), {"tool": {"name": "look"}}),
    ],
)
def test_choices(choice, wire):
    assert sent(ask(user("hi"), tools=(LOOK,), tool_choice=choice))["toolConfig"].get("toolChoice") == wire
    assert "toolConfig" not in sent(ask(user("hi"), tool_choice=choice))


# Messages


def test_neighbours_of_one_role_become_one_turn_and_results_come_first():
    turns = written(
        user("go"),
        assistant(call("c1", "t1"), call("c2", "t2")),
        Message(role="user", parts=(Text(text="and?"), answer("c2", "two"), answer("c1", "one"))),
        user("well?"),
        assistant("so"),
        assistant("on"),
    )
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant"]
    assert turns[2]["content"] == [
        {"toolResult": {"toolUseId": "t2", "content": [{"text": "two"}]}},
        {"toolResult": {"toolUseId": "t1", "content": [{"text": "one"}]}},
        {"text": "and?"},
        {"text": "well?"},
    ]
    assert turns[3]["content"] == [{"text": "so"}, {"text": "on"}]


def test_blank_texts_are_not_sent_and_surrogates_are_mended():
    assert written(user("hi", " \n"), assistant("", "\t"), user("a\ud83db \ud83d\ude00")) == [
        {"role": "user", "content": [{"text": "hi"}, {"text": "a\ufffdb 😀"}]}
    ]


def test_the_user_begins():
    turns = written(assistant("hello"), user("hi"))
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[0]["content"][0]["text"].strip()


def answered(turns):
    return [
        [(block["toolResult"]["toolUseId"], block["toolResult"].get("status")) for block in turn["content"]
         if "toolResult" in block]
        for turn in turns
    ]  # fmt: skip


def test_every_call_is_answered_once_where_the_wire_wants_it():
    lost = "error"
    two = (user("go"), assistant(call("c1", "t1"), call("c2", "t2")))
    assert answered(written(*two)) == [[], [], [("t1", lost), ("t2", lost)]]
    assert answered(written(*two, results(answer("c2", "x")))) == [[], [], [("t2", None), ("t1", lost)]]
    split = written(*two, results(answer("c2", "x")), results(answer("c1", "x")), assistant("so"))
    assert answered(split) == [[], [], [("t2", None), ("t1", None)], []]
    spoke = written(*two, results(answer("c1", "x")), user("stop"), results(answer("c2", "late")))
    assert answered(spoke) == [[], [], [("t1", None), ("t2", lost)]]
    assert spoke[2]["content"][-1] == {"text": "stop"}
    went_on = written(*two, assistant("never mind"), user("ok"))
    assert [turn["role"] for turn in went_on] == ["user", "assistant", "user", "assistant", "user"]
    assert answered(went_on) == [[], [], [("t1", lost), ("t2", lost)], [], []]
    between = written(*two, Message(role="system", parts=(Text(text="Be brief."),)), user("ok"))
    assert [turn["role"] for turn in between] == ["user", "assistant", "user"]
    assert [block["text"] for block in between[2]["content"][2:]] == [OPERATOR_PREFIX, "Be brief.", "ok"]
    assert answered(between)[2] == [("t1", lost), ("t2", lost)]
    orphans = written(
        user("go"),
        results(answer("c9", "who?")),
        assistant(call("c1", "t1")),
        results(answer("c1", "x"), answer("c1", "again")),
        results(answer("c1", "thrice")),
    )
    assert answered(orphans) == [[], [], [("t1", None)]]


def test_a_silent_model_and_repeated_ids_leave_no_call_open():
    two = (user("go"), assistant(call("c1", "t1"), call("c2", "t2")), results(answer("c1", "x")))
    silent = written(*two, assistant(" "), user("well?"))
    assert answered(silent) == [[], [], [("t1", None), ("t2", "error")]]
    late = written(*two, assistant(" "), results(answer("c2", "y")))
    assert answered(late) == [[], [], [("t1", None), ("t2", None)]]
    same = written(
        user("go"),
        assistant(call("c1", "t1"), call("c1", "t2")),
        results(answer("c1", "x"), answer("c1", "y")),
    )
    assert answered(same) == [[], [], [("t1", None), ("t2", None)]]


def test_a_result_that_comes_takes_the_place_of_the_lost_one_without_moving_a_byte():
    kept = CODEC.new_history()
    line = (user("go"), assistant(call("c1", "t1"), call("c2", "t2")), results(answer("c2", "x")),
            results(answer("c1", "y")), assistant("so"))  # fmt: skip
    bodies = [CODEC.encode(ask(*line[:count]), kept).body for count in range(1, 6)]
    assert bodies == [CODEC.encode(ask(*line[:count])).body for count in range(1, 6)]
    for before, after in ((bodies[0], bodies[1]), (bodies[3], bodies[4])):
        end = before.index(b'],"toolConfig"') if b"toolConfig" in before else -2
        assert after.startswith(before[:end])


def test_ids_are_the_providers_where_they_are_legal_and_new():
    long = "x" * 70
    turns = written(
        user("go"),
        assistant(
            call("c1", "a.b:1"), call("c2", "a.b:1"), call("c3", ""), call("c4", "no way"), call("c5", long)
        ),
        results(*(answer(f"c{n}", "x") for n in (1, 2, 3, 4, 5))),
        assistant(call("c6", "c3"), call(long, "t7"), call(long + "y"), origin=FOREIGN),
        results(answer("c6", "x"), answer(long, "x"), answer(long + "y", "x")),
    )
    called = [
        block["toolUse"]["toolUseId"] for turn in turns for block in turn["content"] if "toolUse" in block
    ]
    assert called == ["a.b:1", "c2", "c3", "c4", "c5", "c6", "x" * 64, "x" * 62 + "_2"]
    assert [pair[0] for turn in answered(turns) for pair in turn] == called


def test_arguments_go_out_as_they_came():
    body = CODEC.encode(ask(user("x"), assistant(call("c1", "t1", arguments='{"b": 1.50,  "a": [ ]}')))).body
    assert b'"input":{"b": 1.50,  "a": [ ]}' in body


@pytest.mark.parametrize("broken", ['{"city": "Tok', "[1]", "nonsense"])
def test_arguments_that_are_no_object_are_wrapped_and_read_back(broken):
    request = ask(user("x"), assistant(call("c1", "t1", arguments=broken)))
    assert sent(request)["messages"][1]["content"][0]["toolUse"]["input"] == {"INVALID_JSON": broken}
    assert CODEC.decode_request(CODEC.encode(request)).messages[1].calls[0].arguments == broken


SIGNED = Reasoning(text="hm", signature="sig")
REDACTED = Reasoning(signature="YmxvYg==", redacted=True)
UNSIGNED = Reasoning(text="aha")
AS_SENT = {
    "signed": {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
    "redacted": {"reasoningContent": {"redactedContent": "YmxvYg=="}},
    "plain": {"reasoningContent": {"reasoningText": {"text": "aha"}}},
    "bare": {"reasoningContent": {"reasoningText": {"text": "hm"}}},
}


@pytest.mark.parametrize(
    ("policy", "origin", "kept"),
    [
        ("signed", OWN, ["signed", "redacted"]),
        ("may_echo", OWN, ["signed", "redacted", "plain"]),
        ("must_echo", OWN, ["signed", "redacted", "plain"]),
        ("strip", OWN, []),
        ("may_echo", SIBLING, []),
        ("signed", SIBLING, []),
        ("may_echo", replace(OWN, endpoint="proxy"), []),
        ("must_echo", SIBLING, ["bare", "plain"]),
        ("must_echo", FOREIGN, ["bare", "plain"]),
        ("may_echo", FOREIGN, []),
    ],
)
def test_reasoning_goes_back_to_the_model_that_made_it(policy, origin, kept):
    model = replace(MODEL, endpoint=replace(ENDPOINT, reasoning=policy))
    turns = written(user("x"), assistant(SIGNED, REDACTED, UNSIGNED, "so", origin=origin), model=model)
    assert turns[1]["content"] == [*(AS_SENT[name] for name in kept), {"text": "so"}]


def test_a_turn_does_not_end_in_reasoning():
    assert written(user("x"), assistant("so", SIGNED), user("y"))[1]["content"] == [{"text": "so"}]
    assert len(written(user("x"), assistant(SIGNED), user("y"))) == 1


def test_natives_go_out_again_to_their_own_model_only():
    server = (
        '{"toolUse": {"toolUseId": "s1", "name": "code", "input": {"q": 1.10}, "type": "server_tool_use"}}'
    )
    cited = Text(text="so", native='{"citationsContent":{"citations":[{"title":"t"}]}}')
    drawn = Media(kind="image", media_type="image/png", data="aGk=", native='{"error":{"message":"m"}}')
    parts = (Opaque(kind="toolUse", native=server), cited, drawn, call("c1", "t1", native='{"x":1}'))
    own = CODEC.encode(ask(user("x"), assistant(*parts)))
    assert server.encode() in own.body
    assert json.loads(own.body)["messages"][1]["content"][1:] == [
        {"citationsContent": {"citations": [{"title": "t"}], "content": [{"text": "so"}]}},
        {"image": {"format": "png", "source": {"bytes": "aGk="}, "error": {"message": "m"}}},
        {"toolUse": {"toolUseId": "t1", "name": "look", "input": {}, "x": 1}},
    ]
    for origin in (SIBLING, FOREIGN):
        foreign = written(user("x"), assistant(*parts, origin=origin))[1]["content"]
        assert [next(iter(block)) for block in foreign] == ["text", "text", "toolUse"]
        assert "image left out" in foreign[1]["text"]
        assert foreign[2]["toolUse"] == {"toolUseId": "c1", "name": "look", "input": {}}


def test_the_same_line_is_written_anew_for_another_model():
    kept = CODEC.new_history()
    request = ask(user("x"), assistant(SIGNED, "so"), user("y"))
    mine = CODEC.encode(request, kept).body
    other = replace(request, model=replace(MODEL, id=SIBLING.model))
    assert b"sig" in mine
    assert b"sig" not in CODEC.encode(other, kept).body
    assert CODEC.encode(request, kept).body == mine


def test_results_that_say_little():
    turns = written(
        user("x"),
        assistant(call("c1"), call("c2")),
        results(answer("c1"), answer("c2", " ", outcome="denied")),
    )
    good, bad = (block["toolResult"] for block in turns[2]["content"])
    assert good == {"toolUseId": "c1", "content": [{"text": "(no output)"}]}
    assert bad["status"] == "error"
    assert "denied" in bad["content"][0]["text"]
    line = (user("x"), assistant(call("c1")), results(answer("c1", "no", outcome="timeout")))
    told = written(*line, model=spoken(result_status=False))[2]["content"][0]["toolResult"]
    assert told == {"toolUseId": "c1", "content": [{"text": "[error: timeout]"}, {"text": "no"}]}


# Media


def test_pictures_documents_films_and_sounds():
    parts = (
        Media(kind="image", media_type="image/jpg", data="aGk="),
        Media(kind="image", url="s3://bucket/a.png", media_type="image/png"),
        Media(kind="image", url="https://example.com/a.png"),
        Media(kind="image", media_type="image/tiff", data="aGk="),
        Media(kind="document", media_type="application/pdf", data="aGk=", name="q3_report.final.pdf"),
        Media(kind="document", media_type="text/x-python", data="aGk=", name="q3-report-final-pdf"),
        Media(kind="document", data="aGk=", name="a.docx"),
        Media(kind="document", file_id="file_1", name="b"),
        Media(kind="video", media_type="video/quicktime", data="aGk="),
        Media(kind="audio", media_type="audio/x-wav", data="aGk="),
        Text(text="?"),
    )
    blocks = written(user(*parts))[0]["content"]
    assert blocks[0] == {"image": {"format": "jpeg", "source": {"bytes": "aGk="}}}
    assert blocks[1] == {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://bucket/a.png"}}}}
    assert "https://example.com/a.png" in blocks[2]["text"]
    assert "left out" in blocks[3]["text"]
    assert [
        (block["document"]["format"], block["document"]["name"]) for block in blocks if "document" in block
    ] == [("pdf", "q3-report-final-pdf"), ("txt", "q3-report-final-pdf (2)"), ("docx", "a-docx")]
    assert "b left out" in blocks[7]["text"]
    assert blocks[8]["video"]["format"] == "mov"
    assert blocks[9]["audio"]["format"] == "wav"
    inside = written(user("x"), assistant(call("c1")), results(ToolResult(call_id="c1", parts=parts[::9])))
    assert [next(iter(block)) for block in inside[2]["content"][0]["toolResult"]["content"]] == [
        "image",
        "text",
    ]


def test_a_document_is_never_alone():
    document = Media(kind="document", media_type="application/pdf", data="aGk=")
    assert [next(iter(block)) for block in written(user(document))[0]["content"]] == ["document", "text"]
    assert [next(iter(block)) for block in written(user("x", document))[0]["content"]] == ["text", "document"]


# Marks


def test_marks_on_messages_do_not_move_the_kept_bytes():
    kept = CODEC.new_history()
    film = Media(kind="video", media_type="video/mp4", data="aGk=")
    request = ask(user("a"), assistant(SIGNED, "b"), user("c", film), system=(Text(text="s"),))
    plain = CODEC.encode(request, kept).body
    marks = (
        Breakpoint(position="system", ttl="1h"),
        Breakpoint(position="message", message=0, ttl="1h"),
        Breakpoint(position="message", message=1),
        Breakpoint(position="end"),
    )
    body = json.loads(CODEC.encode(replace(request, breakpoints=marks), kept).body)
    long = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["system"] == [{"text": "s"}, long]
    assert body["messages"][0]["content"] == [{"text": "a"}, long]
    assert body["messages"][1]["content"][2] == CACHE_POINT
    # Nothing may stand between a film or a document and what follows it.
    assert [next(iter(block)) for block in body["messages"][2]["content"]] == ["text", "cachePoint", "video"]
    assert CODEC.encode(request, kept).body == plain
    with pytest.raises(MisuseError, match="7"):
        CODEC.encode(replace(request, breakpoints=(Breakpoint(position="message", message=7),)))
    unable = replace(
        request, model=replace(MODEL, abilities=Abilities()), breakpoints=(Breakpoint(position="end"),)
    )
    assert "cachePoint" not in json.dumps(sent(unable))


def test_marks_survive_beside_results_merged_turns_and_lost_answers():
    line = (user("go"), assistant(call("c1", "t1"), call("c2", "t2")), results(answer("c1", "x")))
    marks = (Breakpoint(position="message", message=1), Breakpoint(position="message", message=2))
    turns = written(*line, breakpoints=marks)
    assert [next(iter(block)) for block in turns[1]["content"]] == ["toolUse", "toolUse", "cachePoint"]
    assert [next(iter(block)) for block in turns[2]["content"]] == ["toolResult", "cachePoint", "toolResult"]
    more = written(*line, user("stop"), breakpoints=marks)
    kinds = [next(iter(block)) for block in more[2]["content"]]
    assert kinds == ["toolResult", "cachePoint", "toolResult", "text"]


# Laws


def test_all_laws_hold_for_requests_only_this_family_makes():
    picture = Media(kind="image", media_type="image/png", data="aGk=")
    paper = Media(kind="document", media_type="text/markdown", data="aGk=", name="paper (1)")
    request = ask(
        user("see", picture, paper, origin=OWN),
        assistant(SIGNED, REDACTED, "so", call("c2_0", "t1")),
        results(
            ToolResult(call_id="c2_0", parts=(picture, Text(text='{"a":1}', native='{"json":null}'))),
            origin=OWN,
        ),
        user(Text(text="safe", native='{"guardContent":{"text":{"qualifiers":["query"]}}}'), origin=OWN),
        system=(Text(text="s"), Text(text="t")),
        tools=(LOOK, ToolSpec(name="g", native='{"systemTool":{"name":"g"}}')),
        thinking=Thinking(mode="enabled", budget_tokens=7, effort="low"),
        breakpoints=(
            Breakpoint(position="tools"),
            Breakpoint(position="system", block=0),
            Breakpoint(position="system", ttl="1h"),
            Breakpoint(position="message", message=1),
        ),
        extras=(Extra(name="guardrailConfig", json='{"guardrailIdentifier":"g"}'),),
    )
    check_codec(CODEC, requests=[replace(request, model=replace(MODEL, endpoint=ENDPOINT))])


ID, NAME = re.compile(r"[a-zA-Z0-9_.:-]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,64}")
DOCUMENT_NAME = re.compile(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}")


def offences(body):
    """The rules of the wire a body breaks, by a reading of its own."""
    turns = body["messages"]
    if turns and turns[0]["role"] != "user":
        yield "the user begins"
    asked, names, used, tools = [], [], [], False
    for turn, following in zip_longest(turns, turns[1:]):
        kinds = [next(iter(block)) for block in turn["content"]]
        if not kinds or (following and following["role"] == turn["role"]):
            yield "speakers alternate and say something"
        if turn["role"] == "assistant" and kinds[-1] == "reasoningContent":
            yield "a turn ends in reasoning"
        results = [block["toolResult"] for block in turn["content"] if "toolResult" in block]
        if sorted(result["toolUseId"] for result in results) != sorted(asked):
            yield f"{asked} answered by {results}"
        if kinds[: len(results)] != ["toolResult"] * len(results):
            yield "results come first"
        if any(not result["content"] for result in results):
            yield "a result says something"
        asked = [block["toolUse"]["toolUseId"] for block in turn["content"] if "toolUse" in block]
        used += asked
        tools = tools or bool(asked)
        names += [block["toolUse"]["name"] for block in turn["content"] if "toolUse" in block]
        if "document" in kinds and "text" not in kinds:
            yield "a document has words beside it"
    if asked:
        yield "the last calls are answered"
    if len(set(used)) != len(used) or not all(map(ID.fullmatch, used)) or not all(map(NAME.fullmatch, names)):
        yield f"ids and names are legal: {used} {names}"
    if tools and not body.get("toolConfig", {}).get("tools"):
        yield "tools are declared"
    titles = [block["document"]["name"] for block in inner(body) if "document" in block]
    if len(set(titles)) != len(titles) or not all(map(DOCUMENT_NAME.fullmatch, titles)):
        yield f"documents have names of their own: {titles}"
    if any(not block["text"].strip() for block in inner(body) if "text" in block):
        yield "no text is blank"


def inner(body):
    for turn in body["messages"]:
        for block in turn["content"]:
            yield block
            yield from block.get("toolResult", {}).get("content", ())


def some_line(random):
    """Messages as careless importers, crashed runs and other models leave them behind."""
    calls, line = [], []
    for number in range(random.randint(0, 9)):
        role = random.choice(("user", "assistant", "tool", "user", "assistant"))
        origin = random.choice((OWN, OWN, SIBLING, FOREIGN, None)) if role == "assistant" else None
        parts = []
        for place in range(random.randint(0, 4)):
            match random.randrange(8):
                case 0 | 1:
                    parts.append(Text(text=random.choice(("word", "", " \n", "a\ud83d"))))
                case 2:
                    parts.append(random.choice((SIGNED, REDACTED, UNSIGNED)))
                case 3 | 4:
                    wire_id = random.choice(("", "t1", "t2", f"t{number}", "no way", "x" * 99))
                    calls.append(random.choice((f"c{number}_{place}", f"c{number}_{place}", "c0")))
                    parts.append(call(calls[-1], wire_id, name=random.choice(("look", "", "a.b" * 40))))
                case 5:
                    words = random.choice(((), ("x",), (" ",)))
                    outcome = random.choice(("ok", "ok", "error", "timeout"))
                    parts.append(answer(random.choice([*calls, "c9"]), *words, outcome=outcome))
                case 6 if origin is not OWN:
                    name = random.choice(("", "a.b", "a  b", "ü"))
                    parts.append(Media(kind="document", media_type="text/plain", data="aGk=", name=name))
                case 7:
                    parts.append(Opaque(kind="new", native='{"new":{}}'))
        line.append(Message(role=role, parts=tuple(parts), id=f"m{number}", origin=origin))
    return line


def test_whatever_the_line_the_body_is_legal():
    """Seeded: the number of a failing try is enough to see it again."""
    for number in range(1_500):
        random = Random(number)
        line = some_line(random)
        policy = random.choice(("signed", "may_echo", "must_echo", "strip"))
        model = replace(MODEL, endpoint=replace(ENDPOINT, reasoning=policy))
        kept = CODEC.new_history()
        for count in range(len(line) + 1):
            encoded = CODEC.encode(ask(*line[:count], model=model), kept)
            assert encoded == CODEC.encode(ask(*line[:count], model=model)), number
        assert list(offences(json.loads(encoded.body))) == [], number


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("us.anthropic.claude-x-v1:0", "global.anthropic.claude-x-v1:0", True),
        ("anthropic.claude-x-v1:0", "eu.anthropic.claude-x-v1:0", True),
        ("us-gov.anthropic.claude-x", "anthropic.claude-x", True),
        ("zai.glm-4.6", "us.zai.glm-4.6", True),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-x", "anthropic.claude-x", True),
        ("us.anthropic.claude-x", "us.anthropic.claude-y", False),
        ("zai.glm-4.6", "zai.glm-4.7", False),
        ("us.amazon.nova", "anthropic.claude-x", False),
        ("mine", "yours", False),
        ("mine", "anthropic.claude-x", False),
    ],
)
def test_reasoning_follows_the_model_from_region_to_region(before, now, same):
    said = assistant(SIGNED, "so", origin=replace(OWN, model=before))
    turns = written(user("go"), said, user("on"), model=replace(MODEL, id=now))
    kinds = [next(iter(block)) for block in turns[1]["content"]]
    assert kinds == (["reasoningContent", "text"] if same else ["text"])
