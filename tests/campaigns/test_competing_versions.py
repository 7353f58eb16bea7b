"""Two versions of an agent that take turns in one process: calls wait for a person, and processes die between two records.

Each session asks about one payment. Two versions of the tool are alive, each a random change of the first; they answer and
resume in random order, and die between two records. Every approved payment is made exactly once with the arguments that the
person saw, or its answer is refused with a reason and the question is open; at the end the first version finishes what is left.
"""

import pytest

from bridle import Agent, StoreError
from bridle.core.recovery.log_repair import fold_log
from bridle.core.state import Phase
from bridle.stores import open_store
from bridle.values.errors import CannotContinue, Conflict, MisuseError
from bridle.values.events import ApprovalAnswered, ToolFinished
from tests.campaigns.upgraded_tools import CHANGES, make_tool
from tests.suite.campaign import new_random, scale
from tests.suite.in_loop import in_loop

SESSIONS = 200
STEPS_MAX = 12


class Death(StoreError):
    """The process died before this record was written."""


class MortalStore:
    """A store whose process dies after some writes; every process opens the file again."""

    def __init__(self, path, writes_left=None):
        self._inner, self._left = open_store(path), writes_left

    def __getattr__(self, name):
        return getattr(self._inner, name)

    async def append(self, session, after, records, *, epoch=None):
        if self._left == 0:
            raise Death("the process is gone")
        self._left = None if self._left is None else self._left - 1
        await self._inner.append(session, after, records, epoch=epoch)


class Ledger:
    """Payments by session, each with the idempotency key of its call."""

    def __init__(self):
        self.paid = {}

    def pay(self, call, order, amount, note):
        payments = self.paid.setdefault(call.session, {})
        payments[call.idempotency_key] = (order, amount, note)
        return "paid"

    def find(self, call):
        return "paid" if call.idempotency_key in self.paid.get(call.session, {}) else None


class Upgrade:
    """One session, and the two versions that compete for it."""

    def __init__(self, path, number):
        self.random, self.path, self.session = new_random(f"upgrade {number}"), path, f"s{number}"
        self.ledger, self.outcomes = Ledger(), []
        self.versions = [self.random.choice(CHANGES), self.random.choice(CHANGES)]
        self.order, self.amount = str(number), self.random.randint(1, 90)

    def agent(self, change, writes_left=None):
        store = MortalStore(self.path, writes_left)
        return Agent("sim:", name="desk", tools=[make_tool(change, self.ledger)], store=store)

    async def read_state(self):
        store = open_store(self.path)
        try:
            return fold_log(await store.read(self.session)).state
        finally:
            await store.close()

    async def start(self):
        prompt = f'!call refund {{"order": "{self.order}", "amount": {self.amount}}}\n!then\n!say settled'
        agent = self.agent("none")
        assert (await agent.run(prompt, self.session)).stop == "waiting"
        await agent.store.close()

    async def step(self):
        """One version answers or resumes; its process may die on the way."""
        change = self.random.choice(self.versions)
        await self.act(
            change,
            self.random.choice(("approve", "resume", "resume")),
            self.random.choice((None, None, 0, 1, 2, 4)),
        )

    async def act(self, change, what, writes_left=None):
        agent = self.agent(change, writes_left)
        before = await self.read_state()
        try:
            if what == "resume":
                result = await agent.resume(self.session)
                self.outcomes.append(result.stop)
            else:
                for question in await agent.approvals(self.session):
                    await agent.approve(self.session, question.id)
                    self.outcomes.append("approved")
        except CannotContinue as error:
            assert str(error)
            assert error.obstacles
            assert await self.read_state() == before, "a refusal recorded something"
            self.outcomes.append("refused")
        except Death:
            self.outcomes.append("died")
        except (Conflict, MisuseError) as error:
            raise AssertionError(f"{change} {what}: {error}") from error
        finally:
            await agent.store.close()
        await self.check()

    async def check(self):
        """Paid at most once, with what the person saw; unless it is paid, the call is open."""
        payments = self.ledger.paid.get(self.session, {})
        assert list(payments.values()) in ([], [(self.order, self.amount, "sorry")]), (
            self.versions,
            self.outcomes,
        )
        state = await self.read_state()
        if not payments:
            pending = state.calls.batch.pending
            assert state.phase is not Phase.IDLE, (self.versions, self.outcomes)
            assert [item.result for item in pending] == [None], (self.versions, self.outcomes)

    async def finish(self):
        """The versions that are left answer and resume, the first one last, until the call is settled."""
        for change in [*self.versions, "none", "rename with alias", "rename argument with upgrade"] * 3:
            if (await self.read_state()).phase is Phase.IDLE:
                break
            await self.act(change, "resume")
            await self.act(change, "approve") if (await self.read_state()).phase is not Phase.IDLE else None
            await self.act(change, "resume") if (await self.read_state()).phase is not Phase.IDLE else None
        assert (await self.read_state()).phase is Phase.IDLE, (self.versions, self.outcomes)


@pytest.mark.slow
@in_loop
async def test_approved_payments_survive_rolling_upgrades(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    counts = {}
    for number in range(scale(SESSIONS)):
        upgrade = Upgrade(str(tmp_path / "log.db"), number)
        await upgrade.start()
        for _ in range(upgrade.random.randint(1, STEPS_MAX)):
            if (await upgrade.read_state()).phase is Phase.IDLE:
                break
            await upgrade.step()
        await upgrade.finish()
        # No session vanished: each was paid once.
        assert [*upgrade.ledger.paid[upgrade.session].values()] == [(upgrade.order, upgrade.amount, "sorry")]
        store = open_store(str(tmp_path / "log.db"))
        events = [record.event for record in await store.read(upgrade.session)]
        await store.close()
        assert [e.result.outcome for e in events if isinstance(e, ToolFinished)] == ["ok"]
        assert any(isinstance(e, ApprovalAnswered) and e.answer == "approve" for e in events)
        for outcome in upgrade.outcomes:
            counts[outcome] = counts.get(outcome, 0) + 1
    print("outcomes:", counts)
    assert {"approved", "refused", "died", "done", "waiting"} <= {*counts} or scale(SESSIONS) < 20
