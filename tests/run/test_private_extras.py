"""The values of extras reach the provider and nothing else: no log, recording, terminal or error text."""

import asyncio
import io
import json

import pytest

from bridle import Agent, MisuseError
from bridle.cli.main import main
from bridle.ports.transport import OutgoingRequest
from bridle.stores import open_store
from bridle.testing import recording, replaying, scripted
from bridle.transports.recorded import RecordedReply, scrub_exchange
from bridle.values.cache import PrefixMoved
from bridle.values.errors import Failure
from bridle.values.events import Configured, ModelReplied
from bridle.values.request import Extra
from bridle.watchers.console import Console
from tests.run.private_settings import PHRASE, TOKEN, connect_recorded, events, files_in

FIELDS = {
    "anthropic/claude-sonnet-5-5": ("metadata", {"user_id": TOKEN}),
    "openai/gpt-6.1-sol": ("metadata", {"a": TOKEN, "b": PHRASE}),
    "openai-chat/gpt-6.1-sol": ("metadata", {"a": TOKEN, "b": PHRASE}),
    "gemini/gemini-3.8-flash": ("labels", {"a": TOKEN, "b": "otter"}),
    "bedrock/us.anthropic.claude-sonnet-5-5": ("requestMetadata", {"a": TOKEN, "b": "otter"}),
}
TAGGED = FIELDS["openai-chat/gpt-6.1-sol"]


def make_extra(name, value):
    return Extra(name=name, json=json.dumps(value))


@pytest.mark.parametrize("wire", FIELDS)
def test_the_provider_gets_the_value_and_no_log_recording_or_terminal_does(wire, tmp_path):
    name, value = FIELDS[wire]
    connection, transport = connect_recorded(wire)
    shown, noted = io.StringIO(), io.StringIO()
    with recording(tmp_path / "traffic.jsonl") as recorded:
        agent = Agent(
            recorded(connection),
            store=tmp_path / "log.db",
            extras=[make_extra(name, value)],
            watchers=[Console(shown, noted)],
        )
        assert agent.run_sync("!say Hello.", session="s").text == "Hello."
        asyncio.run(agent.store.close())
    assert [body[name] for body in transport.bodies] == [value]
    kept = (
        files_in(tmp_path)
        + shown.getvalue().encode()
        + noted.getvalue().encode()
        + repr(agent.settings).encode()
    )
    assert not [text for text in value.values() if text.encode() in kept]
    assert b'"[secret]"' in (tmp_path / "traffic.jsonl").read_bytes()


def test_a_recording_without_the_value_is_replayed(tmp_path):
    path, model = tmp_path / "traffic.jsonl", "sim:openai-chat/gpt-6.1-sol"
    with recording(path) as recorded:
        Agent(recorded(model), extras=[make_extra(*TAGGED)]).run_sync("!say Hello.")
    assert (
        Agent(replaying(path, model), extras=[make_extra(*TAGGED)]).run_sync("!say Hello.").text == "Hello."
    )


def test_a_reply_that_repeats_the_credential_is_kept_without_it():
    agent = Agent("sim:openai-chat/gpt-6.1-sol", extras=[make_extra(*TAGGED)])
    result = agent.run_sync(f"!say {TOKEN} and {PHRASE}.", session="s")
    assert result.text == f"[key] and {PHRASE}.", "ordinary words are not taken out of a conversation"
    records = asyncio.run(agent.store.read("s"))
    assert not [r for r in records if isinstance(r.event, ModelReplied) and TOKEN.encode() in r.data]


def test_an_error_that_repeats_any_value_is_kept_without_it(tmp_path):
    refusal = Failure(kind="invalid", message=f"metadata: {TOKEN} and {PHRASE} are not allowed", status=400)
    with recording(tmp_path / "traffic.jsonl") as recorded:
        model = recorded(scripted(refusal, model="openai-chat:gpt-6.1-sol"))
        agent = Agent(model, store=tmp_path / "log.db", extras=[make_extra(*TAGGED)])
        result = agent.run_sync("Hello.", session="s")
        asyncio.run(agent.store.close())
    assert result.stop == "failed"
    assert "metadata: [key] and [key] are not allowed" in result.reason
    assert not [text for text in (TOKEN, PHRASE) if text.encode() in files_in(tmp_path)]


@pytest.mark.parametrize("text", [TOKEN, PHRASE, "Zoë ✓ 😀", "u1", 'say "yes"\\n'])
@pytest.mark.parametrize("escaped", [False, True])
def test_a_recording_has_no_hidden_text_in_any_spelling(text, escaped):
    data = {"metadata": {"a": text}, "messages": [f"a sentence with {text}", "u12"]}
    body = json.dumps(data, ensure_ascii=escaped).encode()
    sent = OutgoingRequest(
        method="POST", url="https://h/v1", headers=(), body=body, private_texts=frozenset({text})
    )
    for status in (200, 400):
        kept = scrub_exchange(sent, RecordedReply(status=status, body=body + b"\xff"))
        assert json.loads(kept.body)["metadata"] == {"a": "[secret]"}
        assert json.loads(kept.answer.body[:-1])["metadata"] == {"a": "[secret]"}
        assert kept.answer.body.endswith(b"\xff"), "binary data stays as it is"
        assert json.loads(kept.body)["messages"] == data["messages"], "only whole strings are replaced"


def test_words_that_prices_and_lifetimes_depend_on_stay_in_the_log():
    given = (
        make_extra("service_tier", "priority"),
        make_extra("cache_control", {"type": "ephemeral", "ttl": "1h"}),
        make_extra("max_tool_calls", 3),
    )
    chain = ["sim:openai/gpt-6.1-sol", "sim:anthropic/claude-sonnet-5-5"]
    settings = Agent(chain, extras=given).settings
    assert [(each.json, each.digest) for each in settings.extras] == [(each.json, "") for each in given]


def test_given_again_the_extra_is_sent_again_and_nothing_is_recorded_about_it(tmp_path):
    for _ in range(2):
        connection, transport = connect_recorded("openai-chat/gpt-6.1-sol")
        agent = Agent(connection, store=tmp_path / "log.db", extras=[make_extra(*TAGGED)])
        agent.run_sync("!say Hello.", session="s")
        asyncio.run(agent.store.close())
        assert [body["metadata"] for body in transport.bodies] == [TAGGED[1]]
    assert len([event for event in events(tmp_path / "log.db") if isinstance(event, Configured)]) == 1


def test_not_given_again_no_mark_is_sent_and_the_omission_is_an_event(tmp_path):
    first = Agent("sim:openai-chat/gpt-6.1-sol", store=tmp_path / "log.db", extras=[make_extra(*TAGGED)])
    first.run_sync("!say Hello.", session="s")
    asyncio.run(first.store.close())
    connection, transport = connect_recorded("openai-chat/gpt-6.1-sol")
    second = Agent(connection, store=tmp_path / "log.db")
    assert second.run_sync("!say Again.", session="s").text == "Again."
    asyncio.run(second.store.close())
    assert ["metadata" in body for body in transport.bodies] == [False]
    configured = [event for event in events(tmp_path / "log.db") if isinstance(event, Configured)]
    assert [event.omitted_extras for event in configured] == [(), ("metadata",)]


def test_another_value_is_noticed_as_a_change(tmp_path):
    for value in (TOKEN, TOKEN[::-1]):
        agent = Agent(
            "sim:openai-chat/gpt-6.1-sol", store=tmp_path / "log.db", extras=[make_extra("user", value)]
        )
        agent.run_sync("!say Hello.", session="s")
        asyncio.run(agent.store.close())
    seen = events(tmp_path / "log.db")
    assert len([event for event in seen if isinstance(event, Configured)]) == 2
    assert [event.why for event in seen if isinstance(event, PrefixMoved)]


def test_a_run_waiting_for_its_second_step_resumes_with_the_value(tmp_path):
    """The request that is made again after a crash is the same, byte for byte."""
    path = tmp_path / "log.db"

    def agent():
        connection, transport = connect_recorded("openai-chat/gpt-6.1-sol")
        return Agent(connection, store=path, extras=[make_extra(*TAGGED)]), transport

    first, _ = agent()
    first.run_sync("!say Hello.", session="s")
    records = asyncio.run(first.store.read("s"))
    asyncio.run(first.store.close())
    asked = [record.seq for record in records if type(record.event).__name__ == "ModelAsked"]

    async def cut():
        store = open_store(path)
        await store.append("t", 0, records[: asked[0]])
        await store.close()

    asyncio.run(cut())
    second, transport = agent()
    assert asyncio.run(second.resume("t")).text == "Hello."
    asyncio.run(second.store.close())
    assert [body["metadata"] for body in transport.bodies] == [TAGGED[1]]


def test_the_command_line_leaves_a_hidden_extra_out_and_reports_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    path = tmp_path / "log.db"
    agent = Agent("sim:openai-chat/gpt-6.1-sol", store=path, extras=[make_extra(*TAGGED)])
    agent.run_sync("!say Hello.", session="s")
    asyncio.run(agent.store.close())
    assert main(["run", "!say Again.", "--session", "s", "--store", str(path)]) == 0
    assert (
        "the logged extra 'metadata' has values that the log does not hold and is not sent"
        in capsys.readouterr().err
    )
    assert main(["show", "s", "--store", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "the extra 'metadata': its values are not in the log" in printed
    assert TOKEN not in printed


def test_a_mark_from_a_log_is_refused_as_an_extra():
    marks = Agent("sim:openai-chat/gpt-6.1-sol", extras=[make_extra(*TAGGED)]).settings.extras
    with pytest.raises(MisuseError, match="the extra 'metadata' comes from a log"):
        Agent("sim:openai-chat/gpt-6.1-sol", extras=marks)


def test_text_that_is_no_json_is_refused_at_once_and_not_repeated():
    with pytest.raises(MisuseError, match="extra 'metadata' holds no JSON") as caught:
        Agent("sim:", extras=[Extra(name="metadata", json=f'{{"a": {TOKEN}')])
    assert TOKEN not in str(caught.value)
