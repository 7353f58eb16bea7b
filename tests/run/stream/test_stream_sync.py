"""A stream without an event loop: `for event in agent.stream_sync(…)`."""

import threading

import pytest

from bridle import Agent, FinalAnswer, MisuseError, RunStopped, tool
from bridle.events import ToolStarted
from bridle.stores.memory import MemoryStore
from bridle.testing import call_reply, scripted
from bridle.values.errors import Failure


def make_agent(*replies, **options):
    return Agent(scripted(*replies), store=MemoryStore(), **options)


def test_it_yields_what_the_stream_yields_and_the_answer_last():
    items = list(make_agent("Hello, you.").stream_sync("Hi."))
    assert "".join(item.text for item in items[:-1] if not hasattr(item, "unique_key")) == "Hello, you."
    assert isinstance(items[-1], FinalAnswer)
    assert items[-1].result.text == "Hello, you."


def test_leaving_the_loop_ends_the_run_and_the_next_prompt_works():
    release = threading.Event()

    @tool(effect="read")
    def wait() -> str:
        """Wait."""
        release.wait()
        return "late"

    agent = make_agent(call_reply(("wait", {})), "The end.", tools=[wait])
    for item in agent.stream_sync("Go.", "s"):
        if isinstance(item, ToolStarted):
            break
    release.set()
    assert agent.run_sync("Again.", "s", check=True).text == "The end."


def test_a_block_ends_the_run():
    agent = make_agent("One two three four.", "Yes.")
    with agent.stream_sync("Go.", "s") as stream:
        next(iter(stream))
    assert agent.run_sync("Again?", "s").done


def test_it_can_be_iterated_once():
    stream = make_agent("Hello.").stream_sync("Hi.")
    list(stream)
    with pytest.raises(MisuseError, match="once"):
        list(stream)


def test_errors_of_the_run_reach_the_loop():
    refused = Failure(kind="unauthorized", message="no", status=401)
    items = list(make_agent(refused).stream_sync("Hi."))
    assert items[-1].result.stop == "failed"
    with pytest.raises(RunStopped):
        list(make_agent(refused, raise_on_stop=True).stream_sync("Hi."))


def test_a_thread_without_signals_reads_it_too():
    texts = []
    agent = make_agent("Hello.")
    thread = threading.Thread(target=lambda: texts.append(list(agent.stream_sync("Hi."))[-1].result.text))
    thread.start()
    thread.join()
    assert texts == ["Hello."]


def test_approvals_without_an_event_loop():
    paid = []

    @tool(approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    agent = make_agent(call_reply(("pay", {"amount": 5})), "Paid.", tools=[pay])
    result = agent.run_sync("Pay 5.")
    (question,) = agent.approvals_sync(result.session)
    assert agent.fork_sync(result.session).session != result.session
    agent.approve_sync(result.session, question.id)
    assert agent.resume_sync(result.session).text == "Paid."
    assert paid == [5]
    other = agent.run_sync("Pay 5.")
    (question,) = agent.approvals_sync(other.session)
    agent.reject_sync(other.session, question.id, reason="no")
    assert agent.resume_sync(other.session).done
    assert paid == [5]
