"""A batch of calls gives the result of running it in order, in parallel where that is equivalent."""

import asyncio
import random

import pytest
from msgspec.structs import replace

from bridle import Agent, Budget, RunContext, tool
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.calls import PermissionRule, Policy
from bridle.values.errors import CannotContinue, MisuseError
from bridle.values.record import seal_record


def run(agent, session="s"):
    return agent.run_sync("go", session=session)


def test_a_hundred_writes_to_one_file_all_land_in_order(tmp_path):
    path = tmp_path / "log.txt"

    @tool(effect="write", resource="file:{name}")
    async def append(name: str, line: str) -> str:
        """Append a line."""
        before = path.read_text() if path.exists() else ""
        for _ in range(random.Random(line).randrange(3)):
            await asyncio.sleep(0)
        path.write_text(before + line + "\n")
        return "written"

    script = call_reply(*(("append", {"name": "log.txt", "line": str(at)}) for at in range(100)))
    assert run(Agent(scripted(script, "ok"), tools=[append])).stop == "done"
    assert path.read_text().split() == [str(at) for at in range(100)]


class Floor:
    """Tools that say when they begin and end, so that a test can see what ran beside what."""

    def __init__(self):
        self.happened = []

    async def during(self, name):
        self.happened.append(("begin", name))
        for _ in range(5):
            await asyncio.sleep(0)
        self.happened.append(("end", name))
        return name

    def together(self, first, second):
        at = self.happened.index
        return at(("begin", second)) < at(("end", first)) and at(("begin", first)) < at(("end", second))


@pytest.mark.parametrize(
    ("first", "second", "beside"),
    [
        (("read", "a"), ("read", "a"), True),
        (("read", None), ("read", None), True),
        (("write", "a"), ("write", "b"), True),
        (("write", "a"), ("read", "b"), True),
        (("read", "a"), ("write", "b"), True),
        (("write", "a"), ("write", "a"), False),
        (("read", "a"), ("write", "a"), False),
        (("write", "a"), ("read", "a"), False),
        (("write", None), ("write", "b"), False),
        (("write", "a"), ("read", None), False),
        (("exclusive", "a"), ("read", "b"), False),
        (("undeclared", "a"), ("write", "b"), False),
        (("undeclared", None), ("undeclared", None), False),
    ],
)
def test_what_may_run_beside_what(first, second, beside):
    floor, tools = Floor(), []
    for name, (effect, resource) in (("one", first), ("two", second)):
        options = {} if resource is None else {"resource": resource}
        if effect != "undeclared":
            options["effect"] = effect

        tools.append(tool(_make_work(name, floor), name=name, **options))
    run(Agent(scripted(call_reply(("one", {}), ("two", {})), "ok"), tools=tools))
    assert floor.together("one", "two") is beside
    assert floor.happened.index(("begin", "one")) < floor.happened.index(("begin", "two"))


def _make_work(name, floor):
    async def work() -> str:
        """Work."""
        return await floor.during(name)

    return work


def test_limits_per_tool_and_per_run():
    floor = Floor()

    @tool(effect="read", at_once=2)
    async def look(number: int) -> str:
        """Look."""
        return await floor.during(number)

    script = call_reply(*(("look", {"number": at}) for at in range(7)))
    run(Agent(scripted(script, "ok"), tools=[look]))
    assert _most(floor) == 2
    floor.happened.clear()

    @tool(effect="read", name="look")
    async def freely(number: int) -> str:
        """Look."""
        return await floor.during(number)

    run(Agent(scripted(script, "ok"), tools=[freely], tools_at_once=3))
    assert _most(floor) == 3


def _most(floor):
    running = most = 0
    for word, _ in floor.happened:
        running += 1 if word == "begin" else -1
        most = max(most, running)
    return most


class Bank:
    """A backend that knows what it did, by key."""

    def __init__(self):
        self.done = {}
        self.tries = []

    def tool(self, **options):
        @tool(effect="write", **options)
        def pay(amount: int, context: RunContext) -> str:
            """Pay."""
            self.tries.append((context.idempotency_key, context.attempt))
            self.done[context.idempotency_key] = amount
            return f"paid {amount}"

        return pay


def kill_in_tool(bank, made, *, took_effect):
    """A session whose driver died inside the tool; the bank may or may not have acted."""

    async def main():
        store, whole = MemoryStore(), MemoryStore()
        await Agent(scripted(SCRIPT, "fine"), tools=[made], store=whole, clock=FakeClock()).run(
            "?", session="s"
        )
        for record in await whole.read("s"):
            await store.append("s", record.seq - 1, (record,))
            if isinstance(record.event, e.ToolStarted):
                break
        return store

    store = asyncio.run(main())
    if not took_effect:
        bank.done.clear()
    bank.tries.clear()
    return store


SCRIPT = call_reply(("pay", {"amount": 7}))


def resume_session(bank, made, store, **more):
    agent = Agent(scripted(SCRIPT, "fine"), tools=[made], store=store, clock=FakeClock(), **more)
    return agent, asyncio.run(agent.resume("s"))


@pytest.mark.parametrize("took_effect", [True, False])
def test_in_doubt_report(took_effect):
    bank = Bank()
    made = bank.tool()
    store = kill_in_tool(bank, made, took_effect=took_effect)
    _, result = resume_session(bank, made, store)
    assert (result.stop, bank.tries) == ("done", [])
    assert result.messages[2].results[0].outcome == "unknown"


def test_in_doubt_retry_has_the_same_key():
    bank = Bank()
    made = bank.tool(on_unknown="retry")
    store = kill_in_tool(bank, made, took_effect=True)
    (key,) = bank.done
    _, result = resume_session(bank, made, store)
    assert (result.stop, bank.tries) == ("done", [(key, 2)])


@pytest.mark.parametrize("took_effect", [True, False])
def test_in_doubt_probe(took_effect):
    bank = Bank()

    def find(context: RunContext) -> str | None:
        return f"found {bank.done[context.idempotency_key]}" if context.idempotency_key in bank.done else None

    made = bank.tool(probe=find)
    assert made.spec.on_unknown == "probe"
    store = kill_in_tool(bank, made, took_effect=took_effect)
    _, result = resume_session(bank, made, store)
    assert (result.stop, len(bank.tries)) == ("done", 0 if took_effect else 1)
    assert result.messages[2].results[0].text == ("found 7" if took_effect else "paid 7")
    finished = [r.event for r in asyncio.run(store.read("s")) if isinstance(r.event, e.ToolFinished)]
    assert [event.source for event in finished] == ["probe" if took_effect else "run"]
    probed = [r.event for r in asyncio.run(store.read("s")) if isinstance(r.event, e.ToolProbed)]
    assert len(probed) == (0 if took_effect else 1)
    for event in (*probed, *finished):
        assert (event.call_id, event.name, event.arguments) == ("c1_0", made.spec.name, '{"amount":7}')  # type: ignore[attr-defined]


def test_a_probe_that_fails_leaves_the_doubt():
    bank = Bank()

    async def find(amount: int) -> str:
        raise OSError("the bank is closed")

    made = bank.tool(probe=find)
    _, result = resume_session(bank, made, kill_in_tool(bank, made, took_effect=False))
    (told,) = result.messages[2].results
    assert (told.outcome, bank.tries) == ("unknown", [])
    assert "the bank is closed" in told.text


@pytest.mark.parametrize("answer", ["approve", "reject", "settle"])
def test_in_doubt_ask(answer):
    bank = Bank()
    made = bank.tool(on_unknown="ask")
    store = kill_in_tool(bank, made, took_effect=False)
    agent, result = resume_session(bank, made, store)
    assert (result.stop, bank.tries) == ("waiting", [])
    (question,) = asyncio.run(agent.approvals("s"))
    assert question.question == "in_doubt"
    match answer:
        case "approve":
            asyncio.run(agent.approve("s", question.id))
        case "reject":
            asyncio.run(agent.reject("s", question.id))
        case "settle":
            asyncio.run(agent.settle("s", question.id, "paid by hand"))
    result = asyncio.run(agent.resume("s"))
    (told,) = result.messages[2].results
    outcome = {"approve": "ok", "reject": "unknown", "settle": "ok"}[answer]
    assert (result.stop, told.outcome, len(bank.tries)) == ("done", outcome, int(answer == "approve"))
    if answer == "settle":
        assert told.text == "paid by hand"


def edited_and_killed(made):
    """A session whose driver died inside a call that a person had changed to 8."""

    async def main():
        store, whole = MemoryStore(), MemoryStore()
        first = Agent(scripted(SCRIPT, "fine"), tools=[made], store=whole, clock=FakeClock())
        await first.run("?", session="s")
        (question,) = await first.approvals("s")
        await first.approve("s", question.id, arguments={"amount": 8})
        await first.resume("s")
        for record in await whole.read("s"):
            await store.append("s", record.seq - 1, (record,))
            if isinstance(record.event, e.ToolStarted):
                break
        return store

    return asyncio.run(main())


@pytest.mark.parametrize("how", ["approve", "settle"])
def test_a_call_in_doubt_keeps_the_arguments_a_person_gave_it(how):
    bank = Bank()
    made = bank.tool(on_unknown="ask", approve=True)
    store = edited_and_killed(made)
    bank.done.clear()
    agent, _ = resume_session(bank, made, store)
    (question,) = asyncio.run(agent.approvals("s"))
    assert question.arguments == '{"amount":8}'
    with pytest.raises(MisuseError, match="started already"):
        asyncio.run(agent.approve("s", question.id, arguments={"amount": 9}))
    if how == "approve":
        asyncio.run(agent.approve("s", question.id))
    else:
        asyncio.run(agent.settle("s", question.id, "by hand"))
    result = asyncio.run(agent.resume("s"))
    assert list(bank.done.values()) == ([8] if how == "approve" else [])
    assert '{"amount":8}' in result.messages[2].results[0].text


def test_a_probe_gets_the_arguments_the_call_was_started_with():
    bank, looked = Bank(), []

    def find(amount: int) -> str:
        looked.append(amount)
        return "found"

    made = bank.tool(probe=find, approve=True)
    _, result = resume_session(bank, made, edited_and_killed(made))
    assert (result.stop, looked) == ("done", [8])


def test_a_call_in_doubt_never_runs_against_a_denying_rule():
    bank = Bank()
    made = bank.tool(on_unknown="ask")
    store = kill_in_tool(bank, made, took_effect=False)
    closed = Policy(rules=(PermissionRule(decision="deny", name="closed"),))
    agent, _ = resume_session(bank, made, store, policy=closed)
    (question,) = asyncio.run(agent.approvals("s"))
    with pytest.raises(CannotContinue, match=r"the rules deny the call now \(closed\) \(.*, or reject it"):
        asyncio.run(agent.approve("s", question.id))
    asyncio.run(agent.reject("s", question.id))
    result = asyncio.run(agent.resume("s"))
    (told,) = result.messages[2].results
    assert (told.outcome, bank.tries) == ("unknown", [])


@pytest.mark.parametrize("how", ["deny", "reject"])
def test_a_call_that_would_be_repeated_and_may_not_stays_in_doubt(how):
    bank = Bank()
    made = bank.tool(on_unknown="retry")
    store = kill_in_tool(bank, made, took_effect=True)
    closed = Policy(rules=(PermissionRule(decision="deny" if how == "deny" else "ask", name="closed"),))
    agent, result = resume_session(bank, made, store, policy=closed)
    if how == "reject":
        (question,) = asyncio.run(agent.approvals("s"))
        asyncio.run(agent.reject("s", question.id))
        result = asyncio.run(agent.resume("s"))
    (told,) = result.messages[2].results
    assert (told.outcome, bank.tries) == ("unknown", [])
    assert "was started" in told.text and "It was not run." not in told.text
    assert ("not allowed here (closed)" if how == "deny" else "A person decided") in told.text


def test_a_call_in_doubt_whose_tool_is_gone_stays_in_doubt():
    bank = Bank()
    store = kill_in_tool(bank, bank.tool(), took_effect=True)
    other = tool(print_nothing, name="other")
    _, result = resume_session(bank, other, store)
    (told,) = result.messages[2].results
    assert told.outcome == "unknown"


def print_nothing() -> None:
    """Nothing."""


def test_a_call_that_came_twice_is_undone_once():
    bank, undone = Bank(), []

    def refund(amount: int) -> str:
        undone.append(amount)
        return "back"

    first = replace(SCRIPT.parts[0], wire_id="w0")
    doubled = replace(SCRIPT, parts=(first, first))
    agent = Agent(scripted(doubled), tools=[bank.tool(compensate=refund)])
    result = asyncio.run(agent.run("?", session="s", budget=Budget(steps=1)))
    assert (result.stop, len(result.compensations)) == ("steps", 1)
    asyncio.run(agent.compensate("s"))
    assert undone == [7]


def test_a_second_doubt_is_a_second_question():
    bank = Bank()
    made = bank.tool(on_unknown="ask")
    store = kill_in_tool(bank, made, took_effect=False)
    agent, _ = resume_session(bank, made, store)
    (first,) = asyncio.run(agent.approvals("s"))
    asyncio.run(agent.approve("s", first.id))

    async def die_again():
        records = list(await store.read("s"))
        again = MemoryStore()
        await again.append("s", 0, records)
        start = e.ToolStarted(call_id="c1_0", name="pay", key="k", attempt=2)
        for event in (e.Resumed(), start):
            last = (await again.read("s"))[-1]
            await again.append("s", last.seq, (seal_record(last.seq + 1, last.at, event, last.hash),))
        return again

    again = asyncio.run(die_again())
    agent, result = resume_session(bank, made, again)
    (second,) = asyncio.run(agent.approvals("s"))
    assert (result.stop, second.id == first.id, bank.tries) == ("waiting", False, [])


def test_a_call_that_came_twice_in_one_reply_is_run_once():
    bank = Bank()
    made = bank.tool()
    reply = call_reply(("pay", {"amount": 7}), ("pay", {"amount": 8}))
    first, second = replace(reply.parts[0], wire_id="w0"), reply.parts[1]
    doubled = replace(reply, parts=(first, first, second))
    result = run(Agent(scripted(doubled, "ok"), tools=[made]))
    assert sorted(bank.done.values()) == [7, 8]
    told = [r.text for m in result.messages for r in m.results]
    assert (told[0], told[2]) == ("paid 7", "paid 8")
    assert told[1].endswith("run once. Its result: paid 7")
