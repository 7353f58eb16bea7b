"""`run_sync` from every kind of caller."""

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import textwrap
import threading
import types

import pytest

from bridle import Agent, tool
from bridle.run.sync import NOTEBOOK_MODULE
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply


def test_again_and_again():
    agent = Agent(scripted("yes"))
    assert [agent.run_sync("?").text for _ in range(3)] == ["yes"] * 3


def test_inside_a_running_loop_as_in_a_notebook(monkeypatch):
    monkeypatch.setitem(sys.modules, NOTEBOOK_MODULE, types.ModuleType(NOTEBOOK_MODULE))

    async def cell():
        return Agent(scripted("yes")).run_sync("?").text

    assert asyncio.run(cell()) == "yes"


def test_from_many_threads_at_once():
    agent, answers = Agent(scripted("yes")), []
    threads = [threading.Thread(target=lambda: answers.append(agent.run_sync("?").text)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["yes"] * 8


def test_the_callers_context_reaches_the_tools():
    tenant = contextvars.ContextVar("tenant", default="nobody")

    @tool
    def who() -> str:
        """Say who is asking."""
        return tenant.get()

    tenant.set("acme")
    result = Agent(scripted(call_reply(("who", {})), "ok"), tools=[who]).run_sync("?")
    assert result.messages[2].results[0].text == "acme"


def test_from_inside_a_tool_it_says_what_to_do_instead():
    inner = Agent(scripted("yes"))

    @tool
    async def nested() -> str:
        """Ask another agent."""
        return inner.run_sync("?").text

    result = Agent(scripted(call_reply(("nested", {})), "ok"), tools=[nested]).run_sync("?")
    assert "await agent.run" in result.messages[2].results[0].text


def test_from_a_sync_tool_it_works():
    inner = Agent(scripted("yes"))

    @tool
    def nested() -> str:
        """Ask another agent."""
        return inner.run_sync("?").text

    result = Agent(scripted(call_reply(("nested", {})), "ok"), tools=[nested]).run_sync("?")
    assert result.messages[2].results[0].text == "yes"


def script(body, *, expect=0):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(body)], capture_output=True, text=True
    )
    assert done.returncode == expect, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_a_plain_script_leaves_nothing_behind():
    out = script(
        """
        from bridle import Agent
        agent = Agent("sim:")
        print(agent.run_sync("!say one").text, agent.run_sync("!say two").text)
        """
    )
    assert out == "one two\n"


def test_a_process_that_forks_gets_a_loop_of_its_own():
    out = script(
        """
        import os, sys
        from bridle import Agent
        agent = Agent("sim:")
        agent.run_sync("!say parent")
        child = os.fork()
        if child == 0:
            print(agent.run_sync("!say child").text, flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(agent.run_sync("!say again").text)
        """
    )
    assert out == "child\nagain\n"


def test_own_loops_one_after_another():
    out = script(
        """
        import asyncio
        from bridle import Agent
        agent = Agent("sim:")
        async def main():
            return (await agent.run("!say hi")).text
        print(asyncio.run(main()), asyncio.run(main()))
        """
    )
    assert out == "hi hi\n"


def test_ctrl_c_cancels_cleanly_and_is_raised():
    entered, seen = threading.Event(), []

    @tool
    async def hang() -> str:
        """Wait for ever."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cleaned up")

    def interrupt():
        entered.wait()
        os.kill(os.getpid(), signal.SIGINT)

    agent = Agent(scripted(call_reply(("hang", {})), "after all"), tools=[hang])
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        agent.run_sync("?", session="s")
    assert seen == ["cleaned up"]
    assert agent.run_sync("and now?", session="s").text == "after all"


SIGNAL_IN_ANOTHER_THREAD = """
import asyncio, signal, threading
from bridle import Agent, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

signal.signal(signal.SIGINT, signal.default_int_handler)

@tool(timeout=None)
async def hang() -> str:
    "Receive the signal in this thread, while the main thread waits, and hang."
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    try:
        await asyncio.Event().wait()
    finally:
        print("cleaned up", flush=True)

Agent(scripted(call_reply(("hang", {})), "done"), tools=[hang]).run_sync("?")
"""
HANG_SECONDS = 30.0
"""Far more than the program takes; it only turns a hang into a failure."""


def test_ctrl_c_that_does_not_interrupt_the_main_threads_wait_is_noticed():
    ended = subprocess.run(
        [sys.executable, "-c", SIGNAL_IN_ANOTHER_THREAD], timeout=HANG_SECONDS, capture_output=True
    )
    assert ended.returncode == -signal.SIGINT, ended.stderr.decode()
    assert ended.stdout == b"cleaned up\n"


SIGNAL_IN_A_FUNCTION = """
import asyncio, signal, sys, threading, time
from bridle import Agent, tool
from bridle.hooks import before_model
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

signal.signal(signal.SIGINT, signal.default_int_handler)

def hang(*given):
    "Receive the signal in this thread, while the event loop waits in the main thread, and hang."
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    threading.Event().wait()

agent = {
    "tool": lambda: Agent(scripted(call_reply(("work", {})), "done"), tools=[tool(name="work", timeout=None)(hang_tool)]),
    "hook": lambda: Agent(scripted("done"), hooks=[before_model(timeout=3600)(lambda run, request: hang())]),
    "validator": lambda: Agent(scripted("done"), validate=lambda answer: hang()),
    "instructions": lambda: Agent(scripted("done"), instructions=lambda: hang()),
}

def hang_tool() -> str:
    "Hang."
    hang()

asyncio.run(agent[sys.argv[1]]().run("?"))
"""


@pytest.mark.parametrize("function", ["tool", "hook", "validator", "instructions"])
def test_ctrl_c_that_does_not_interrupt_the_event_loop_is_noticed(function):
    """Without a regular wake-up the program ends when the function's time is up, after 30 seconds or never."""
    ended = subprocess.run(
        [sys.executable, "-c", SIGNAL_IN_A_FUNCTION, function], timeout=HANG_SECONDS, capture_output=True
    )
    assert ended.returncode == -signal.SIGINT, ended.stderr.decode()


def test_a_waiting_run_is_resumed_without_a_loop():
    @tool(effect="write", approve=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    agent = Agent(scripted(call_reply(("pay", {"amount": 7})), "done"), tools=[pay])
    waiting = agent.run_sync("pay", session="s")
    assert waiting.stop == "waiting"
    (question,) = asyncio.run(agent.approvals("s"))
    asyncio.run(agent.approve("s", question.id))
    result = agent.resume_sync("s")
    assert (result.stop, result.messages[2].results[0].text) == ("done", "paid 7")
