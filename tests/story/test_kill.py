"""kill -9 in and around a tool that changes something: the policy is followed, and no receipt is ignored.

A real process is killed; another one goes on.  What was really done is in the ledger, which no
log knows of.  BRIDLE_CAMPAIGN multiplies the kills.
"""

import asyncio
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridle.cli.main import main as command
from tests.story.kill_agent import MOMENTS, POLICIES, SESSION, Ledger, paying_agent
from tests.story.kill_agent import main as pay
from tests.story.payments import check_payments
from tests.suite.campaign import new_random, scale
from tests.suite.fork_server import ForkServer


class Payers(ForkServer):
    """Starts and ends processes that pay."""

    @contextmanager
    def pay(self, folder, policy, moment, *amounts):
        """The id of a process, and the lines that it prints."""
        pipe = folder / "printed"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        child = self.start("pay_all", str(folder), policy, moment, amounts, output=pipe)
        with pipe.open() as lines:
            yield child, lines

    def kill(self, child):
        os.kill(child, signal.SIGKILL)
        assert self.wait(child) == -signal.SIGKILL


@pytest.fixture(scope="module")
def payers():
    with Payers(__file__) as started:
        yield started


def pay_all(folder, policy, moment, amounts):
    asyncio.run(pay(Path(folder), policy, moment, amounts))


def show_session(folder, capsys):
    assert command(["show", SESSION, "--store", str(folder / "log.db")]) == 0
    return capsys.readouterr().out


EXPECTED = {
    # (policy, moment): what was paid in the end, what became of the second call, and how it is told
    ("retry", "before"): ([1, 2], "ok", "paid 2", "again, with the same key"),
    ("retry", "after"): ([1, 2, 2], "ok", "paid 2", "again, with the same key"),
    ("probe", "before"): ([1, 2], "ok", "paid 2", "c1_1 had no effect and may run"),
    ("probe", "after"): ([1, 2], "ok", "as the ledger says", "found by its probe"),
    ("ask", "before"): ([1, 2], "ok", "paid 2", "interrupted"),
    ("ask", "after"): ([1, 2], "ok", "I saw it in the ledger", "reported by a person"),
    ("report", "before"): ([1], "unknown", "not run again", "c1_1 unknown"),
    ("report", "after"): ([1, 2], "unknown", "not run again", "c1_1 unknown"),
    **{(policy, "receipt"): ([1, 2], "ok", "paid 2", "c1_1 ok") for policy in POLICIES},
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_killed_at_every_moment_of_a_payment(tmp_path, capsys, payers, policy, moment):
    for round_ in range(scale(1)):
        folder = tmp_path / str(round_)
        folder.mkdir()
        with payers.pay(folder, policy, moment, 1, 2) as (child, lines):
            assert f"{moment} 2\n" in lines
            payers.kill(child)
            assert lines.read() == ""
        _check(folder, policy, moment, capsys)


def _check(folder, policy, moment, capsys):
    paid, outcome, words, telling = EXPECTED[policy, moment]
    agent = paying_agent(folder, policy, [1, 2])

    async def go_on():
        result = await agent.resume(SESSION)
        if policy == "ask" and moment != "receipt":
            assert result.stop == "waiting"
            (question,) = await agent.approvals(SESSION)
            if moment == "before":
                await agent.approve(SESSION, question.id)
            else:
                await agent.settle(SESSION, question.id, "I saw it in the ledger", by="ann")
            result = await agent.resume(SESSION)
        await agent.store.close()
        return result

    result = asyncio.run(go_on())
    assert (result.stop, result.text) == ("done", "all paid")
    first, second = result.messages[2].results
    assert (first.outcome, first.text) == ("ok", "paid 1")
    assert second.outcome == outcome
    assert words in second.text
    made = Ledger(folder).lines()
    assert [amount for amount, _ in made] == paid
    assert len({key for _, key in made}) == len({amount for amount, _ in made}), "one key for each payment"
    told = show_session(folder, capsys)
    assert telling in told
    before, _, after = told.partition("resumed")
    assert "c1_0 ok" in before, "the receipt of the first call was there"
    kept = "pay has a result and is not run again"
    assert after.count("c1_0") == after.count(f"c1_0 {kept}") >= 1, "and is used"
    assert ("c1_1 ok" in before) == (moment == "receipt")
    if moment == "receipt":
        assert after.count("c1_1") == after.count(f"c1_1 {kept}") == 1
    else:
        assert "in doubt  c1_1 pay was started and has no result" in after


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["retry", "probe", "report"])
def test_killed_again_and_again_at_any_moment(tmp_path, payers, policy):
    """Nobody waits for the kill here: it comes while the process goes on."""
    chance = new_random(policy)
    amounts = list(range(1, 9))
    for round_ in range(scale(1)):
        folder = tmp_path / str(round_)
        folder.mkdir()
        for kills_left in (2, 1, 0):
            with payers.pay(folder, policy, "never", *amounts) as (child, lines):
                if kills_left:
                    for _ in range(chance.randint(1, 8)):
                        lines.readline()
                    payers.kill(child)
                    if "ended" in lines.read():
                        break
                else:
                    assert [*lines][-1] == "ended done\n"
                    assert payers.wait(child) == 0
        check_payments(folder, policy, amounts)
