"""Runs on a real Temporal server: the same log as in one process, answers, control, and what the server gets to see."""

import asyncio
import json
import re

import msgspec
import pytest

from tests.engines.engine_fixtures import (
    add,
    describe_log,
    make_agent,
    new_queue,
    pay,
    save_history,
    wait_for_question,
    wait_until,
)
from tests.suite.in_loop import in_loop

pytest.importorskip("temporalio")

from temporalio import workflow
from temporalio.client import Client, Interceptor, OutboundInterceptor, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from bridle import Agent, Budget, tool
from bridle.engines.status import RunStatus
from bridle.engines.temporal import TemporalEngine, ToolPlacement, WorkflowLimits
from bridle.engines.temporal.activities import describe_failure
from bridle.engines.temporal.workflow import WORKFLOW, RunTask, RunWorkflow
from bridle.run.archive.sessions import list_sessions
from bridle.run.clock import SystemClock
from bridle.run.context.run_options import RunOptions
from bridle.run.control.requests import SessionControl
from bridle.tools import external_tool
from bridle.values.errors import Conflict, EngineFailed, MisuseError, Unusable
from bridle.values.result import TextDelta

pytestmark = pytest.mark.slow
SUM = '!call add {"a": 1, "b": 2}\n!call add {"a": 3, "b": 4}\n!then\n!call add {"a": 5, "b": 6}\n!then\n!say done'
PAYING = '!call pay {"amount": 7}\n!then\n!say thanks'


async def connect(temporal):
    return await Client.connect(temporal.host)


@pytest.fixture
def url(postgres):
    return postgres.new_url()


@tool(effect="read")
async def slow(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return "slept"


@tool(effect="write")
def save(number: int) -> str:
    """Save."""
    return f"saved {number}"


@tool(effect="read")
def break_down() -> str:
    """Fail."""
    raise ValueError("out of order")


def make_team():
    return {"tools": [Agent("sim:", name="cashier", tools=[add]).as_tool(), add]}


class Total(msgspec.Struct):
    total: int


INSIDE = (
    r'!call cashier {"prompt": "!call add {\"a\": 1, \"b\": 2}\n!then\n!say inner"}' + "\n!then\n!say done"
)
EQUAL = {
    "an answer": ("!say hello", {}, {}),
    "calls in parallel and in turn": (SUM, {}, {}),
    "an unknown tool": ("!call nothing {}\n!then\n!say sorry", {}, {}),
    "writes in turn": (
        '!call save {"number": 1}\n!call save {"number": 2}\n!then\n!say done',
        {"tools": [save]},
        {},
    ),
    "a tool that fails": ("!call break_down {}\n!then\n!say sorry", {"tools": [break_down]}, {}),
    "wrong arguments": ('!call add {"a": "x"}\n!then\n!say sorry', {}, {}),
    "an agent inside a call": (INSIDE, make_team, {}),
    "a fault of the provider": ("!error 500\n!say hello", {}, {}),
    "two faults, with a wait": ("!error 429 3\n!error 529\n!say hello", {}, {}),
    "a reply that breaks off": ("!cut 300\n!say hello, this is a long answer", {}, {}),
    "a request that is refused": ("!error 400\n!say hello", {}, {}),
    "the last step of a budget": (SUM, {}, {"budget": Budget(steps=2)}),
    "the last cent of a budget": (SUM, {}, {"budget": Budget(usd=0.0001)}),
    "an answer with a type": ('!say {"total": 3}', {"output": Total}, {}),
    "an answer of another type": ('!say {"sum": 3}\n!then\n!say {"total": 3}', {"output": Total}, {}),
    "a refusal": ("!say no\n!stop refused", {}, {}),
    "a reply that is too long": ("!say cut\n!stop length", {}, {}),
    "a prompt of a tenant": ("!say hello", {}, {"tenant": "acme", "caller": "ann"}),
    "options of the run": ("!say hello", {}, {"max_tokens": 99}),
}


def make_equal_agents(postgres, options):
    return [make_agent(postgres.new_url(), **(options() if callable(options) else options)) for _ in range(2)]


async def list_logs(agent):
    """All logs of the store but those of requests and budgets, without what differs between two equal runs."""
    logs = [
        f"{info.id}: {each}"
        for info in sorted(await list_sessions(agent.store, 100), key=lambda info: info.created_at)
        for each in describe_log(await agent.store.read(info.id))
    ]
    return [re.sub(r"cashier-[0-9a-f]{32}", "cashier-KEY", line) for line in logs]


@pytest.mark.parametrize("case", EQUAL)
@in_loop
async def test_the_log_is_the_same_as_in_one_process(temporal, postgres, case):
    prompt, options, given = EQUAL[case]
    here, there = make_equal_agents(postgres, options)
    expected = await here.run(prompt, session="equal", new=True, **given)  # type: ignore[arg-type]
    engine = TemporalEngine(there, await connect(temporal), new_queue(), streams=False)
    own = {name: value for name, value in given.items() if name in RunOptions.__annotations__}  # type: ignore[attr-defined]
    others = {name: value for name, value in given.items() if name not in own}  # type: ignore[attr-defined]
    async with engine.worker():
        run = await engine.start(prompt, session="equal", new=True, **others, options=own)  # type: ignore[arg-type]
        result = await run.result()
    assert (result.output, result.stop, result.cost) == (expected.output, expected.stop, expected.cost)
    assert await list_logs(there) == await list_logs(here)


@pytest.mark.parametrize("answer", ["approve", "reject"])
@in_loop
async def test_the_log_of_a_run_with_a_question_is_the_same_as_in_one_process(temporal, postgres, answer):
    here, there = make_equal_agents(postgres, {})
    await here.run(PAYING, session="equal", new=True)
    (question,) = await here.approvals("equal")
    await getattr(here, answer)("equal", question.id, by="ann", reason="because")
    expected = await here.resume("equal")
    engine = TemporalEngine(there, client := await connect(temporal), new_queue(), streams=False)
    async with engine.worker():
        run = await engine.start(PAYING, session="equal", new=True)
        await wait_for_question(run)
        handle = client.get_workflow_handle(run.workflow_id)

        async def is_waiting():
            return (await handle.query("status"))["state"] == "waiting"

        await wait_until(is_waiting)
        await getattr(there, answer)("equal", question.id, by="ann", reason="because")
        await handle.signal("look")
        result = await run.result()
    assert (result.text, result.stop) == (expected.text, expected.stop)
    assert await list_logs(there) == await list_logs(here)


@in_loop
async def test_the_log_of_a_cancelled_run_is_the_same_as_in_one_process(temporal, postgres):
    prompt = '!call slow {"seconds": 600}\n!then\n!say done'
    here, there = make_equal_agents(postgres, {"tools": [slow]})
    running = asyncio.create_task(here.run(prompt, session="equal", new=True))

    async def has_started(agent):
        return [
            each for each in await agent.store.read("equal") if type(each.event).__name__ == "ToolStarted"
        ]

    await wait_until(lambda: has_started(here))
    await SessionControl(here.store, "equal").cancel(by="bob")
    expected = await running
    engine = TemporalEngine(there, await connect(temporal), new_queue(), streams=False)
    async with engine.worker():
        run = await engine.start(prompt, session="equal", new=True)
        await wait_until(lambda: has_started(there))
        await run.cancel(by="bob")
        result = await run.result()
    assert (
        (result.stop, result.reason) == (expected.stop, expected.reason) == ("cancelled", "cancelled by bob")
    )
    assert await list_logs(there) == await list_logs(here)


@in_loop
async def test_an_approved_call_runs_once_and_wrong_answers_leave_no_trace(temporal, url):
    agent = make_agent(url)
    engine = TemporalEngine(agent, client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(PAYING)
        question = await wait_for_question(run)
        handle = client.get_workflow_handle(run.workflow_id)

        async def is_known():
            return (await handle.query("status"))["questions"]

        await wait_until(is_known)
        before = (await handle.describe()).history_length
        with pytest.raises(MisuseError, match="no pending approval matches 'c9'; pending: "):
            await run.approve("c9")
        for wrong in ("other", "", question.call_id):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update("answer", wrong)
            assert "\n" not in str(refused.value.cause) and "no pending approval matches" in str(
                refused.value.cause
            )
        assert (await handle.describe()).history_length == before
        answered = await run.approve(question.id, by="ann", reason="a secret reason")
        assert answered.id == question.id
        result = await run.result()
        save_history(fetched := await handle.fetch_history(), "approval")
        history = fetched.to_json()
    assert result.text == "thanks"
    names = [type(record.event).__name__ for record in await agent.store.read(run.session)]
    assert names.count("ToolStarted") == names.count("ToolFinished") == names.count("ApprovalAnswered") == 1
    for content in ("a secret reason", "thanks", "amount", "paid 7"):
        assert content not in history


@in_loop
async def test_steering_and_cancelling_reach_a_part_in_progress(temporal, url):
    agent = make_agent(url, tools=[slow])
    engine = TemporalEngine(agent, await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start('!call slow {"seconds": 60}\n!then\n!say done')
        await wait_until(lambda: has_event(run, "ToolStarted"))
        steered = await run.steer("Use euros.", by="ann")
        assert steered.status == "taken"
        cancelled = await run.cancel(by="bob")
        assert cancelled.status == "taken"
        result = await run.result()
    assert (result.stop, result.reason) == ("cancelled", "cancelled by bob")


async def has_event(run, name):
    return any(
        type(record.event).__name__ == name for record in await run._engine.agent.store.read(run.session)
    )


@pytest.mark.parametrize("prompt", [PAYING, '!call slow {"seconds": 60}\n!then\n!say done'])
@in_loop
async def test_a_workflow_that_is_cancelled_on_the_server_ends_its_run(temporal, url, prompt):
    engine = TemporalEngine(
        make_agent(url, tools=[pay, slow]), client := await connect(temporal), new_queue()
    )
    async with engine.worker():
        run = await engine.start(prompt)
        await wait_until(lambda: has_event(run, "ToolStarted" if "slow" in prompt else "RunEnded"))
        await client.get_workflow_handle(run.workflow_id).cancel()
        result = await run.result()
        save_history(await client.get_workflow_handle(run.workflow_id).fetch_history(), "cancelled")
    assert (result.stop, result.reason) == ("cancelled", "cancelled by the caller")


@in_loop
async def test_a_cancellation_that_the_part_did_not_hear_of_ends_the_run_after_it(temporal, url):
    """A worker hears of a cancellation with the answer to a heartbeat; a short part ends before."""
    started = asyncio.Event()

    @tool(effect="write")
    async def step(seconds: float) -> str:
        """Work."""
        started.set()
        await asyncio.sleep(seconds)
        return "worked"

    engine = TemporalEngine(make_agent(url, tools=[step]), client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(
            '!call step {"seconds": 0.7}\n!then\n!call step {"seconds": 0}\n!then\n!say done'
        )
        await started.wait()
        await client.get_workflow_handle(run.workflow_id).cancel()
        result = await run.result()
    names = [type(record.event).__name__ for record in await engine.agent.store.read(run.session)]
    assert (result.stop, names.count("ToolFinished")) == ("cancelled", 1)


@in_loop
async def test_a_run_that_waits_before_a_retry_is_cancelled_at_once(temporal, url):
    engine = TemporalEngine(make_agent(url), await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start("!error 429 50\n!say done")
        await wait_until(lambda: has_event(run, "ModelFailed"))
        assert (await run.cancel(by="bob", wait_seconds=20)).status == "taken"
        result = await run.result()
    assert (result.stop, result.reason) == ("cancelled", "cancelled by bob")


@in_loop
async def test_a_session_that_another_process_holds_is_not_taken_from_it(temporal, url):
    """The worker that had the run in memory is gone: it holds nothing that another could take over."""
    agent, client = make_agent(url), await connect(temporal)
    engine = TemporalEngine(agent, client, new_queue(), limits=WorkflowLimits(sticky_seconds=1))
    async with engine.worker():
        run = await engine.start(PAYING)
        question = await wait_for_question(run)
        handle = client.get_workflow_handle(run.workflow_id)

        async def has_status(state):
            return (await handle.query("status"))["state"] == state

        await wait_until(lambda: has_status("waiting"))
    person, other = make_agent(url), TemporalEngine(agent, client, engine.task_queue)
    await person.approve(run.session, question.id)
    async with other.worker():
        async with person.store.lease(run.session):
            await handle.signal("look")
            await wait_until(lambda: has_status("busy"))
        result = await run.result()
    resumed = [
        record.event
        for record in await agent.store.read(run.session)
        if type(record.event).__name__ == "Resumed"
    ]
    assert (result.text, [event.took_over for event in resumed]) == ("thanks", [False])


class NotingClock(SystemClock):
    """Notes that something waits."""

    def __init__(self):
        self.has_slept = asyncio.Event()

    async def sleep(self, seconds):
        self.has_slept.set()
        await super().sleep(seconds)


@in_loop
async def test_of_two_callers_that_start_one_session_one_is_refused_and_records_nothing(temporal, url):
    """The second one comes after the first has recorded its prompt and before its workflow has started."""
    recorded, goes_on = asyncio.Event(), asyncio.Event()

    class SlowEngine(TemporalEngine):
        async def _start_workflow(self, session, status):
            recorded.set()
            await goes_on.wait()
            return await super()._start_workflow(session, status)

    client, queue, clock = await connect(temporal), new_queue(), NotingClock()
    slow_one = SlowEngine(make_agent(url), client, queue)
    quick_one = TemporalEngine(make_agent(url, clock=clock), client, queue)
    async with slow_one.worker():
        first = asyncio.create_task(slow_one.start(PAYING, "shared"))
        await recorded.wait()
        second = asyncio.create_task(quick_one.start("!say hello", "shared"))
        waiting = asyncio.create_task(clock.has_slept.wait())
        await asyncio.wait((second, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        goes_on.set()
        with pytest.raises(Conflict, match="has a run on Temporal"):
            await second
        run = await first
        await run.reject((await wait_for_question(run)).id)
        assert (await run.result()).text == "thanks"
    names = [type(record.event).__name__ for record in await slow_one.agent.store.read("shared")]
    assert names.count("Prompted") == 1


@in_loop
async def test_a_question_of_an_agent_inside_a_call_is_listed_and_answered(temporal, url):
    cashier = Agent("sim:", name="cashier", tools=[pay])
    engine = TemporalEngine(make_agent(url, tools=[cashier.as_tool()]), await connect(temporal), new_queue())
    inside = r'!call cashier {"prompt": "!call pay {\"amount\": 7}\n!then\n!say paid"}'
    async with engine.worker():
        run = await engine.start(inside + "\n!then\n!say done")
        question = await wait_for_question(run)
        assert (question.tool, question.session == run.session) == ("pay", False)
        answered = await run.approve(question.id, by="ann", arguments={"amount": 6})
        result = await run.result()
    inner = [record.event for record in await engine.agent.store.read(question.session)]
    results = [event.result.text for event in inner if type(event).__name__ == "ToolFinished"]
    assert (answered.id, result.stop, result.text) == (question.id, "done", "done")
    assert results == ["paid 6"]


@in_loop
async def test_a_run_that_its_budget_ended_is_resumed_with_another(temporal, url):
    engine = TemporalEngine(make_agent(url), await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(SUM, budget=Budget(steps=1))
        assert (await run.result()).stop == "steps"
        result = await (await engine.resume(run.session, budget=Budget(steps=9))).result()
    assert (result.stop, result.text) == ("done", "done")


FAILURES = workflow._Definition.must_from_class(RunWorkflow).failure_exception_types


@workflow.defn(name=WORKFLOW, sandboxed=False, failure_exception_types=FAILURES)
class OtherWorkflow(RunWorkflow):
    """The workflow of a faulty release: its commands are others."""

    @workflow.init
    def __init__(self, task: RunTask) -> None:
        super().__init__(task)

    @workflow.run
    async def run(self, task: RunTask) -> RunStatus:
        await workflow.sleep(0.001)
        return await super().run(task)


@in_loop
async def test_a_run_waits_for_a_fixed_worker_if_the_workflow_does_not_fit_its_history(
    temporal, url, monkeypatch
):
    engine = TemporalEngine(make_agent(url), client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(PAYING)
        question = await wait_for_question(run)
    handle = client.get_workflow_handle(run.workflow_id)

    async def has_failed_task():
        events = (await handle.fetch_history()).events
        return any(each.HasField("workflow_task_failed_event_attributes") for each in events)

    with monkeypatch.context() as faulty:
        faulty.setattr("bridle.engines.temporal.worker.RunWorkflow", OtherWorkflow)
        async with engine.worker():
            await handle.signal("look")
            await wait_until(has_failed_task)
    async with engine.worker():
        await run.reject(question.id)
        assert (await run.result()).stop == "done"


@in_loop
async def test_requests_for_a_run_that_waits_wake_it(temporal, url):
    engine = TemporalEngine(make_agent(url), await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(PAYING)
        await wait_for_question(run)
        assert (await run.steer("Hurry.", by="ann")).status == "taken"
        question = await wait_for_question(run)
        with pytest.raises(Conflict, match="has a run on Temporal"):
            await engine.start("again", session=run.session)
        assert (await run.cancel(by="bob")).status == "taken"
        result = await run.result()
    assert (result.stop, result.reason) == ("cancelled", "cancelled by bob")
    assert question.tool == "pay"


@in_loop
async def test_an_answer_that_was_given_without_the_engine_is_found(temporal, url):
    """`agent.approve` and `bridle approvals approve` write to the log; the workflow looks from time to time, or when told."""
    agent = make_agent(url)
    engine = TemporalEngine(agent, client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(PAYING)
        question = await wait_for_question(run)

        async def can_answer():
            try:
                return await agent.reject(run.session, question.id, reason="too much")
            except Conflict:  # the part that asked is still ending
                return None

        await wait_until(can_answer)
        await client.get_workflow_handle(run.workflow_id).signal("look")
        result = await run.result()
    assert (result.stop, result.text) == ("done", "thanks")


@in_loop
async def test_a_paused_run_is_continued(temporal, url):
    engine = TemporalEngine(make_agent(url, tools=[slow]), client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start('!call slow {"seconds": 0.5}\n!then\n!say done')
        await wait_until(lambda: has_event(run, "ToolStarted"))
        assert (await run.pause(by="ann")).status == "taken"
        await wait_until(lambda: is_in_state(run, "paused"))
        await client.get_workflow_handle(run.workflow_id).signal("look")

        async def has_looked():
            history = await client.get_workflow_handle(run.workflow_id).fetch_history()
            planned = [each.activity_task_scheduled_event_attributes for each in history.events]
            looks = sum(each.activity_type.name == "advance_run" for each in planned)
            described = await client.get_workflow_handle(run.workflow_id).describe()
            return looks and not described.raw_description.pending_activities

        await wait_until(has_looked)
        assert await is_in_state(run, "paused")
        await run.resume()
        result = await run.result()
    assert (result.stop, result.text) == ("done", "done")


@in_loop
async def test_a_signal_to_resume_that_came_before_a_pause_does_not_undo_it(temporal, url):
    engine = TemporalEngine(make_agent(url, tools=[slow]), client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(
            '!call slow {"seconds": 0.3}\n!then\n!call slow {"seconds": 0.5}\n!then\n!say done'
        )
        await wait_until(lambda: has_event(run, "ToolStarted"))
        with pytest.raises(MisuseError, match="is not paused: it is running"):
            await run.resume()
        handle = client.get_workflow_handle(run.workflow_id)
        await handle.signal("resume")  # without a look at the state of the run

        async def is_at_second_call():
            names = [type(record.event).__name__ for record in await engine.agent.store.read(run.session)]
            return names.count("ToolStarted") == 2

        await wait_until(is_at_second_call)
        assert (await run.pause(by="ann")).status == "taken"

        async def is_paused_there():
            return (await handle.query("status"))["state"] == "paused"

        await wait_until(is_paused_there)
        await handle.signal("look")
        history = (await handle.fetch_history()).events
        planned = [each.activity_task_scheduled_event_attributes for each in history]
        inputs = [json.loads(each.input.payloads[0].data) for each in planned if each.input.payloads]
        parts = [each["status"]["part"]["kind"] for each in inputs]
        assert "resume" not in parts and await is_in_state(run, "paused")
        await run.resume()
        assert (await run.result()).stop == "done"


@in_loop
async def test_each_handle_gets_the_result_of_its_own_run(temporal, url):
    agent = make_agent(url, tools=[slow])
    engine = TemporalEngine(agent, client := await connect(temporal), new_queue())
    async with engine.worker():
        done = await engine.start("!say answer to Ann", session="s")
        await done.result()
        cancelled = await engine.start('!call slow {"seconds": 60}\n!then\n!say never', session="s")
        await wait_until(lambda: has_event(cancelled, "ToolStarted"))
        await client.get_workflow_handle(cancelled.workflow_id).cancel()
        assert (await cancelled.result()).stop == "cancelled"
        last = await engine.start("!say answer to Bob", session="s")
        assert (await last.result()).text == "answer to Bob"
        for run, stop, text in ((done, "done", "answer to Ann"), (cancelled, "cancelled", "")):
            result = await run.result()
            assert (result.stop, result.text) == (stop, text)
        assert (await engine.get("s").result()).text == "answer to Bob"


class Refusing(OutboundInterceptor):
    async def start_workflow(self, given):
        raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")


class RefusingAll(Refusing):
    async def describe_workflow(self, given):
        raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")


class RefusingStart(Interceptor):
    """A connection that is lost after the server was asked if the session has a workflow."""

    def intercept_client(self, following):
        return Refusing(following)


class RefusingServer(Interceptor):
    def intercept_client(self, following):
        return RefusingAll(following)


@in_loop
async def test_what_the_server_would_refuse_is_refused_before_the_prompt_is_recorded(temporal, url):
    client = await Client.connect(temporal.host, interceptors=[RefusingServer()])
    engine = TemporalEngine(make_agent(url), client, new_queue())
    with pytest.raises(MisuseError, match="id of the session is too long"):
        await engine.start("!say hi", session="x" * 990)
    with pytest.raises(MisuseError, match="tenant is too long"):
        await engine.start("!say hi", session="t", tenant="é" * 1_025)
    with pytest.raises(EngineFailed, match="refused or did not answer"):
        await engine.start("!say hi")
    assert await list_sessions(engine.agent.store, 10) == []


@in_loop
async def test_an_error_after_the_prompt_was_recorded_names_the_way_on(temporal, url):
    client, queue = await Client.connect(temporal.host, interceptors=[RefusingStart()]), new_queue()
    with pytest.raises(EngineFailed, match=r"the prompt is recorded: engine\.resume\('s'\) starts its run"):
        await TemporalEngine(make_agent(url), client, queue).start("!say hi", session="s")
    engine = TemporalEngine(make_agent(url), await connect(temporal), queue)
    async with engine.worker():
        assert (await (await engine.resume("s")).result()).text == "hi"


async def is_in_state(run, state):
    return (await run.status()).state == state


@in_loop
async def test_the_stream_has_all_events_and_ends_with_the_run(temporal, url):
    engine = TemporalEngine(make_agent(url), await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(SUM)
        events = [type(event).__name__ async for event in run.stream()]
    assert events[0] == "Configured" and events[-1] == "RunEnded"
    assert events.count("ToolFinished") == 3


@in_loop
async def test_the_stream_shows_a_reply_while_it_is_received_and_the_history_does_not(temporal, url):
    engine = TemporalEngine(make_agent(url), client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start("!say Half of it,\n!stall 600\n!say and the rest.")
        shown = ""
        async for item in run.stream():
            shown += item.text if isinstance(item, TextDelta) else ""
            if shown:
                break
        assert "Half of it,".startswith(shown)
        await run.cancel()
        assert (await run.result()).stop == "cancelled"
        history = (await client.get_workflow_handle(run.workflow_id).fetch_history()).to_json()
    assert "Half" not in history


@in_loop
async def test_the_history_starts_again_long_before_the_limits_of_the_server(temporal, url):
    steps = 12
    prompt = (
        "\n!then\n".join(f'!call add {{"a": {number}, "b": 1}}' for number in range(steps))
        + "\n!then\n!say done"
    )
    limits = WorkflowLimits(events_max=60)
    engine = TemporalEngine(make_agent(url), client := await connect(temporal), new_queue(), limits=limits)
    async with engine.worker():
        run = await engine.start(prompt)
        result = await run.result()
        first = client.get_workflow_handle(run.workflow_id, run_id=run._handle.first_execution_run_id)
        length = (await first.describe()).history_length
        save_history(await first.fetch_history(), "continued")
    assert result.steps == steps + 1 and result.text == "done"
    assert 60 < length < 80
    names = [type(record.event).__name__ for record in await engine.agent.store.read(run.session)]
    assert "Resumed" not in names


@in_loop
async def test_a_signal_that_comes_as_the_history_starts_again_is_not_lost(temporal, url):
    """The answer is in the store, and the signal arrives during the part after which the history starts again."""
    entered, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(question):
        entered.set()
        await goes_on.wait()

    engine = TemporalEngine(
        make_agent(url, approver=hold), client := await connect(temporal), new_queue(),
        limits=WorkflowLimits(events_max=20),
    )  # fmt: skip
    async with engine.worker():
        run = await engine.start('!call add {"a": 1, "b": 1}\n!then\n' + PAYING)
        await entered.wait()
        handle = client.get_workflow_handle(run.workflow_id)
        await handle.signal("look")
        first = (await handle.describe()).run_id
        goes_on.set()

        async def find_looks():
            history = await handle.fetch_history()
            planned = [each.activity_task_scheduled_event_attributes for each in history.events]
            inputs = [each.input.payloads for each in planned if each.activity_type.name == "advance_run"]
            return [json.loads(payloads[0].data)["status"]["part"]["kind"] for payloads in inputs]

        assert await wait_until(find_looks) == ["look"]
        assert (await handle.describe()).run_id != first
        await run.cancel()
        assert (await run.result()).stop == "cancelled"


@in_loop
async def test_tools_run_where_they_are_placed_and_as_many_at_once_as_they_allow(temporal, url):
    at_once, most = 0, 0

    @tool(effect="read")
    async def render(page: int) -> str:
        """Render."""
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return "rendered"

    queue = new_queue()
    placed = {"render": ToolPlacement(queue=f"{queue}-gpu", at_once_max=2)}
    agent = make_agent(url, tools=[add, render])
    engine = TemporalEngine(agent, client := await connect(temporal), queue, tools=placed)
    prompt = (
        '!call render {"page": 1}\n!call add {"a": 1, "b": 2}\n!call render {"page": 2}\n!then\n!say done'
    )
    async with engine.worker(queues=[f"{queue}-gpu"]):
        runs = [await engine.start(prompt) for _ in range(4)]
        results = [await run.result() for run in runs]
        history = await client.get_workflow_handle(runs[0].workflow_id).fetch_history()
        save_history(history, "placed")
    assert [result.text for result in results] == ["done"] * 4
    assert most <= 2
    scheduled = [
        (event.activity_task_scheduled_event_attributes.activity_type.name, event.activity_task_scheduled_event_attributes.task_queue.name)
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]  # fmt: skip
    assert ("tool_calls", f"{queue}-gpu") in scheduled
    assert any(name == "tool_calls" and not where.endswith("-gpu") for name, where in scheduled)


@in_loop
async def test_search_attributes_say_what_a_run_does(temporal, url):
    engine = TemporalEngine(make_agent(url), client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start(PAYING, tenant="acme")
        await wait_for_question(run)
        found = f"WorkflowId = '{run.workflow_id}' AND BridleState = 'waiting' AND BridleTenant = 'acme'"

        async def is_listed():
            return [each.id async for each in client.list_workflows(f"{found} AND BridleAgent = 'clerk'")]

        assert await wait_until(is_listed) == [run.workflow_id]
        await run.reject((await run.approvals())[0].id)
        result = await run.result()
        described = await client.get_workflow_handle(run.workflow_id).describe()
    shown = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert (shown["BridleState"], shown["BridleCost"]) == ("done", pytest.approx(result.cost))


@in_loop
async def test_options_with_code_that_workers_lack_are_refused(temporal, url):
    engine = TemporalEngine(make_agent(url), await connect(temporal), new_queue())
    with pytest.raises(MisuseError, match=r"do not have the code of tools=… \(slow\)"):
        await engine.start("!say done", "coded", options={"tools": [add, slow]})
    assert not await engine.agent.store.read("coded")
    async with engine.worker():
        run = await engine.start("!say done", options={"tools": [add], "max_tokens": 100})
        assert (await run.result()).text == "done"


@in_loop
async def test_errors_of_the_server_are_ours_and_say_that_an_answer_is_stored(temporal, url):
    """The workflow is gone, so every signal to it fails."""
    agent = make_agent(url, tools=[external_tool("ask", "Asks.", {"type": "object", "properties": {}})])
    engine = TemporalEngine(agent, client := await connect(temporal), new_queue())
    async with engine.worker():
        run = await engine.start("!call ask {}\n!then\n!say done")
        await wait_until(lambda: is_in_state(run, "waiting"))
        handle = client.get_workflow_handle(run.workflow_id)

        async def is_known():
            return (await handle.query("status"))["state"] == "waiting"

        await wait_until(is_known)
        await handle.terminate()
        (call,) = (await run.status()).external_calls
        with pytest.raises(EngineFailed, match="is stored, and the workflow finds it"):
            await run.give_results({call: "yes"})
    assert await has_event(run, "ToolFinished")


def test_the_history_gets_the_type_of_an_error_and_not_its_text():
    for kind, is_final in ((MisuseError, True), (Conflict, False), (Unusable, False), (ValueError, False)):
        failure = describe_failure("s", kind("secret content"))
        assert (failure.type, failure.non_retryable) == (kind.__name__, is_final)
        assert kind.__name__ in failure.message and "secret" not in failure.message


def test_stores_that_workers_cannot_share_are_refused(tmp_path):
    for store, words in ((None, "in memory"), (str(tmp_path / "log.db"), "processes of one machine only")):
        with pytest.raises(MisuseError, match=words):
            TemporalEngine(make_agent(store), None, "queue")  # type: ignore[arg-type]
    TemporalEngine(make_agent(str(tmp_path / "log.db")), None, "queue", single_machine=True)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="names tools that the agent does not have: dig"):
        TemporalEngine(
            make_agent(str(tmp_path / "log.db")),
            None,  # type: ignore[arg-type]
            "q",
            single_machine=True,
            tools={"dig": ToolPlacement()},
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [("heartbeat_seconds", 0), ("sticky_seconds", -1.0), ("retry_seconds_max", float("nan")), ("events_max", 60_000), ("bytes_max", "1 MB")],
)  # fmt: skip
def test_limits_that_cannot_work_are_refused(name, value):
    with pytest.raises(MisuseError, match=rf"WorkflowLimits\({name}=…\) is .* to .*, not "):
        WorkflowLimits(**{name: value})
