"""A call that a person approved and that has not started: no prompt drops it, and it can still be rejected."""

import json

import pytest

from bridle import Agent, tool
from bridle.stores.memory import MemoryStore
from bridle.values.errors import ApprovedCallWaits, CannotContinue, MisuseError
from bridle.values.events import ApprovalAnswered, Prompted, RunEnded, ToolFinished
from tests.suite.in_loop import in_loop

PROMPT = '!call refund {"order": "17", "amount": 5}\n!then\n!say settled'


class Desk:
    """A store and its agents, whose tool pays."""

    def __init__(self):
        self.paid, self.store = [], MemoryStore()

    def agent(self, name="refund", **options):
        @tool(name=name, effect="write", approve=True)
        def refund(order: str, amount: int) -> str:
            """Pay back."""
            self.paid.append((order, amount))
            return "paid"

        return Agent("sim:", tools=[refund], store=self.store, **options)

    def recorder(self):
        return Agent("sim:", store=self.store)

    async def wait(self, session="s", **options):
        assert (await self.agent(**options).run(PROMPT, session=session)).stop == "waiting"
        (question,) = await self.agent(**options).approvals(session)
        return question

    async def list_events(self, kind, session="s"):
        return [record.event for record in await self.store.read(session) if isinstance(record.event, kind)]


@pytest.fixture
def desk():
    return Desk()


@pytest.mark.parametrize("queue", [False, True])
@in_loop
async def test_prompt_does_not_drop_an_approved_call(desk, queue):
    question = await desk.wait()
    await desk.agent().approve("s", question.id, by="ann")
    before = await desk.store.read("s")
    with pytest.raises(ApprovedCallWaits) as refused:
        await desk.agent().run("Never mind.", session="s", queue=queue)
    for part in (f"refund ({question.call_id}", "bridle resume s", f"bridle approvals reject {question.id}"):
        assert part in str(refused.value)
    assert await desk.store.read("s") == before
    assert (await desk.agent().resume("s")).text == "settled"
    assert desk.paid == [("17", 5)]
    assert (await desk.agent().run("!say hello", session="s")).text == "hello"


@in_loop
async def test_prompt_after_a_rejection_of_the_approved_call_is_taken(desk):
    question = await desk.wait()
    await desk.agent().approve("s", question.id, by="ann")
    await desk.agent().reject("s", question.id, by="bob", reason="a mistake")
    assert await desk.agent().approved_calls("s") == ()
    assert (await desk.agent().run("!say hello", session="s")).text == "hello"
    assert desk.paid == []
    assert [each.answer for each in await desk.list_events(ApprovalAnswered)] == ["approve", "reject"]


@in_loop
async def test_rejection_of_an_approved_call_reaches_the_model(desk):
    question = await desk.wait()
    await desk.agent().approve("s", question.id)
    await desk.agent().reject("s", question.id, reason="a mistake")
    assert (await desk.agent().resume("s")).stop == "done"
    (finished,) = await desk.list_events(ToolFinished)
    assert finished.result.outcome == "denied"
    assert "a mistake" in finished.result.text
    assert desk.paid == []


@in_loop
async def test_approved_call_is_rejected_once_and_approved_once(desk):
    question = await desk.wait()
    await desk.agent().approve("s", question.id)
    with pytest.raises(MisuseError, match="no pending approval matches"):
        await desk.agent().approve("s", question.id)
    await desk.agent().reject("s", question.id)
    for answer in (desk.agent().approve, desk.agent().reject):
        with pytest.raises(MisuseError, match="no pending approval matches"):
            await answer("s", question.id)


@in_loop
async def test_call_that_has_started_cannot_be_rejected(desk):
    question = await desk.wait()
    await desk.agent().approve("s", question.id)
    await desk.agent().resume("s")
    with pytest.raises(MisuseError, match="no pending approval matches"):
        await desk.agent().reject("s", question.id)
    assert desk.paid == [("17", 5)]


@in_loop
async def test_approved_calls_are_listed_until_they_start(desk):
    question = await desk.wait()
    assert await desk.agent().approved_calls("s") == ()
    await desk.agent().approve("s", question.id, by="ann")
    assert await desk.agent().approvals("s") == ()
    (approved,) = await desk.agent().approved_calls("s")
    assert (approved.id, approved.approved_by, approved.is_uncompared) == (question.id, "ann", False)
    await desk.agent().resume("s")
    assert await desk.agent().approved_calls("s") == ()


@in_loop
async def test_prompt_still_gives_up_a_call_that_is_not_approved(desk):
    await desk.wait()
    assert (await desk.agent().run("!say hello", session="s")).text == "hello"
    question = await desk.wait("t")
    await desk.agent().reject("t", question.id)
    assert (await desk.agent().run("!say hello", session="t")).text == "hello"
    assert desk.paid == []


@in_loop
async def test_prompt_does_not_drop_a_call_that_was_approved_before_the_process_died(desk):
    question = await desk.wait()
    await desk.agent().approve("s", question.id)

    class Died(Exception):
        pass

    append = desk.store.append

    async def die_at_the_start(session, after, records, **more):
        if type(records[-1].event).__name__ == "ToolStarted":
            raise Died
        await append(session, after, records, **more)

    desk.store.append = die_at_the_start
    with pytest.raises(Died):
        await desk.agent().resume("s")
    desk.store.append = append
    with pytest.raises(ApprovedCallWaits):
        await desk.agent().run("Never mind.", session="s")
    assert (await desk.agent().resume("s")).text == "settled"
    assert desk.paid == [("17", 5)]


@in_loop
async def test_prompt_does_not_drop_a_call_that_was_approved_inside_a_tool(desk):
    def team():
        return Agent("sim:", tools=[desk.agent(name="refund").as_tool("payer", "Pays.")], store=desk.store)

    script = json.dumps({"prompt": PROMPT})
    assert (await team().run(f"!call payer {script}\n!then\n!say all", session="outer")).stop == "waiting"
    (inner,) = [each.id for each in await desk.store.sessions(limit=9) if each.id != "outer"]
    (question,) = await team().approvals(inner)
    await team().approve(inner, question.id)
    before = await desk.store.read("outer")
    for session in ("outer", inner):
        with pytest.raises(ApprovedCallWaits, match="bridle resume outer") as refused:
            await team().run("Never mind.", session=session)
        assert [each.session for each in refused.value.calls] == [inner]
    assert await desk.store.read("outer") == before
    assert (await team().resume("outer")).text == "all"
    assert desk.paid == [("17", 5)]


@in_loop
async def test_answer_without_code_can_be_given_again_by_code_that_compares(desk):
    question = await desk.wait()
    answered = await desk.recorder().approve("s", question.id, by="ann")
    assert answered.is_uncompared
    renamed = desk.agent("pay_back")
    with pytest.raises(CannotContinue):
        await renamed.resume("s")
    (approved,) = await renamed.approved_calls("s")
    assert (approved.id, approved.is_uncompared) == (question.id, True)
    with pytest.raises(CannotContinue, match="'refund'"):
        await renamed.approve("s", question.id)
    with pytest.raises(MisuseError, match="no pending approval"):
        await desk.recorder().approve("s", question.id)
    again = await desk.agent().approve("s", question.id, arguments={"order": "18", "amount": 4}, by="bob")
    assert not again.is_uncompared
    (approved,) = await desk.agent().approved_calls("s")
    assert (approved.approved_by, approved.is_uncompared) == ("bob", False)
    assert (await desk.agent().resume("s")).text == "settled"
    assert desk.paid == [("18", 4)]


@in_loop
async def test_answer_that_no_code_honours_can_be_rejected_anew(desk):
    question = await desk.wait()
    await desk.recorder().approve("s", question.id)
    renamed = desk.agent("pay_back")
    with pytest.raises(CannotContinue, match="'refund'"):
        await renamed.resume("s")
    await renamed.reject("s", question.id, reason="the tool is gone")
    assert (await renamed.resume("s")).text == "settled"
    assert desk.paid == []


@pytest.mark.parametrize("paused", [False, True])
@in_loop
async def test_prompt_leaves_the_run_of_another_version_alone(desk, paused):
    if paused:

        @tool
        async def look() -> str:
            """Look, and pause the run after this step."""
            await handle.pause()
            return "nothing"

        looking = Agent("sim:", tools=[look], store=desk.store, version="1")
        handle = looking.stream("!call look {}\n!then\n!say two", session="s").start()
        assert (await handle.result()).stop == "paused"
    else:
        await desk.wait(version="1")
    before = await desk.store.read("s")
    for version in ("2", None):
        options = {"version": version} if version else {}
        with pytest.raises(CannotContinue, match=r"is of version '1' of the agent"):
            await desk.agent(**options).run("!say hello", session="s")
    assert await desk.store.read("s") == before
    continuing = desk.agent(version="2", continues=["1"])
    assert (await continuing.run("!say hello", session="s")).text == "hello"
    assert [event.stop for event in await desk.list_events(RunEnded)][-1] == "done"
    assert len(await desk.list_events(Prompted)) == 2


@in_loop
async def test_another_version_prompts_a_session_whose_run_is_over(desk):
    assert (await desk.agent(version="1").run("!say one", session="s")).stop == "done"
    assert (await desk.agent(version="2").run("!say two", session="s")).text == "two"
