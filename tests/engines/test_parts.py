"""`PartRunner` without an engine: what one part does, and what it leaves to the next."""

import asyncio
from dataclasses import replace

import pytest

from bridle import Agent, Budget, Deadlines, tool
from bridle.engines.parts import MARGIN_SECONDS, SECONDS_DEFAULT, PartRunner, ToolPlacement
from bridle.engines.status import Part
from bridle.run.archive.sessions import list_all_approvals
from bridle.run.control.requests import SessionControl
from bridle.values.calls import CONTROL_LOG_PREFIX, ApprovalVerdict, ControlRequested, control_log_name
from bridle.values.errors import Conflict, MisuseError, SessionNotFound
from bridle.values.record import GENESIS, seal_record
from tests.engines.engine_fixtures import pay, wait_until
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS


@tool(effect="write", timeout=1)
async def quick() -> str:
    """Quick."""
    return "ok"


@tool(effect="write", timeout=600)
async def render() -> str:
    """Render."""
    return "rendered"


@pytest.fixture
def make_runner(tmp_path):
    def make(tools, agent_options=None, **options):
        store = str(tmp_path / "log.db")
        agent = Agent("sim:", name="clerk", tools=tools, store=store, **agent_options or {})
        return PartRunner(agent, **options)

    return make


async def list_names(runner, session):
    return [type(record.event).__name__ for record in await runner.agent.store.read(session)]


@in_loop
async def test_a_part_runs_only_the_calls_that_its_limit_counts(make_runner):
    """A call that becomes due after another one has a part of its own, with its own time limit and place."""
    runner = make_runner([quick, render], placements={"render": ToolPlacement(at_once_max=1)})
    session, status = await runner.begin("!call quick {}\n!call render {}\n!then\n!say done", None)
    parts = []
    while status.state != "ended":
        status = await runner.advance(session, status)
        parts.append((status.part.label, status.part.seconds))
    assert parts[:2] == [("quick", 1 + MARGIN_SECONDS), ("render", 600 + MARGIN_SECONDS)]


@in_loop
async def test_a_call_of_a_limited_tool_waits_for_its_place_also_after_another_call(make_runner):
    runner = make_runner([quick, render], placements={"render": ToolPlacement(at_once_max=1)})
    session, status = await runner.begin("!call quick {}\n!call render {}\n!then\n!say done", None)
    status = await runner.advance(session, status)
    async with runner.agent.store.lease(f"{CONTROL_LOG_PREFIX}slot:render:0"):
        status = await runner.advance(session, status)
        assert (await list_names(runner, session)).count("ToolStarted") == 1


class OwnedControl(SessionControl):
    """As that of an engine, which owns a run that waits."""

    async def _has_owner(self):
        return True

    def _is_over(self, state):
        return False


ASKING_INSIDE = (
    r'!call cashier {"prompt": "!call pay {\"amount\": 7}\n!then\n!say paid"}' + "\n!then\n!say done"
)
LOOK = Part(kind="look", label="look")


@in_loop
async def test_a_paused_run_goes_on_only_when_it_is_resumed(make_runner):
    """The request to pause is itself news for a run that waits; for a paused one it is not."""
    entered, goes_on = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def slow() -> str:
        """Wait."""
        entered.set()
        await goes_on.wait()
        return "slept"

    runner = make_runner([slow])
    session, status = await runner.begin("!call slow {}\n!then\n!say done", None)
    status = await runner.advance(session, status)
    part = asyncio.create_task(runner.advance(session, status))
    await entered.wait()
    pausing = SessionControl(runner.agent.store, session)
    assert (await pausing.pause(by="ann")).status == "taken"
    goes_on.set()
    status = await part
    assert status.state == "paused"
    with pytest.raises(Conflict, match="has an unfinished run on an engine"):
        await runner.agent.run("!say other", session=session)
    for _ in range(3):
        status = await runner.advance(session, replace(status, part=LOOK))
        assert (status.state, (await list_names(runner, session))[-1]) == ("paused", "RunEnded")
    status = await runner.advance(session, replace(status, part=Part(kind="resume")))
    while status.state != "ended":
        status = await runner.advance(session, status)
    assert status.stop == "done"


@in_loop
async def test_a_session_that_was_busy_is_found_waiting_and_its_requests_are_not_lost(make_runner):
    runner = make_runner([pay])
    session, status = await runner.begin('!call pay {"amount": 7}\n!then\n!say thanks', None)
    waiting = await runner.advance(session, status)
    store = runner.agent.store
    async with store.lease(session):
        sending = asyncio.create_task(OwnedControl(store, session).steer("Hurry."))
        await wait_until(lambda: store.read(control_log_name(session)))
        busy = await runner.advance(session, replace(waiting, part=LOOK))
    assert (busy.state, busy.requests) == ("busy", waiting.requests)
    status = await runner.advance(session, busy)
    assert (status.state, (await sending).status) == ("waiting", "taken")
    again = await runner.advance(session, replace(status, state="busy", part=LOOK))
    assert again == status


@in_loop
async def test_a_late_cancellation_of_one_attempt_leaves_the_next_one_alone(make_runner):
    """Both are in one process: the loop was blocked past the heartbeat, and the retry came to the same worker."""
    started, goes_on = asyncio.Queue(), asyncio.Event()

    @tool(effect="write", on_unknown="retry")
    async def job() -> str:
        """Work."""
        started.put_nowait(None)
        await goes_on.wait()
        return "worked"

    runner = make_runner([job])
    session, status = await runner.begin("!call job {}\n!then\n!say done", None)
    status = await runner.advance(session, status)
    first = asyncio.create_task(runner.advance(session, status))
    await started.get()
    taken = await runner.advance(session, status, take_over=True)
    second = asyncio.create_task(runner.advance(session, taken))
    await started.get()
    runner.revoke(first)
    first.cancel()
    await asyncio.wait((first,))
    goes_on.set()
    status = await second
    assert (status.state, status.part.kind) == ("running", "model")
    assert (await list_names(runner, session))[-1] == "ToolFinished"


@in_loop
async def test_the_wait_for_a_place_does_not_use_up_the_time_of_a_part(make_runner, monkeypatch):
    monkeypatch.setattr("bridle.engines.parts.SLOT_WAIT_SECONDS", 0.05)
    runner = make_runner([render], placements={"render": ToolPlacement(at_once_max=1)})
    session, status = await runner.begin("!call render {}\n!then\n!say done", None)
    due = await runner.advance(session, status)
    async with (
        runner.agent.store.lease(f"{CONTROL_LOG_PREFIX}slot:render:0"),
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        busy = await runner.advance(session, due)
    assert busy == replace(due, state="busy")
    assert "ToolStarted" not in await list_names(runner, session)
    status = await runner.advance(session, busy)
    names = await list_names(runner, session)
    assert (status.part.kind, names[-1]) == ("model", "ToolFinished") and "Resumed" not in names


@in_loop
async def test_a_person_whom_the_worker_asks_is_not_cut_by_the_limit_of_the_model_call(make_runner):
    """The approver runs in the part of the reply that asks, or of the call before it."""

    async def ask(question):
        return ApprovalVerdict(answer="approve")

    runner = make_runner([pay, quick], {"approver": ask, "deadlines": Deadlines(total_seconds=30)})
    session, status = await runner.begin(
        '!call quick {}\n!then\n!call pay {"amount": 7}\n!then\n!say done', None
    )
    limits = [status.part.seconds]
    while (status := await runner.advance(session, status)).state != "ended":
        limits.append(status.part.seconds)
    assert (status.stop, len(limits)) == ("done", 5) and min(limits) >= SECONDS_DEFAULT


@in_loop
async def test_an_attempt_leaves_the_session_to_a_process_that_has_resumed_it(make_runner):
    """The worker of the first attempt is dead, and `bridle resume` was faster than the second attempt."""
    entered, goes_on = asyncio.Event(), asyncio.Event()

    @tool(effect="write", on_unknown="retry")
    async def job() -> str:
        """Work."""
        entered.set()
        await goes_on.wait()
        return "worked"

    runner, person = make_runner([job]), make_runner([job]).agent
    session, status = await runner.begin("!call job {}\n!then\n!say done", None)
    due = await runner.advance(session, status)
    resuming = asyncio.create_task(person.resume(session))
    await entered.wait()
    assert (await runner.advance(session, due, take_over=True)).state == "busy"
    with pytest.raises(Conflict):
        await runner.close(session, due, take_over=True)
    goes_on.set()
    assert (await resuming).text == "done"
    assert (await runner.advance(session, due, take_over=True)).state == "ended"


@in_loop
async def test_an_attempt_takes_the_session_from_an_attempt_that_has_resumed_it(make_runner):
    """The worker of the first attempt hangs: what it recorded is not that of another process."""
    entered, goes_on = asyncio.Queue(), asyncio.Event()

    @tool(effect="write", on_unknown="retry")
    async def job() -> str:
        """Work."""
        entered.put_nowait(None)
        await goes_on.wait()
        return "worked"

    runner, other = make_runner([job]), make_runner([job])
    session, status = await runner.begin("!call job {}\n!then\n!say done", None)
    due = await runner.advance(session, status)
    first = asyncio.create_task(runner.advance(session, due))
    await entered.get()
    second = asyncio.create_task(other.advance(session, due, take_over=True))
    assert (await second).part.kind == "tools"
    third = await make_runner([job]).advance(session, due, take_over=True)
    assert third.part.kind == "tools"
    runner.revoke(first)
    first.cancel()
    await asyncio.wait((first,))


@in_loop
async def test_questions_of_agents_inside_calls_are_among_those_of_the_run(make_runner):
    cashier = Agent("sim:", name="cashier", tools=[pay])
    runner = make_runner([cashier.as_tool()])
    session, status = await runner.begin(ASKING_INSIDE, None)
    while status.state == "running":
        status = await runner.advance(session, status)
    (question,) = status.questions
    state = await runner.read_state(session)
    (listed,) = await list_all_approvals(runner.agent.store, session, state)
    assert (status.state, listed.id, listed.tool) == ("waiting", question, "pay")
    assert listed.session != session


@in_loop
async def test_a_run_that_its_budget_ended_goes_on_with_another(make_runner):
    runner = make_runner([quick])
    session, status = await runner.begin("!call quick {}\n!then\n!say done", None, budget=Budget(steps=1))
    while status.state != "ended":
        status = await runner.advance(session, status)
    assert status.stop == "steps"
    status = await runner.resume(session, Budget(steps=5))
    assert (status.state, status.part.kind) == ("running", "model")
    while status.state != "ended":
        status = await runner.advance(session, status)
    assert status.stop == "done"


@in_loop
async def test_a_prompt_does_not_end_a_run_that_an_engine_has(make_runner):
    runner, other = make_runner([pay]), make_runner([pay])
    session, status = await runner.begin('!call pay {"amount": 7}\n!then\n!say thanks', None)
    for _ in range(2):
        before = await list_names(runner, session)
        with pytest.raises(Conflict, match="has an unfinished run on an engine"):
            await other.agent.run("!say for Bob", session=session)
        with pytest.raises(Conflict, match="has an unfinished run on an engine"):
            await other.begin("!say for Bob", session)
        assert await list_names(runner, session) == before
        status = await runner.advance(session, status)
    assert status.state == "waiting"
    await other.agent.resume(session)  # it still waits, and the engine still has it
    with pytest.raises(Conflict, match="has an unfinished run on an engine"):
        await other.agent.run("!say for Bob", session=session)
    await other.agent.resume(session, take_over=True)
    assert (await other.agent.run("!say for Bob", session=session)).text == "for Bob"
    ended = await runner.advance(session, replace(status, part=LOOK))
    assert (ended.state, ended.stop) == ("ended", "cancelled"), "the engine leaves the other run alone"


@in_loop
async def test_a_run_that_an_engine_resumed_is_its_own(make_runner):
    runner, other = make_runner([pay]), make_runner([pay])
    paying = '!call pay {"amount": 7}\n!then\n!say thanks'
    await other.agent.run(paying, session="s")
    await other.agent.run("!say a new prompt ends a run that no engine has", session="s")
    await other.agent.run(paying, session="s")
    await runner.resume("s", None)
    with pytest.raises(Conflict, match="has an unfinished run on an engine"):
        await other.agent.run("!say for Bob", session="s")


@in_loop
async def test_a_part_and_a_cancellation_leave_a_later_run_alone(make_runner):
    runner, other = make_runner([pay]), make_runner([pay])
    session, status = await runner.begin('!call pay {"amount": 7}\n!then\n!say thanks', None)
    waiting = await runner.advance(session, status)
    (question,) = await other.agent.approvals(session)
    await other.agent.approve(session, question.id)
    assert (await other.agent.resume(session)).text == "thanks"
    await other.agent.run('!call pay {"amount": 8}\n!then\n!say second', session=session)
    before = await list_names(runner, session)
    for ended in (
        await runner.advance(session, replace(waiting, part=LOOK)),
        await runner.close(session, waiting, take_over=True),
    ):
        assert (ended.state, ended.stop) == ("ended", "done")
        assert (await runner.read_result(session, ended.seq, is_end=True)).text == "thanks"
    assert (await runner.read_result(session, waiting.seq, is_end=False)).text == "thanks"
    assert await list_names(runner, session) == before


@in_loop
async def test_an_unknown_session_has_no_status(make_runner):
    with pytest.raises(SessionNotFound, match="there is no session 'nosuch'"):
        await make_runner([pay]).describe("nosuch")


@in_loop
async def test_many_requests_prevent_neither_answers_nor_a_cancellation(make_runner):
    runner = make_runner([pay])
    session, status = await runner.begin('!call pay {"amount": 7}\n!then\n!say thanks', None)
    waiting = await runner.advance(session, status)
    store, head, records = runner.agent.store, GENESIS, []
    for number in range(1_001):
        request = ControlRequested(action="steer", run="old", text=f"m{number}")
        records.append(seal_record(number + 1, 1.0, request, head))
        head = records[-1].hash
    await store.append(control_log_name(session), 0, records)
    control = OwnedControl(store, session)
    with pytest.raises(MisuseError, match="has 1,001 requests"):
        await control.steer("Hurry.", wait_seconds=0)
    (question,) = await runner.agent.approvals(session)
    with pytest.raises(Conflict, match="has not taken the answer"):
        await control.answer(question.id, ApprovalVerdict(answer="reject"), wait_seconds=0)
    assert (await control.cancel(wait_seconds=0)).status == "sent"
    status = await runner.advance(session, replace(waiting, part=LOOK))
    assert (status.state, status.stop) == ("ended", "cancelled")
