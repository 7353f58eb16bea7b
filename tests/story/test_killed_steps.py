"""kill -9 after every record of a run with five payments, and again while it is resumed: on both stores.

BRIDLE_CAMPAIGN above 1 tries every policy on every store, and kills the resumed run at more of its records; `pytest -s`
prints the kills.  The figures are in docs/evidence.md.
"""

import asyncio
import signal
from pathlib import Path

import pytest

from bridle import Agent
from bridle.stores import open_store
from bridle.testing import scripted
from tests.story.kill_agent import main
from tests.story.payments import check_payments
from tests.suite.campaign import SCALE
from tests.suite.crashes import kill_after_record
from tests.suite.fork_server import ForkServer

AMOUNTS = [1, 2, 3, 4, 5]
EVERY = [(store, policy) for store in ("sqlite", "postgres") for policy in ("retry", "probe", "report")]
AGAIN = (1, 2, 3, 4) if SCALE > 1 else (2,)
"""Records of the resumed run after which it is killed too."""
RECORDS_MAX = 80


def warm_up():
    open_store("postgresql://")
    asyncio.run(Agent(scripted("nothing to pay")).run("Pay."))


def run_payments(folder, policy, count):
    """Run or resume the payments of a folder in this process, which is killed after so many records."""
    kill_after_record(count)
    asyncio.run(main(Path(folder), policy, "never", AMOUNTS))


def is_killed(server, folder, policy, count):
    """Run or resume in a process; True if it was killed before its end."""
    status = server.run("run_payments", str(folder), policy, count)
    assert status in (0, -signal.SIGKILL)
    return status != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "policy"), EVERY if SCALE > 1 else [("sqlite", "report"), ("postgres", "probe")]
)
def test_killed_after_every_record(request, tmp_path, store, policy):
    url = request.getfixturevalue("postgres").new_url() if store == "postgres" else ""
    points = 0
    with ForkServer(__file__) as server:
        for last in range(1, RECORDS_MAX):
            folder = tmp_path / str(last)
            folder.mkdir()
            if url:
                (folder / "store").write_text(f"{url}_{last}")
            killed = [is_killed(server, folder, policy, count) for count in (last, *AGAIN)]
            if not killed[0]:
                break
            points += sum(killed)
            check_payments(folder, policy, AMOUNTS)
    print(f"\n{store} {policy}: {points} kills")
    assert points >= 15
