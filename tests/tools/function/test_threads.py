"""Synchronous functions as tools: they never block the event loop, and each way to end has its own outcome."""

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from bridle import Agent
from bridle.ports.run_context import RunContext
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import tool
from bridle.tools.function import threads
from bridle.tools.function.threads import _ThreadPool, run_in_thread
from bridle.values.events import ToolFinished
from tests.suite.patience import PATIENCE_SECONDS

CONTEXT = RunContext(context=None, session="s", call_id="c", idempotency_key="k")
WAITS_MAX = 1_000_000


class Gate:
    """A function that reports its start and returns when it is released."""

    def __init__(self):
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self):
        self.entered.set()
        assert self.opened.wait(PATIENCE_SECONDS)
        return "through"


def test_the_loop_goes_on_while_a_plain_function_blocks():
    gate = Gate()
    blocking = tool(gate.__call__, name="blocking")

    async def main():
        running = asyncio.create_task(blocking.run({}, CONTEXT))
        while not gate.entered.is_set():
            await asyncio.sleep(0)  # every turn here is a turn the loop could take
        gate.opened.set()
        return await asyncio.wait_for(running, PATIENCE_SECONDS)

    assert asyncio.run(main())[0].text == "through"


def test_context_variables_are_those_of_the_caller():
    who = contextvars.ContextVar("who", default="nobody")

    def ask():
        seen = who.get()
        who.set("thread")
        return seen

    async def main():
        who.set("caller")
        return await run_in_thread(ask), who.get()

    assert asyncio.run(main()) == ("caller", "caller")


def test_cancelling_returns_at_once_and_the_thread_continues():
    gate = Gate()

    async def main():
        running = asyncio.create_task(run_in_thread(gate))
        while not gate.entered.is_set():
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not gate.opened.is_set()

    asyncio.run(main())
    gate.opened.set()  # its answer comes after the loop was closed, and is dropped without a word


class Answers:
    """Jobs without an event loop: the pool only calls `run` of a job."""

    def __init__(self, work):
        self.work = work
        self.started = self.running = self.left = self.stuck = False
        self.pool, self.waits = None, 0
        self.done = threading.Event()
        self.refused = None

    def run(self):
        self.work()
        self.done.set()

    def refuse(self, error):
        self.refused = error
        self.done.set()


def test_a_function_that_never_returns_keeps_its_thread_and_frees_its_place():
    pool: Any = _ThreadPool(limit=1, left_max=1)
    stuck, next_gate = Gate(), Gate()
    first, second = Answers(stuck), Answers(next_gate)
    pool.submit(first)
    assert stuck.entered.wait(PATIENCE_SECONDS)
    pool.submit(second)
    assert not next_gate.entered.is_set(), "one place, and it is taken"
    pool.abandon(first)
    assert next_gate.entered.wait(PATIENCE_SECONDS)
    third: Any = Answers(lambda: None)
    pool.submit(third)
    assert not third.done.is_set()
    next_gate.opened.set()
    assert third.done.wait(PATIENCE_SECONDS)
    stuck.opened.set()
    assert first.done.wait(PATIENCE_SECONDS)


def test_abandoned_functions_in_every_thread_do_not_make_calls_wait():
    pool: Any = _ThreadPool(limit=2, left_max=1)
    gates = [Gate() for _ in range(3)]
    held: Any = [Answers(gate) for gate in gates]
    for gate, job in zip(gates, held, strict=True):
        pool.submit(job)
        assert gate.entered.wait(PATIENCE_SECONDS)
        if job is held[0]:
            assert pool.abandon(job)  # the only place that is given away
    assert pool.abandon(held[1])
    waiting: Any = Answers(lambda: None)
    pool.submit(waiting)
    assert not waiting.done.is_set(), "one place is held by a call that somebody waits for"
    assert pool.abandon(held[2])
    assert waiting.done.wait(PATIENCE_SECONDS)
    assert "occupy all 2 threads" in str(waiting.refused)
    with pytest.raises(RuntimeError, match=r"not run: .* occupy all 2 threads"):
        pool.submit(Answers(lambda: None))
    gates[2].opened.set()
    assert held[2].done.wait(PATIENCE_SECONDS)
    for _ in range(WAITS_MAX):  # its place is free once its thread has said so
        try:
            pool.submit(after := Answers(lambda: None))
            break
        except RuntimeError:
            os.sched_yield()
    assert after.done.wait(PATIENCE_SECONDS)
    assert after.refused is None
    for gate in gates:
        gate.opened.set()


def test_a_call_that_found_no_thread_in_time_says_that_it_never_started(monkeypatch):
    monkeypatch.setattr(threads, "_thread_pools", {(os.getpid(), "tools"): _ThreadPool(limit=1, left_max=1)})
    gate, ran = Gate(), []

    @tool(effect="read", timeout=None)
    def holds() -> str:
        """Hold the only thread."""
        return gate()

    @tool(effect="read", timeout=0.01)
    def waits() -> str:
        """Wait for it."""
        ran.append(1)
        return "ran"

    class LetGo:
        def on_event(self, session, happening):
            if isinstance(getattr(happening, "event", None), ToolFinished):
                gate.opened.set()

    script = scripted(call_reply(("holds", {}), ("waits", {})), "done")
    result = Agent(script, tools=[holds, waits], watchers=[LetGo()]).run_sync("?")
    first, second = result.messages[2].results
    assert (first.outcome, first.text) == ("ok", "through")
    assert second.outcome == "error"
    assert second.text.startswith("not started: all 1 threads for tools were busy; nothing was done")
    assert ran == []


def test_work_that_was_abandoned_in_the_queue_is_never_started():
    pool: Any = _ThreadPool(limit=1, left_max=1)
    gate, started = Gate(), []
    pool.submit(Answers(gate))
    given_up: Any = Answers(lambda: started.append("given up"))
    pool.submit(given_up)
    pool.abandon(given_up)
    last: Any = Answers(lambda: started.append("last"))
    pool.submit(last)
    gate.opened.set()
    assert last.done.wait(PATIENCE_SECONDS)
    assert started == ["last"]


def test_the_pool_is_bounded_and_nothing_is_lost():
    pool: Any = _ThreadPool(limit=3, left_max=0)
    lock, now, most = threading.Lock(), 0, 0

    def work():
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        os.sched_yield()
        with lock:
            now -= 1

    jobs = [Answers(work) for _ in range(200)]
    for job in jobs:
        pool.submit(job)
    assert all(job.done.wait(PATIENCE_SECONDS) for job in jobs)
    assert most <= 3


def make_raising(error):
    def fail() -> str:
        raise error

    return fail


@pytest.mark.parametrize("error", [ValueError("no"), KeyError("x"), TimeoutError("slow"), OSError(2, "gone")])
def test_what_a_tool_raises_is_what_the_caller_gets(error):
    async def alike() -> str:
        raise error

    for made in (tool(make_raising(error), name="t"), tool(alike)):
        with pytest.raises(type(error)) as raised:
            asyncio.run(made.run({}, CONTEXT))
        assert raised.value is error


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), StopIteration(1)]
)
def test_no_tool_can_end_the_process_or_pass_for_a_cancelled_run(error):
    made = tool(make_raising(error), name="t")
    with pytest.raises(RuntimeError, match=f"the tool raised {type(error).__name__}"):
        asyncio.run(made.run({}, CONTEXT))


def test_an_async_tool_that_waits_for_something_cancelled_has_failed():
    @tool
    async def impatient() -> str:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    @tool
    async def leaving() -> str:
        sys.exit(3)

    for made, name in ((impatient, "CancelledError"), (leaving, "SystemExit")):
        with pytest.raises(RuntimeError, match=f"the tool raised {name}"):
            asyncio.run(made.run({}, CONTEXT))


def test_a_cancelled_run_is_cancelled():
    @tool
    async def waiting() -> str:
        await asyncio.get_running_loop().create_future()

    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await waiting.run({}, CONTEXT)

    asyncio.run(main())


def test_a_program_ends_although_a_tool_never_returns():
    script = (
        "import asyncio, threading\n"
        "from bridle.tools.function.threads import run_in_thread\n"
        "async def main():\n"
        "    started = threading.Event()\n"
        "    def hang():\n"
        "        started.set()\n"
        "        threading.Event().wait()\n"
        "    task = asyncio.create_task(run_in_thread(hang))\n"
        "    while not started.is_set():\n"
        "        await asyncio.sleep(0)\n"
        "    task.cancel()\n"
        "asyncio.run(main())\n"
        "print('ended')"
    )
    seen = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert (seen.stdout, seen.stderr) == ("ended\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own():
    script = (
        "import asyncio, os\n"
        "from bridle.tools.function.threads import run_in_thread\n"
        "assert asyncio.run(run_in_thread(lambda: 1)) == 1\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(asyncio.run(run_in_thread(lambda: 7)))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    seen = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True,
    )  # fmt: skip
    assert seen.stdout == "7\n"


def test_several_loops_share_the_pool():
    def in_a_loop(out):
        out.append(asyncio.run(run_in_thread(lambda: threading.current_thread().name)))

    seen = []
    threads = [threading.Thread(target=in_a_loop, args=(seen,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert seen == ["bridle-tool"] * 8


def test_if_no_thread_can_be_started_the_call_fails_and_nothing_runs_later(monkeypatch):
    pool: Any = _ThreadPool(limit=2, left_max=1)
    gate, started = Gate(), []
    first: Any = Answers(gate)
    pool.submit(first)
    assert gate.entered.wait(PATIENCE_SECONDS)
    refused, later = Answers(lambda: started.append("refused")), Answers(lambda: started.append("later"))

    def full(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            pool.submit(refused)
    pool.submit(later)
    assert later.done.wait(PATIENCE_SECONDS)
    gate.opened.set()
    assert started == ["later"]


def test_blocking_functions_never_stall_the_loop():
    """Eight block at the same time, and return when the loop has come round a hundred times."""
    entered, opened = threading.Semaphore(0), threading.Event()

    @tool(effect="read")
    def blocks() -> str:
        """Block, as a slow call does."""
        entered.release()
        assert opened.wait(PATIENCE_SECONDS)
        return "through"

    async def main():
        agent = Agent(scripted(call_reply(*[("blocks", {})] * 8), "done"), tools=[blocks])
        running = asyncio.create_task(agent.run("?"))
        for _ in range(8):
            while not entered.acquire(blocking=False):
                assert not running.done()
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        opened.set()
        return await running

    assert [result.text for result in asyncio.run(main()).messages[2].results] == ["through"] * 8


CTRL_C = """
import asyncio, signal, sys, time
from bridle import Agent, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it

@tool(timeout=None)
def sleeps() -> str:
    "Sleep for a long time."
    print("asleep", flush=True)
    time.sleep(1000)

agent = Agent(scripted(call_reply(("sleeps", {})), "done"), tools=[sleeps])
if sys.argv[1] == "run":
    asyncio.run(agent.run("?"))
else:
    agent.run_sync("?")
"""


@pytest.mark.parametrize("how", ["run", "run_sync"])
def test_ctrl_c_does_not_wait_for_a_sleeping_function(how):
    child = subprocess.Popen(
        [sys.executable, "-c", CTRL_C, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "asleep\n"
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == -signal.SIGINT
    assert error.strip().endswith("KeyboardInterrupt")
