"""A paused process is replaced and wakes up: its late write is refused, and the log of the new owner is intact.

A child holds the lease of a session and appends.  It is stopped (SIGSTOP) at a random moment, another process takes
the session over and appends, and the child continues (SIGCONT).

    python -m tests.campaigns.run_campaign zombies ROUNDS [FIRST_SEED]
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bridle.stores.sqlite.store import SqliteStore
from bridle.testing.conformance.sample_records import make_prompt, make_records
from tests.suite.campaign import FIRST_SEED, scale

ROUNDS = scale(8)
REFUSED = 7
OWNER = """if True:
    import asyncio, sys
    from bridle.stores.sqlite.store import SqliteStore
    from bridle.testing.conformance.sample_records import make_prompt
    from bridle.values.errors import Conflict
    from bridle.values.record import GENESIS, seal_record

    async def main():
        store = SqliteStore(sys.argv[1])
        async with store.lease("s") as lease:
            seq, prev = 0, GENESIS
            while True:
                record = seal_record(seq + 1, 1.0, make_prompt(f"old owner {seq}"), prev)
                try:
                    await store.append("s", seq, [record], epoch=lease.epoch)
                except Conflict as error:
                    print(error, flush=True)
                    sys.exit(7)
                seq, prev = record.seq, record.hash
                print(seq, prev, flush=True)
    asyncio.run(main())
"""


async def play_round(path, chance):
    """Stop an owner, take over, let it go on; returns the number of records that were acknowledged to it."""
    child = subprocess.Popen([sys.executable, "-c", OWNER, path], stdout=subprocess.PIPE, text=True)
    acknowledged = [child.stdout.readline().split() for _ in range(chance.randint(1, 20))]
    os.kill(child.pid, signal.SIGSTOP)
    store = SqliteStore(path)
    taking = asyncio.ensure_future(take_over(store))
    if not (await asyncio.wait([taking], timeout=1))[0]:
        # It was stopped while it held the lock of the file: SQLite lets no other process write then.
        os.kill(child.pid, signal.SIGCONT)
    line = await taking
    os.kill(child.pid, signal.SIGCONT)
    with child:
        *more, last = child.stdout.read().splitlines()
    assert child.returncode == REFUSED, last
    assert "was taken over by another process" in last
    acknowledged += [each.split() for each in more]
    kept = {(record.seq, record.hash) for record in line}
    assert {(int(seq), hash_) for seq, hash_ in acknowledged} <= kept, "an acknowledged record is lost"
    assert list(await store.read("s")) == line, "the log of the new owner changed"
    await store.close()
    return len(acknowledged)


async def take_over(store):
    async with store.lease("s", take_over=True) as lease:
        assert lease.epoch == 1
        known = await store.read("s")
        new = make_records(*(make_prompt(f"new owner {n}") for n in range(3)), prefix=known)
        for record in new:
            await store.append("s", record.seq - 1, [record], epoch=lease.epoch)
        return [*known, *new]


def run_rounds(rounds, seed, folder):
    chance = random.Random(seed)
    total = sum(asyncio.run(play_round(Path(folder) / f"{number}.db", chance)) for number in range(rounds))
    return f"{rounds} rounds, {rounds} late writes refused, {total} acknowledged records, 0 lost"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_the_late_write_of_a_paused_owner_is_refused(tmp_path):
    run_rounds(ROUNDS, FIRST_SEED + 1, tmp_path)


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        print(run_rounds(count, first, folder))
