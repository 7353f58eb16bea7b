"""A bug in a tool leaves its traceback: in the program's log, and in the record of the call."""

import asyncio
import logging

import pytest

from bridle import Agent, MisuseError, ModelRetry, OutcomeUnknown, tool, toolkit
from bridle.errors import BadTool
from bridle.sessions import redact_record
from bridle.stores.memory import MemoryStore
from bridle.testing import call_reply, scripted
from bridle.values.events import ToolFinished


class NoSuchCustomer(LookupError):
    pass


@tool(effect="read", errors=[NoSuchCustomer])
def find(name: str) -> str:
    """Find."""
    raise NoSuchCustomer(name)


@tool(effect="read")
def broken(name: str) -> str:
    """Broken."""
    return {"a": "b"}[name]


@tool(effect="read")
def again(name: str) -> str:
    """Again."""
    raise ModelRetry("another name, please")


@tool(effect="write")
def lost(name: str) -> str:
    """Lost."""
    raise OutcomeUnknown("the service is gone")


TOOLS = [find, broken, again, lost]


def run(name, *replies, **options):
    agent = Agent(
        scripted(call_reply((name, {"name": "zoe"})), *(replies or ("The end.",))),
        tools=TOOLS,
        store=MemoryStore(),
        **options,
    )
    return agent, agent.run_sync("Go.")


def read_finished(agent, session):
    records = asyncio.run(agent.store.read(session))
    return next((record for record in records if isinstance(record.event, ToolFinished)), None)


def test_a_bug_is_logged_with_its_traceback_and_the_model_is_told(caplog):
    _, result = run("broken")
    assert result.done
    (record,) = [each for each in caplog.records if each.name == "bridle.tools"]
    assert record.levelno == logging.WARNING
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
    assert 'return {"a": "b"}[name]' in caplog.text
    assert "run_tool.py" not in caplog.text  # only the tool's own frames
    assert result.messages[2].results[0].text == "KeyError: 'zoe'"


def test_the_record_names_the_place_and_has_the_traceback():
    agent, result = run("broken")
    raised = read_finished(agent, result.session).event.raised
    assert (raised.type, raised.place.split(":")[0]) == ("KeyError", "test_tool_errors.py")
    assert 'return {"a": "b"}[name]' in raised.traceback


def test_the_traceback_can_be_redacted():
    agent, result = run("broken")
    found = read_finished(agent, result.session)
    asyncio.run(redact_record(agent.store, result.session, found.seq, reason="private", by="me"))
    left = read_finished(agent, result.session).event
    assert "zoe" not in left.raised.traceback
    assert left.raised.type == "KeyError"


@pytest.mark.parametrize("name", ["find", "again", "lost"])
def test_a_declared_exception_is_no_bug(name, caplog):
    agent, result = run(name, tool_errors="raise")
    assert not [each for each in caplog.records if each.name == "bridle.tools"]
    assert result.done
    finished = read_finished(agent, result.session)
    assert finished is None or finished.event.raised is None


def test_tools_of_bridle_answer_the_model_by_exceptions(caplog, tmp_path):
    agent = Agent(
        scripted(call_reply(("read_file", {"path": "missing.txt"})), "There is none."),
        tools=toolkit.files(tmp_path),
        store=MemoryStore(),
        tool_errors="raise",
    )
    result = agent.run_sync("Read it.")
    assert result.done
    assert "missing.txt" in result.messages[2].results[0].text
    assert not [each for each in caplog.records if each.name == "bridle.tools"]


def test_tool_errors_raise_ends_the_run_as_failed():
    agent, result = run("broken", tool_errors="raise")
    assert result.stop == "failed"
    assert "`broken` raised KeyError at test_tool_errors.py:" in result.reason
    assert agent.resume_sync(result.session).text == "The end."  # the model reads the error


def test_a_key_in_an_exception_reaches_neither_log_nor_record(caplog, monkeypatch):
    key = "sk-ant-very-secret-0123456789"
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)

    @tool(effect="read")
    def leak(name: str) -> str:
        """Leak."""
        raise RuntimeError(f"401 for {key}")

    from bridle.run.calls.raised_errors import report_error
    from bridle.run.known_secrets import KnownSecrets
    from bridle.run.model_connection import connect_model, find_model_by_name
    from bridle.values.message import ToolCall

    connection = connect_model(find_model_by_name("anthropic:claude-sonnet-5-5"))
    try:
        raise RuntimeError(f"401 for {key}")
    except RuntimeError as error:
        described = report_error(
            leak, ToolCall(id="c1", name="leak", arguments="{}"), error, KnownSecrets([connection])
        )
    assert key not in caplog.text
    assert key not in described.traceback
    assert "RuntimeError" in caplog.text


@pytest.mark.parametrize("given", ["ValueError", [ValueError, "x"], [int], 3])
def test_errors_must_be_exception_types(given):
    with pytest.raises(BadTool, match="errors="):

        @tool(errors=given)
        def wrong(name: str) -> str:
            """Wrong."""
            return name


def test_another_value_of_tool_errors_is_refused():
    with pytest.raises(MisuseError, match="tool_errors"):
        Agent("sim:", tool_errors="ignore")  # type: ignore[arg-type]


def test_control_characters_of_a_message_reach_no_log(caplog):
    @tool(effect="read")
    def odd(name: str) -> str:
        """Odd."""
        raise ValueError("red \x1b[31m and \udc80")

    agent = Agent(scripted(call_reply(("odd", {"name": "x"})), "The end."), tools=[odd], store=MemoryStore())
    assert agent.run_sync("Go.").done
    assert "ValueError" in caplog.text
    assert "\x1b" not in caplog.text
    caplog.text.encode()
