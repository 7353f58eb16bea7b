"""The support desk: refunds are paid once, large ones wait, and a ticket whose last step fails is undone."""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter

import pytest

from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.examples.programs import EXAMPLES, run_program, start_program
from tests.suite.paths import load_program
from tests.suite.patience import PATIENCE_SECONDS

desk = load_program("examples/refunds/desk.py")
DESK = "refunds/desk.py"
DONE = json.dumps({"resolved": True, "message": "done"})
FAILED = json.dumps({"resolved": False, "message": "not done"})
TICKET = "Orders 4411, 4412 and 4413 arrived damaged. Refund them."


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []


def count_payments(folder):
    return Counter(line.split()[1] for line in read_lines(folder / "ledger.txt"))


def wait_for_line(path, start):
    end = time.monotonic() + PATIENCE_SECONDS
    while not any(line.startswith(start) for line in read_lines(path)):
        assert time.monotonic() < end, f"no line {start!r} in {path}"
        time.sleep(0.02)


def test_a_ticket_killed_in_the_middle_of_a_payment_pays_every_order_once(tmp_path):
    with start_program(tmp_path, DESK, "T-1", TICKET, BANK_IS_SILENT_AT="4412") as process:
        wait_for_line(tmp_path / "ledger.txt", "order 4412")
        process.kill()
        process.wait()
    assert count_payments(tmp_path)["4412"] == 1
    shown = run_program(tmp_path, DESK, "T-1")
    assert "paid order 4413" in shown
    assert count_payments(tmp_path) == {"4411": 1, "4412": 1, "4413": 1}
    assert run_program(tmp_path, DESK, "T-1") == shown, "a finished ticket is shown, not repeated"
    assert count_payments(tmp_path) == {"4411": 1, "4412": 1, "4413": 1}


def test_another_ticket_cannot_refund_the_same_order(tmp_path):
    run_program(tmp_path, DESK, "T-1", "Refund order 4411.")
    assert "refunded already" in run_program(tmp_path, DESK, "T-2", "Refund order 4411.", code=4)
    assert count_payments(tmp_path) == {"4411": 1}


@pytest.mark.parametrize("answer", ["approve", "reject"])
def test_a_refund_above_the_limit_waits(tmp_path, answer):
    shown = run_program(tmp_path, DESK, "T-1", "Order 4414 arrived damaged.", code=3)
    assert 'waits for approval: refund({"order": 4414, "usd": 480})' in shown
    assert count_payments(tmp_path) == {}
    (question,) = json.loads(run_program(tmp_path, "bridle", "approvals", "--store", "desk.db", "--json"))
    run_program(
        tmp_path, "bridle", "approvals", answer, question["id"], "--store", "desk.db", "--by", "maria"
    )
    run_program(tmp_path, DESK, "T-1", code=0 if answer == "approve" else 4)
    assert count_payments(tmp_path) == ({"4414": 1} if answer == "approve" else {})


def test_what_was_done_is_undone_if_a_later_step_fails(tmp_path):
    shown = run_program(tmp_path, DESK, "T-1", "Please replace order 4413.", code=4)
    assert "no courier serves the address" in shown and shown.count("undone: ") == 2
    ledger = read_lines(tmp_path / "ledger.txt")
    assert [line.split(" key ")[0] for line in ledger] == ["order 4413 $9", "order 4413 $-9"]
    stock = read_lines(tmp_path / "stock.txt")
    assert [line.split(" key ")[0] for line in stock] == ["order 4413 reserved", "order 4413 released"]
    run_program(tmp_path, DESK, "T-1", code=4)
    assert (read_lines(tmp_path / "ledger.txt"), read_lines(tmp_path / "stock.txt")) == (ledger, stock)


@pytest.mark.parametrize(("module", "word"), [("tools", "$-"), ("warehouse", "released")])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_undo_is_continued(tmp_path, module, word, moment):
    """The process dies before or after the line that undoes; the next start finds or writes it, once."""
    killer = tmp_path / "killer.py"
    killer.write_text(
        f"""import asyncio, os, sys
sys.path.insert(0, {str(EXAMPLES / "refunds")!r})
import desk, {module}
write = {module}.append_line
def die(path, line):
    if {word!r} in line:
        if {moment!r} == "after":
            write(path, line)
        os._exit(9)
    write(path, line)
{module}.append_line = die
asyncio.run(desk.main())
"""
    )
    command = [sys.executable, str(killer), "T-1", "Please replace order 4413."]
    assert subprocess.run(command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}).returncode == 9
    shown = run_program(tmp_path, DESK, "T-1", code=4)
    assert shown.count("undone: ") == 2 and "NOT" not in shown
    ledger, stock = (read_lines(tmp_path / name) for name in ("ledger.txt", "stock.txt"))
    assert [line.split(" key ")[0] for line in ledger] == ["order 4413 $9", "order 4413 $-9"]
    assert [line.split(" key ")[0] for line in stock] == ["order 4413 reserved", "order 4413 released"]


def test_what_cannot_be_undone_is_not_called_undone(tmp_path):
    """The bank has lost the payment that is to be taken back."""

    async def main():
        agent = desk.make_agent(
            scripted(call_reply(("refund", {"order": 4411, "usd": 18})), FAILED), store=tmp_path / "desk.db"
        )
        await agent.run("Refund.", "T-1", context=tmp_path)
        await agent.store.close()

    asyncio.run(main())
    (tmp_path / "ledger.txt").unlink()
    shown = run_program(tmp_path, DESK, "T-1", code=5)
    assert "NOT undone (failed): refund" in shown and "\nundone" not in shown


@pytest.mark.parametrize(
    ("refunds", "paid"),
    [
        ([(4411, -1000), (4411, 100), (4411, 99), (4411, 0)], []),
        ([(9999, 100)], []),
        ([(4411, 19)], []),
        ([(4411, 18), (4411, 17)], ["order 4411 $18"]),
        ([(4414, 100), (4414, 99), (4414, 98)], ["order 4414 $100"]),
    ],
)
def test_amounts_are_checked(tmp_path, refunds, paid):
    calls = [call_reply(("refund", {"order": order, "usd": usd})) for order, usd in refunds]
    agent = desk.make_agent(scripted(*calls, DONE), store=tmp_path / "desk.db")
    result, _ = asyncio.run(desk.work_on(agent, "T-1", "Refund.", tmp_path))
    assert result.stop == "done"
    assert [line.split(" key ")[0] for line in read_lines(tmp_path / "ledger.txt")] == paid


def test_an_order_is_refunded_again_after_its_refund_was_taken_back(tmp_path):
    run_program(tmp_path, DESK, "T-1", "Please replace order 4413.", code=4)
    run_program(tmp_path, DESK, "T-2", "Refund order 4413.")
    run_program(tmp_path, DESK, "T-3", "Refund order 4413.", code=4)
    lines = [line.split(" key ")[0] for line in read_lines(tmp_path / "ledger.txt")]
    assert lines == ["order 4413 $9", "order 4413 $-9", "order 4413 $59"]


def test_a_replacement_is_sent(tmp_path):
    assert "arrives on Friday" in run_program(tmp_path, DESK, "T-1", "Please replace order 4412.")
    assert count_payments(tmp_path) == {"4412": 1}


def test_a_ticket_that_is_not_there(tmp_path):
    run_program(tmp_path, DESK, "T-9", code=1)
    assert "desk.db" in run_program(tmp_path, DESK, "--help")
