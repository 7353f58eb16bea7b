"""Replies that only Bedrock Converse makes; `tests/providers/kit` holds what every wire must do."""

from bridle.values.message import Reply, Stop, Text, ToolCall
from bridle.values.result import CallReady
from tests.providers.bedrock.bedrock_replies import (
    BEGIN,
    ORIGIN,
    WIRE,
    delta,
    message,
    message_stop,
    start,
    stop,
    stream,
    stream_message,
)


def test_a_citation_applies_to_its_text_wherever_it_arrives():
    cited = Text(
        text="twenty days", native='{"citationsContent":{"citations":[{"title":"a"},{"title":"b"}]}}'
    )
    for order in ("ccww", "wwcc", "cwcw"):
        words, titles = iter(("twenty ", "days")), iter("ab")
        events = [
            delta(0, text=next(words)) if each == "w" else delta(0, citation={"title": next(titles)})
            for each in order
        ]
        reply, deltas = WIRE.decode(stream_message(*events))
        assert reply.parts == (cited,)
        assert "".join(delta.text for delta in deltas) == "twenty days"
    whole = message({"citationsContent": {"citations": [{"title": "a"}, {"title": "b"}],
                                          "content": [{"text": "twenty days"}]}})  # fmt: skip
    assert WIRE.decode(whole)[0].parts == (cited,)


def test_calls_of_the_providers_own_tools_are_kept_and_not_run():
    used = {"name": "code", "toolUseId": "s", "type": "server_tool_use"}
    found = {"status": "success", "toolUseId": "s", "type": "code_result"}
    reply, deltas = WIRE.decode(
        stream_message(
            start(0, toolUse=used),
            delta(0, toolUse={"input": '{"q":'}),
            delta(0, toolUse={"input": "1}"}),
            start(1, toolResult=found),
            delta(1, toolResult=[{"text": "[HIDDEN]"}]),
            delta(1, toolResult=[{"json": {}}]),
        )
    )
    assert deltas == []
    assert reply.calls == ()
    contents = [{"text": "[HIDDEN]"}, {"json": {}}]
    native = ({"toolUse": {"input": {"q": 1}, **used}}, {"toolResult": {"content": contents, **found}})
    assert WIRE.decode(message(*native))[0].parts == reply.parts
    assert [part.kind for part in reply.parts] == ["toolUse", "toolResult"]


def test_the_reason_of_a_guardrail_arrives_with_the_counts():
    why = "guardrail_intervened: Guardrail blocked."
    said = Reply(parts=(Text(text="No."),), stop=Stop.FILTERED, origin=ORIGIN, id="r-1", stop_detail=why)
    for whole in (True, False):
        spoken = WIRE.server.encode_reply(said, stream=not whole)
        assert WIRE.decode(b"".join(spoken.frames))[0].stop_detail == why
    assert (
        WIRE.decode(b"".join(WIRE.server.encode_reply(said, stream=True).frames[:-1]))[0].stop_detail
        == "guardrail_intervened"
    )


def test_nulls_unknown_members_and_numbers_with_a_point_hide_nothing():
    odd = stream(
        BEGIN,
        delta(0.0, tomorrow={"x": 1}, image=None, text="Hel"),
        delta(0.0, toolUse=None, text="lo"),
        stop(0.0),
        start(1.0, toolUse={"toolUseId": "t", "name": "a"}),
        delta(1.0, text=None, toolUse={"input": "{}"}),
        stop(1.0),
        message_stop("tool_use"),
    )
    reply, deltas = WIRE.decode(odd)
    assert reply.parts == (Text(text="Hello"), ToolCall(id="", name="a", arguments="{}", wire_id="t"))
    assert any(isinstance(each, CallReady) for each in deltas)
