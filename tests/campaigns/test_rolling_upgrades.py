"""Rolling upgrades: sessions wait for a person while two versions of the code serve one store and servers are killed.

All sessions are prompted first and wait: at the desk, behind a hand-over, or in an agent that is a tool.  The second version
changes each tool in another way.  Then answers (approve, approve with other arguments, reject) go to one of the two servers
at random, one of which is killed now and then while an answer is on its way, and started again.  At the end each approved
payment was made once with the arguments that the person saw or set, or the answer was refused with a reason and the question
was open until the other version took the answer; payments are counted in a file outside.
"""

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import Phase
from bridle.serve.client import ApiError
from bridle.stores import open_store
from bridle.values.events import ApprovalAnswered, RunEnded, SubrunWaiting, ToolFinished
from tests.campaigns.upgraded_agents import read_payments
from tests.campaigns.upgraded_tools import CHANGES, name_tool
from tests.serve.server_process import ServerProcess
from tests.serve.serving import free_port
from tests.suite.campaign import IS_WHOLE, new_random, scale
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

AGENTS = Path(__file__).with_name("upgraded_agents.py")
ROOT = Path(__file__).parents[2]
SESSIONS = 200
PROMPTED_AT_ONCE = 8
KILL_CHANCE, PROMPT_CHANCE = 0.12, 0.1
RECORDS_BEFORE_KILL_MAX = 12
GROWTH_SECONDS = 2.0
"""Longest wait for what follows an answer before a server is killed."""
SETTLE_SECONDS = 20.0
"""Longest wait for a run before its answer is offered to the other version."""
ANSWERS_PER_SESSION, ROUNDS_MAX = 2, 5
REASON = "no receipt"
REFUSALS = {(409, "cannot_continue"), (409, "conflict"), (409, "agent_not_served"), (400, "invalid_request")}
WAYS = ("desk", "hand-over", "nested")
ANSWERS = ("approve", "approve", "approve", "edit", "reject")
NO_REPLY = 0
"""Status of an `ApiError` if the server ended before it replied."""


@dataclass
class Case:
    """One session: a payment that waits for a person, and what the person wants."""

    name: str
    change: str
    way: str
    answer: str
    amount: int
    asked_in: str = ""
    """Session of the question: that of the inner agent, if there is one."""
    refusals: list = field(default_factory=list)
    is_answered: bool = False
    """True if an answer may have been recorded."""
    is_unsure: bool = False
    """True if a server was killed while it may have been at work on this session."""

    @property
    def paid_amount(self):
        return self.amount + 1 if self.answer == "edit" else self.amount

    def write_prompt(self):
        arguments = {"order": self.name, "amount": self.amount}
        work = f"!call {name_tool(self.change)} {json.dumps(arguments)}\n!then\n!say settled"
        if self.way == "hand-over":
            return f"!call transfer_to_payer {{}}\n!then\n{work}"
        if self.way == "nested":
            return f"!call ask_clerk {json.dumps({'prompt': work})}\n!then\n!say all settled"
        return work


def has_ended(records):
    return any(isinstance(record.event, RunEnded) for record in records)


def is_idle(records):
    return fold_log(records).state.phase is Phase.IDLE


class Campaign:
    """Two servers of two versions, and the sessions that wait."""

    def __init__(self, folder, log, count):
        self.random, self.folder, self.log = new_random("rolling upgrades"), folder, log
        self.store: Any = open_store(log)
        self.servers = [self.make_server(version) for version in "12"]
        self.clients: list[Any] = [None, None]
        self.counts: Counter[str] = Counter()
        self.cases = [
            Case(
                f"order-{number}",
                self.random.choice(CHANGES),
                self.random.choice(WAYS),
                self.random.choice(ANSWERS),
                self.random.randint(1, 90),
            )
            for number in range(count)
        ]

    def make_server(self, version):
        environment = {"BRIDLE_TEST_VERSION": version, "PYTHONPATH": str(ROOT)}
        return ServerProcess(self.folder, free_port(), store=self.log, agents=AGENTS, environment=environment)

    async def start(self, number):
        self.clients[number] = await asyncio.to_thread(self.servers[number].start)

    # the sessions begin

    async def prompt_all(self):
        """Prompt every session in the first version, and wait until every run waits for a person."""
        room = asyncio.Semaphore(PROMPTED_AT_ONCE)

        async def prompt(case):
            async with room:
                await self.clients[0].prompt(
                    case.write_prompt(), agent="desk", session=case.name, new=True, caller=case.name
                )
                await self.wait_for(case.name, has_ended)
            events = await self.read_events(case.name)
            waiting = next((each for each in events if isinstance(each, SubrunWaiting)), None)
            case.asked_in = waiting.session if waiting else case.name
            assert await self.find_question(case, 0) is not None

        await asyncio.gather(*(prompt(case) for case in self.cases))

    async def read_events(self, session):
        return [record.event for record in await self.store.read(session)]

    async def wait_for(self, session, is_there):
        """Wait until the records of a session are as wanted."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_there(records := await self.store.read(session)):
                await self.store.wait_for_records(session, len(records))

    async def is_over(self, case):
        return is_idle(await self.store.read(case.name))

    # the person answers

    async def answer(self, case, number):
        """Send the person's answer to a server; returns what became of it."""
        try:
            question = await self.find_question(case, number)
            if question is None:
                return "no question"
            arguments = json.loads(question.arguments)
            edited = {**arguments, "amount": case.paid_amount} if case.answer == "edit" else None
            word = "reject" if case.answer == "reject" else "approve"
            case.is_answered = True
            await self.clients[number].answer(
                case.asked_in, question.id, word, arguments=edited, reason=REASON, by="ann"
            )
        except ApiError as error:
            if error.status == NO_REPLY:
                case.is_unsure = True
                return "server gone"
            assert (error.status, error.code) in REFUSALS, (case, error.status, error.code, str(error))
            if error.code == "cannot_continue" and not case.is_unsure:
                case.refusals.append(str(error))
                assert await self.find_question(case, 0) == question, "a refused question is still open"
            return error.code
        return "taken"

    async def find_question(self, case, number):
        questions = (await self.clients[number].approvals(case.asked_in)).approvals
        return questions[0] if questions else None

    async def prompt_again(self, case):
        """Prompt a session that has been settled, or that waits: what nobody has approved is given up."""
        if case.answer == "given up" or (case.is_answered and not await self.is_over(case)):
            return
        number = self.random.randrange(2)
        client, question = self.clients[number], await self.find_question(case, number)
        after = len(await self.store.read(case.name))
        await client.prompt("!say you are welcome", agent="desk", session=case.name, caller=case.name)
        await self.wait_for(case.name, lambda records: has_ended(records[after:]))
        self.counts["prompts"] += 1
        if not case.is_answered:
            case.answer = "given up"
            with pytest.raises(ApiError) as refused:
                await client.answer(case.asked_in, question.id, "approve")
            assert refused.value.code == "invalid_request"

    async def answer_one(self, case):
        """Answer a session at some server; one of the two may be killed while the answer is on its way or is used."""
        if self.random.random() < PROMPT_CHANCE:
            return await self.prompt_again(self.random.choice(self.cases))
        number, killed = self.random.randrange(2), self.random.randrange(2)
        records = self.random.randrange(RECORDS_BEFORE_KILL_MAX)
        if self.random.random() >= KILL_CHANCE:
            self.counts[await self.answer(case, number)] += 1
            return None
        growing = asyncio.create_task(self.wait_for_growth(case, records))
        answering = asyncio.create_task(self.answer(case, number))
        await asyncio.wait((answering, growing), return_when=asyncio.FIRST_COMPLETED)
        if answering.done() and answering.result() == "taken":
            await asyncio.wait((growing,), timeout=GROWTH_SECONDS)
        growing.cancel()
        case.is_unsure = True
        await asyncio.to_thread(self.servers[killed].kill)
        self.counts["killed servers"] += 1
        self.counts[await answering] += 1
        await self.start(killed)
        return None

    async def wait_for_growth(self, case, count):
        """Wait until the session of the question has so many records more."""
        known = len(await self.store.read(case.asked_in))
        wanted = known + count
        while known < wanted:
            await self.store.wait_for_records(case.asked_in, known)
            known = len(await self.store.read(case.asked_in))

    async def answer_all(self):
        """Answer at random until every session was answered, and then settle what is left."""
        left = list(self.cases)
        for _ in range(ANSWERS_PER_SESSION * len(self.cases)):
            if not left:
                break
            case = self.random.choice(left)
            await self.answer_one(case)
            left = [each for each in left if each.answer != "given up"]
            left = [each for each in left if each is not case or not await self.is_over(case)]
        for case in left:
            await self.settle(case)

    async def settle(self, case):
        """Offer the answer to both versions until the run is over."""
        for number in [0, 1] * ROUNDS_MAX:
            if await self.is_over(case):
                return
            outcome = await self.answer(case, number)
            self.counts[outcome] += 1
            if outcome in ("taken", "no question"):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SETTLE_SECONDS):
                        await self.wait_for(case.name, is_idle)
        assert await self.is_over(case), (case, await self.read_events(case.asked_in))

    # what became of it

    async def check(self):
        """Count what was paid, and compare it with what the person answered."""
        payments = Counter()
        for _, order, amount, note, _ in read_payments(self.folder):
            payments[order, amount, note] += 1
        found = Counter({"vanished": 0, "twice": 0, "wrong": 0})
        for case in self.cases:
            events = await self.read_events(case.asked_in)
            answers = {each.answer for each in events if isinstance(each, ApprovalAnswered)}
            outcomes = [each.result.outcome for each in events if isinstance(each, ToolFinished)]
            of_order = {key: count for key, count in payments.items() if key[0] == case.name}
            times = sum(of_order.values())
            if case.answer == "given up":
                assert not answers, case
                found["given up by a prompt"] += not times
                found["wrong"] += times
                continue
            assert answers == {"reject" if case.answer == "reject" else "approve"}, (case, answers)
            if case.answer == "reject":
                assert outcomes[-1] == "denied", (case, outcomes)
                found["rejected and not paid"] += not times
                found["wrong"] += times
            else:
                found["paid once"] += times == 1
                found["vanished"] += not times
                found["twice"] += times > 1
                found["wrong"] += {*of_order} != {(case.name, case.paid_amount, "sorry")}
            found["refused with a reason first"] += bool(case.refusals)
            found["refusals"] += len(case.refusals)
        return found


@pytest.mark.slow
@in_loop
async def test_approved_payments_survive_rolling_upgrades(tmp_path):
    campaign = Campaign(tmp_path, str(tmp_path / "log.db"), scale(SESSIONS, least=20))
    try:
        await campaign.start(0)
        await campaign.prompt_all()
        await campaign.start(1)
        await campaign.answer_all()
        found = await campaign.check()
    finally:
        for server in campaign.servers:
            server.close()
        await campaign.store.close()
    total = len(campaign.cases)
    print(f"{total} sessions waited; answers: {dict(campaign.counts)}; result: {dict(found)}")
    assert (found["vanished"], found["twice"], found["wrong"]) == (0, 0, 0)
    assert found["paid once"] + found["rejected and not paid"] + found["given up by a prompt"] == total
    if IS_WHOLE:
        assert found["refusals"]
        assert campaign.counts["killed servers"]
