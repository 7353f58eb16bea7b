"""Ordinary functions that wait for runs inside them: no thread limit is held by a function that waits for it."""

import asyncio
import contextvars
import os
import sys
import threading
import types
import warnings
from typing import Any

import pytest

import bridle
from bridle import Agent, MisuseError, Retrieval, tool
from bridle.errors import Conflict
from bridle.hooks import after_model, before_model
from bridle.run import sync
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools.function import threads
from bridle.tools.function.threads import _ThreadPool
from tests.suite.patience import PATIENCE_SECONDS, allow_longer

ANSWER = "inner answer"
LIMITS_OF_FUNCTIONS = (
    "bridle.run.context.instructions.INSTRUCTION_SECONDS_MAX",
    "bridle.run.result.VALIDATOR_SECONDS_MAX",
    "bridle.run.memory.retrieval.FACTS_SECONDS_MAX",
)


@pytest.fixture
def fresh_pools(monkeypatch):
    """Pools of a size; the threads of other tests do not count."""

    def make(tools, functions=None):
        pools = {
            (os.getpid(), "tools"): _ThreadPool(tools, 4, "tools"),
            (os.getpid(), "functions"): _ThreadPool(functions or tools, 4, "functions"),
        }
        monkeypatch.setattr(threads, "_thread_pools", pools)
        return pools

    return make


def run_together(agents_count, run):
    """Start that many runs at once; all of them must end."""

    async def main():
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await asyncio.gather(*(run(number) for number in range(agents_count)))

    return asyncio.run(main())


async def wait_for_slots(pool):
    """A thread counts its slot just after it has sent its result."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while pool._workers > pool.limit or pool._waiting:
            await asyncio.sleep(0)


def make_inner():
    @tool(timeout=None)
    def deepest() -> str:
        """Answer."""
        return ANSWER

    return Agent(scripted(call_reply(("deepest", {})), ANSWER), tools=[deepest])


@pytest.mark.slow
@pytest.mark.parametrize("count", [33, 64, 200])
def test_sync_tools_that_wait_for_runs_with_sync_tools_do_not_lock_one_another(count):
    inner, entered, all_taken = make_inner(), [], threading.Event()

    @tool(timeout=None)
    def nested() -> str:
        """Ask another agent, when all slots are taken by functions that do the same."""
        entered.append(1)
        if len(entered) == threads.THREADS_DEFAULT:
            all_taken.set()
        assert all_taken.wait(PATIENCE_SECONDS)
        return inner.run_sync("?").text

    outer = Agent(scripted(*[call_reply(("nested", {})), "ok"] * count), tools=[nested])  # type: ignore[arg-type]
    results = run_together(count, lambda number: outer.run("?", session=f"s{number}"))
    assert [each.messages[2].results[0].text for each in results] == [ANSWER] * count


def wait_in_thread_of_its_own(agent, loop):
    inherited, answers = contextvars.copy_context(), []
    thread = threading.Thread(target=lambda: answers.append(inherited.run(agent.run_sync, "?")))
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return answers[0]


WAYS_TO_WAIT = {
    "run_sync": lambda agent, loop: agent.run_sync("?"),
    "asyncio.run": lambda agent, loop: asyncio.run(agent.run("?")),
    "asyncio.to_thread": lambda agent, loop: asyncio.run(asyncio.to_thread(agent.run_sync, "?")),
    "thread with the context": wait_in_thread_of_its_own,
    "loop of the run": lambda agent, loop: asyncio.run_coroutine_threadsafe(agent.run("?"), loop).result(
        PATIENCE_SECONDS
    ),
}


@pytest.mark.parametrize("wait", WAYS_TO_WAIT)
@pytest.mark.parametrize("depth", [1, 3])
def test_one_thread_is_enough_for_runs_inside_runs(fresh_pools, wait, depth):
    pool = fresh_pools(1)[os.getpid(), "tools"]
    loops = []

    def wrap(inner, name):
        @tool(timeout=None, name=name)
        def nested() -> str:
            """Ask another agent."""
            return WAYS_TO_WAIT[wait](inner, loops[0]).text

        return Agent(scripted(call_reply((name, {})), ANSWER), tools=[nested])

    agent = make_inner()
    for level in range(depth):
        agent = wrap(agent, f"level_{level}")

    async def run(_):
        loops.append(asyncio.get_running_loop())
        return await agent.run("?")

    results = run_together(1, run)
    assert results[0].messages[2].results[0].text == ANSWER
    asyncio.run(wait_for_slots(pool))


def test_functions_that_wait_in_threads_of_the_background_loop_leave_threads_for_their_runs():
    """Runs look up host names and read files in the default threads of their loop."""
    count = 33  # more than the default threads of an event loop on any machine
    entered, all_entered = [], threading.Event()

    @tool(effect="read", timeout=PATIENCE_SECONDS)
    async def look_up() -> str:
        """Use a thread of the loop."""
        return await asyncio.to_thread(str, ANSWER)

    inner = Agent(scripted(call_reply(("look_up", {})), ANSWER), tools=[look_up])

    def wait():
        entered.append(1)
        if len(entered) == count:
            all_entered.set()
        assert all_entered.wait(PATIENCE_SECONDS), f"only {len(entered)} of {count} were started"
        return inner.run_sync("?").text

    @tool(effect="read", timeout=None)
    async def nested() -> str:
        """Ask another agent."""
        return await asyncio.to_thread(wait)

    outer = Agent(scripted(call_reply(*[("nested", {})] * count), "ok"), tools=[nested], tools_at_once=count)
    result = outer.run_sync("?")
    assert [each.text for each in result.messages[2].results] == [ANSWER] * count


def test_a_function_that_ends_before_a_run_that_it_started_leaves_the_count_of_slots_right(fresh_pools):
    pool = fresh_pools(1)[os.getpid(), "tools"]
    started = []

    async def main():
        loop, entered, release = asyncio.get_running_loop(), threading.Event(), threading.Event()

        @tool(timeout=None)
        def deepest() -> str:
            """Wait."""
            entered.set()
            assert release.wait(PATIENCE_SECONDS)
            return ANSWER

        inner = Agent(scripted(call_reply(("deepest", {})), ANSWER), tools=[deepest])

        @tool(timeout=None)
        def begin() -> str:
            """Start a run and wait for its first call only."""
            started.append(asyncio.run_coroutine_threadsafe(inner.run("?"), loop))
            assert entered.wait(PATIENCE_SECONDS)
            return "begun"

        begun = await Agent(scripted(call_reply(("begin", {})), "ok"), tools=[begin]).run("?")
        release.set()
        await asyncio.wrap_future(started[0])
        await wait_for_slots(pool)
        return begun

    assert asyncio.run(main()).messages[2].results[0].text == "begun"
    (again,) = run_together(1, lambda _: make_inner().run("?"))
    assert again.text == ANSWER


FUNCTIONS: dict[str, Any] = {
    "tool": lambda ask: {"tools": [tool(name="ask", timeout=None)(ask)]},
    "hook": lambda ask: {"hooks": [before_model(timeout=3600)(lambda run, request: ask() and None)]},
    "after": lambda ask: {"hooks": [after_model(timeout=3600)(lambda run, reply: ask() and None)]},
    "instructions": lambda ask: {"instructions": ask},
    "validator": lambda ask: {"validate": lambda answer: ask() and None},
    "retrieval": lambda ask: {"retrieve": Retrieval(lambda query: [ask()], required=True)},
    "facts": lambda ask: {"facts": lambda: {"fact": ask()}},
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_every_kind_of_function_gives_its_slot_back_while_it_waits(fresh_pools, kind):
    """The run inside uses a function of the same kind, and there is one slot."""
    fresh_pools(1)
    replies = (call_reply(("ask", {})), ANSWER) if kind == "tool" else (ANSWER,)

    def answer() -> str:
        """Answer."""
        return ANSWER

    inner = Agent(scripted(*replies), **FUNCTIONS[kind](answer))

    def ask() -> str:
        """Ask."""
        return inner.run_sync("?").text

    outer = Agent(scripted(*replies), **FUNCTIONS[kind](ask))
    (result,) = run_together(1, lambda _: outer.run("?"))
    assert (result.stop, result.text) == ("done", ANSWER), result.reason


@pytest.mark.parametrize("kind", [kind for kind in FUNCTIONS if kind != "tool"])
def test_busy_tools_do_not_delay_other_functions(fresh_pools, kind):
    fresh_pools(1)
    entered, release = threading.Event(), threading.Event()

    @tool(timeout=None)
    def hold() -> str:
        """Hold the only thread for tools."""
        entered.set()
        assert release.wait(PATIENCE_SECONDS)
        return "held"

    async def main():
        holder = asyncio.create_task(Agent(scripted(call_reply(("hold", {})), "ok"), tools=[hold]).run("?"))
        while not entered.is_set():
            await asyncio.sleep(0)
        other = await Agent(scripted(ANSWER), **FUNCTIONS[kind](lambda: ANSWER)).run("?")
        release.set()
        return other, await holder

    other, held = asyncio.run(main())
    assert (other.stop, other.text, held.stop) == ("done", ANSWER, "done")


@pytest.mark.parametrize(
    "kind", ["retrieval", "optional retrieval", "facts", "instructions", "hook", "validator"]
)
def test_a_function_that_found_no_thread_is_not_called_slow_and_the_run_does_not_go_on(
    fresh_pools, monkeypatch, kind
):
    """The functions' time is up while another function holds the only slot: the run ends and says what to type."""
    fresh_pools(1)
    entered, release, ran, store = threading.Event(), threading.Event(), [], MemoryStore()

    def set_seconds(seconds):
        for place in LIMITS_OF_FUNCTIONS:
            monkeypatch.setattr(place, seconds)

    def late(*given) -> str:
        ran.append(kind)
        return ANSWER

    def make_agent(seconds):
        set_seconds(seconds)
        options = {
            "retrieval": {"retrieve": Retrieval(lambda query: [late()], seconds=seconds, required=True)},
            "optional retrieval": {"retrieve": Retrieval(lambda query: [late()], seconds=seconds)},
            "facts": {"facts": lambda: {"fact": late()}},
            "instructions": {"instructions": lambda: late()},
            "hook": {
                "hooks": [before_model(name="checks", timeout=seconds)(lambda run, request: late() and None)]  # type: ignore[arg-type, return-value]
            },
            "validator": {"validate": lambda answer: late() and None},
        }[kind]
        return Agent(scripted("without it", ANSWER), **options, store=store)  # type: ignore[arg-type]

    def hold(query):
        entered.set()
        assert release.wait(PATIENCE_SECONDS)
        return []

    async def main():
        holder = asyncio.create_task(Agent(scripted("ok"), retrieve=Retrieval(hold, seconds=3600)).run("?"))
        while not entered.is_set():
            await asyncio.sleep(0)
        stopped = await make_agent(0.01).run("?", session="s")
        release.set()
        await holder
        resumed = await make_agent(PATIENCE_SECONDS).resume("s") if kind != "validator" else None
        return stopped, resumed

    stopped, resumed = asyncio.run(main())
    assert stopped.stop == "failed"
    assert "not started: all 1 threads for functions were busy" in stopped.reason
    assert "bridle.tools.limit_threads(functions=" in stopped.reason
    assert "longer than" not in stopped.reason
    if resumed is not None:
        assert (resumed.stop, ran) == ("done", [kind])


def test_a_tool_that_found_no_thread_is_an_error_and_nothing_to_undo(fresh_pools):
    fresh_pools(1)
    entered, release = threading.Event(), threading.Event()

    @tool(timeout=None)
    def hold() -> str:
        """Hold the only thread for tools."""
        entered.set()
        assert release.wait(PATIENCE_SECONDS)
        return "held"

    def unbook(seat: int) -> str:
        """Undo."""
        return "undone"

    @tool(effect="write", timeout=0.01, compensate=unbook)
    def book(seat: int) -> str:
        """Book."""
        return "booked"

    async def main():
        holder = asyncio.create_task(Agent(scripted(call_reply(("hold", {})), "ok"), tools=[hold]).run("?"))
        while not entered.is_set():
            await asyncio.sleep(0)
        booker = Agent(scripted(call_reply(("book", {"seat": 4})), "ok"), tools=[book])
        stopped = await booker.run("?", session="s")
        undone = await booker.compensate("s")
        release.set()
        await holder
        return stopped, undone

    stopped, undone = asyncio.run(main())
    (refused,) = stopped.messages[2].results
    assert refused.outcome == "error"
    assert refused.text.startswith("not started: all 1 threads for tools were busy; nothing was done")
    assert undone == ()


def test_an_abandoned_function_that_waits_leaves_the_count_of_slots_right(fresh_pools):
    """Its run outlives it; afterwards the pool has its slot and no more."""

    def check(seconds):
        pool = fresh_pools(1)[os.getpid(), "tools"]
        release, over = threading.Event(), threading.Event()

        @tool(timeout=None)
        def deepest() -> str:
            """Wait."""
            assert release.wait(PATIENCE_SECONDS)
            return ANSWER

        inner = Agent(scripted(call_reply(("deepest", {})), ANSWER), tools=[deepest])

        @tool(timeout=seconds)
        def nested() -> str:
            """Ask another agent."""
            try:
                return inner.run_sync("?").text
            finally:
                over.set()

        outer = Agent(scripted(call_reply(("nested", {})), "ok"), tools=[nested])
        (result,) = run_together(1, lambda _: outer.run("?"))
        release.set()
        # A function that did not start in time never starts, and is not reported as slow.
        assert result.messages[2].results[0].outcome == "timeout"
        assert over.wait(PATIENCE_SECONDS)
        (again,) = run_together(1, lambda _: make_inner().run("?"))
        assert again.text == ANSWER
        assert pool._workers <= pool.limit
        assert pool._waiting == 0

    allow_longer(check, 0.01)


@pytest.mark.parametrize("depth", [1, 2])
def test_a_run_does_not_queue_for_the_session_of_a_run_around_it(depth):
    """It would wait for its own end."""
    store, raised = MemoryStore(), []

    @tool(timeout=None)
    async def again() -> str:
        """Prompt the outer session."""
        try:
            return (await outermost.run("?", session="s", queue=True)).text
        except Conflict as error:
            raised.append(str(error))
            return (await outermost.run("?", session="other", queue=True)).text

    outermost = Agent(scripted(call_reply(("again", {})), *["ok"] * 9), tools=[again], store=store)
    if depth == 2:
        inner = Agent(scripted(call_reply(("again", {})), "ok"), tools=[again], store=store, name="inner")
        outermost = Agent(
            scripted(call_reply(("inner", {"prompt": "?"})), *["ok"] * 9),
            tools=[inner.as_tool()],
            store=store,
        )
    (result,) = run_together(1, lambda _: outermost.run("?", session="s"))
    assert result.stop == "done"
    assert raised
    assert all("session 's' is that of the run" in each for each in raised)


def test_limits_are_changed_at_any_time(fresh_pools, monkeypatch):
    monkeypatch.setattr(threads, "_limits", {"tools": 1, "functions": 1})
    fresh_pools(1)
    barrier = threading.Barrier(3)

    @tool(timeout=None, effect="read")
    def meet() -> str:
        """Meet two others."""
        barrier.wait(PATIENCE_SECONDS)
        return "met"

    async def main():
        agent = Agent(scripted(call_reply(*[("meet", {})] * 3), "ok"), tools=[meet])
        running = asyncio.create_task(agent.run("?"))
        while barrier.n_waiting < 1:
            await asyncio.sleep(0)
        bridle.tools.limit_threads(tools=3)  # two calls wait for a thread
        return await asyncio.wait_for(running, PATIENCE_SECONDS)

    result = asyncio.run(main())
    assert [each.text for each in result.messages[2].results] == ["met"] * 3


@pytest.mark.parametrize(
    "given", [{"tools": 0}, {"functions": -1}, {"tools": True}, {"tools": 10**6}, {"tools": "8"}]
)
def test_wrong_limits_are_refused(given):
    with pytest.raises(MisuseError, match=f"limit_threads\\({next(iter(given))}=…\\) takes a number"):
        bridle.tools.limit_threads(**given)


ASYNC_FUNCTIONS: dict[str, Any] = {
    "tool": lambda ask: {"tools": [tool(name="ask", timeout=None)(ask)]},
    "hook": lambda ask: {"hooks": [before_model(timeout=3600)(ask)]},
    "instructions": lambda ask: {"instructions": ask},
    "validator": lambda ask: {"validate": ask},
    "retrieval": lambda ask: {"retrieve": Retrieval(ask, required=True)},
}


@pytest.mark.parametrize("start", ["await", "run_sync", "stream", "nested"])
@pytest.mark.parametrize("method", ["run_sync", "resume_sync"])
@pytest.mark.parametrize("kind", ASYNC_FUNCTIONS)
def test_an_async_function_that_blocks_the_loop_of_its_run_is_refused(kind, method, start):
    inner, raised = Agent(scripted(ANSWER)), []

    def block():
        try:
            inner.run_sync("?") if method == "run_sync" else inner.resume_sync("s")
        except RuntimeError as error:
            raised.append(str(error))

    async def ask_tool() -> str:
        """Ask."""
        block()
        return ANSWER

    async def ask_one(given):
        block()

    async def ask_hook(run, request):
        block()

    async def ask_chunks(given):
        block()
        return []

    ask = {
        "tool": ask_tool, "hook": ask_hook, "instructions": ask_tool, "validator": ask_one, "retrieval": ask_chunks
    }[kind]  # fmt: skip
    replies = (call_reply(("ask", {})), ANSWER) if kind == "tool" else (ANSWER,)
    agent = Agent(scripted(*replies), **ASYNC_FUNCTIONS[kind](ask), name="blocking")

    async def stream():
        async for _ in agent.stream("?"):
            pass

    if start == "run_sync":
        agent.run_sync("?")
    elif start == "nested":
        outer = Agent(scripted(call_reply(("blocking", {"prompt": "?"})), "ok"), tools=[agent.as_tool()])
        asyncio.run(asyncio.wait_for(outer.run("?"), PATIENCE_SECONDS))
    else:
        asyncio.run(asyncio.wait_for(agent.run("?") if start == "await" else stream(), PATIENCE_SECONDS))
    assert set(raised) == {sync.INSIDE_RUN}


def test_blocking_a_loop_that_drives_no_run_is_a_warning():
    async def main():
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            text = Agent(scripted("yes")).run_sync("?").text
        return text, seen

    text, seen = asyncio.run(main())
    assert text == "yes"
    (warning,) = seen
    assert warning.category is RuntimeWarning
    assert "await agent.run" in str(warning.message)
    assert warning.filename == __file__, "the warning names the caller's line"


def test_a_notebook_is_not_warned(monkeypatch):
    monkeypatch.setitem(sys.modules, sync.NOTEBOOK_MODULE, types.ModuleType(sync.NOTEBOOK_MODULE))

    async def cell():
        return Agent(scripted("yes")).run_sync("?").text

    assert asyncio.run(cell()) == "yes"  # warnings are errors in this suite


def test_after_a_run_its_loop_may_be_blocked_again(monkeypatch):
    """The mark of a run ends with it, also if the run was cancelled or failed."""
    monkeypatch.setitem(sys.modules, sync.NOTEBOOK_MODULE, types.ModuleType(sync.NOTEBOOK_MODULE))

    async def cell():
        agent = Agent(scripted("yes", "yes", "yes"))
        await agent.run("?")
        async for _ in agent.stream("?"):
            break
        return agent.run_sync("?").text

    assert asyncio.run(cell()) == "yes"
