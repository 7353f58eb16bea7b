"""Requests to Bedrock Converse: what is written, in which order, under which ids and names."""

import json

import pytest
from msgspec.structs import replace

from bridle.providers.wire.system_messages import OPERATOR_PREFIX
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Message, Opaque, Text, ToolResult
from bridle.values.model import Abilities
from bridle.values.request import Breakpoint, Extra, Sampling, Thinking, ToolChoice
from tests.providers.bedrock.bedrock_requests import ENDPOINT, LOOK, OWN, SIBLING, SIGNED, TALK
from tests.providers.kit.encode_kit import FOREIGN, answer, call, results, user

CODEC, MODEL = TALK.codec, TALK.model
ask, sent, written, assistant = TALK.ask, TALK.sent, TALK.written, TALK.assistant
CACHE_POINT = {"cachePoint": {"type": "default"}}


# Path, body and digest


def test_nothing_asked_is_nothing_sent():
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


def model_with_dialect(**fields):
    """The model, at an endpoint with a dialect."""
    return replace(MODEL, endpoint=replace(ENDPOINT, dialect=json.dumps(fields)))


def test_settings_go_where_the_dialect_says():
    model = model_with_dialect(
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
        extras=(
            Extra(
                name="additionalModelRequestFields", json='{"a":1,"reasoningConfig":{"type":"enabled","b":2}}'
            ),
        ),
    )
    assert sent(request)["additionalModelRequestFields"] == {
        "a": 1,
        "inferenceConfig": {"topK": 7},
        "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low", "b": 2},
    }


@pytest.mark.parametrize("dialect", ['{"mod_at":""}', "{", '{"result_status":"no"}', "[]"])
def test_an_unknown_dialect_is_refused(dialect):
    model = replace(MODEL, endpoint=replace(ENDPOINT, dialect=dialect))
    with pytest.raises(MisuseError, match="effort_at"):
        CODEC.encode(ask(user("hi"), model=model))


def test_an_allowance_for_thinking_is_a_mode():
    body = sent(ask(user("hi"), thinking=Thinking(budget_tokens=2_000)))
    assert body["additionalModelRequestFields"]["thinking"] == {"type": "enabled", "budget_tokens": 2_000}


# Tools


def test_a_mark_on_tools_is_a_block_behind_them():
    body = sent(ask(user("hi"), tools=(LOOK,), breakpoints=(Breakpoint(position="tools", ttl="1h"),)))
    assert body["toolConfig"]["tools"][1] == {"cachePoint": {"type": "default", "ttl": "1h"}}


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
    able = model_with_dialect(no_calls='{"additionalModelRequestFields":{"tool_choice":{"type":"none"}}}')
    body = sent(replace(request, model=able))
    assert body["toolConfig"]["tools"][0]["toolSpec"]["name"] == "look"
    assert body["additionalModelRequestFields"] == {"tool_choice": {"type": "none"}}
    assert CODEC.list_losses(replace(request, model=able)) == ()


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


def test_the_user_begins():
    turns = written(assistant("hello"), user("hi"))
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[0]["content"][0]["text"].strip()


def list_result_statuses(turns):
    return [
        [(block["toolResult"]["toolUseId"], block["toolResult"].get("status")) for block in turn["content"]
         if "toolResult" in block]
        for turn in turns
    ]  # fmt: skip


def test_every_call_is_answered_once_where_the_wire_wants_it():
    lost = "error"
    two = (user("go"), assistant(call("c1", "t1"), call("c2", "t2")))
    assert list_result_statuses(written(*two)) == [[], [], [("t1", lost), ("t2", lost)]]
    assert list_result_statuses(written(*two, results(answer("c2", "x")))) == [
        [],
        [],
        [("t2", None), ("t1", lost)],
    ]
    split = written(*two, results(answer("c2", "x")), results(answer("c1", "x")), assistant("so"))
    assert list_result_statuses(split) == [[], [], [("t2", None), ("t1", None)], []]
    spoke = written(*two, results(answer("c1", "x")), user("stop"), results(answer("c2", "late")))
    assert list_result_statuses(spoke) == [[], [], [("t1", None), ("t2", lost)]]
    assert spoke[2]["content"][-1] == {"text": "stop"}
    went_on = written(*two, assistant("never mind"), user("ok"))
    assert [turn["role"] for turn in went_on] == ["user", "assistant", "user", "assistant", "user"]
    assert list_result_statuses(went_on) == [[], [], [("t1", lost), ("t2", lost)], [], []]
    between = written(*two, Message(role="system", parts=(Text(text="Be brief."),)), user("ok"))
    assert [turn["role"] for turn in between] == ["user", "assistant", "user"]
    assert [block["text"] for block in between[2]["content"][2:]] == [OPERATOR_PREFIX, "Be brief.", "ok"]
    assert list_result_statuses(between)[2] == [("t1", lost), ("t2", lost)]
    orphans = written(
        user("go"),
        results(answer("c9", "who?")),
        assistant(call("c1", "t1")),
        results(answer("c1", "x"), answer("c1", "again")),
        results(answer("c1", "thrice")),
    )
    assert list_result_statuses(orphans) == [[], [], [("t1", None)]]


def test_a_silent_model_and_repeated_ids_leave_no_call_open():
    two = (user("go"), assistant(call("c1", "t1"), call("c2", "t2")), results(answer("c1", "x")))
    silent = written(*two, assistant(" "), user("well?"))
    assert list_result_statuses(silent) == [[], [], [("t1", None), ("t2", "error")]]
    late = written(*two, assistant(" "), results(answer("c2", "y")))
    assert list_result_statuses(late) == [[], [], [("t1", None), ("t2", None)]]
    same = written(
        user("go"),
        assistant(call("c1", "t1"), call("c1", "t2")),
        results(answer("c1", "x"), answer("c1", "y")),
    )
    assert list_result_statuses(same) == [[], [], [("t1", None), ("t2", None)]]


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
    assert [pair[0] for turn in list_result_statuses(turns) for pair in turn] == called


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


def test_the_same_conversation_is_rewritten_for_another_model():
    kept = CODEC.new_history()
    request = ask(user("x"), assistant(SIGNED, "so"), user("y"))
    mine = CODEC.encode(request, kept).body
    other = replace(request, model=replace(MODEL, id=SIBLING.model))
    assert b"sig" in mine
    assert b"sig" not in CODEC.encode(other, kept).body
    assert CODEC.encode(request, kept).body == mine


def test_a_failed_call_says_so_by_its_status_or_in_words():
    line = (user("x"), assistant(call("c1")), results(answer("c1", "no", outcome="timeout")))
    assert written(*line)[2]["content"][0]["toolResult"]["status"] == "error"
    told = written(*line, model=model_with_dialect(result_status=False))[2]["content"][0]["toolResult"]
    assert told == {"toolUseId": "c1", "content": [{"text": "[error: timeout]"}, {"text": "no"}]}


# Media


def test_documents_have_names_of_their_own_and_results_may_hold_pictures():
    documents = (
        Media(kind="document", media_type="application/pdf", data="aGk=", name="q3_report.final.pdf"),
        Media(kind="document", media_type="text/x-python", data="aGk=", name="q3-report-final-pdf"),
        Media(kind="document", data="aGk=", name="a.docx"),
    )
    blocks = [block["document"] for block in written(user(*documents, "?"))[0]["content"][:3]]
    names = [("pdf", "q3-report-final-pdf"), ("txt", "q3-report-final-pdf (2)"), ("docx", "a-docx")]
    assert [(block["format"], block["name"]) for block in blocks] == names
    parts = (
        Media(kind="image", media_type="image/jpg", data="aGk="),
        Media(kind="audio", media_type="audio/x-wav", data="aGk="),
    )
    inside = written(user("x"), assistant(call("c1")), results(ToolResult(call_id="c1", parts=parts)))
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
