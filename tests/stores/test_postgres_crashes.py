"""PostgreSQL: clients that are killed, servers that are killed, connections that are cut, drivers that are paused.

BRIDLE_CAMPAIGN multiplies the rounds.
"""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bridle.stores import open_store
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.values.errors import Conflict, StoreError, Unusable
from tests.stores.appending_processes import append_in_turns, check_acknowledged
from tests.suite.campaign import FIRST_SEED, new_random, scale
from tests.suite.postgres_server import PostgresServer, find_binaries

WRITERS = 8


def test_a_killed_client_loses_nothing(postgres):
    program = Path(__file__).with_name("killed_clients.py")
    command = [sys.executable, program, postgres.new_url(), str(scale(20)), str(FIRST_SEED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    print(f"\n{done.stdout}")


@pytest.mark.parametrize("shared", [False, True], ids=["own sessions", "one session"])
def test_several_processes_take_turns(postgres, shared):
    url = postgres.new_url()
    check_acknowledged(url, append_in_turns(url, scale(20), shared=shared))


async def write_until(store, session, ended, acknowledged, chance):
    """Append until the end; after an error, read what was stored and go on from there."""
    records, refused = [], 0
    while not ended.is_set():
        more = make_records(
            *[make_prompt("x" * chance.choice((10, 3000)))] * chance.randint(1, 3), prefix=records
        )
        try:
            await store.append(session, len(records), more)
        except Unusable:
            refused += 1
            records = await read_again(store, session, ended)
            continue
        records = [*records, *more]
        acknowledged[session] = records[-1]
    return refused


async def read_again(store, session, ended):
    while True:
        try:
            return list(await store.read(session))
        except Unusable:
            if ended.is_set():
                return []
            await asyncio.sleep(0.01)  # until the server is back


@pytest.mark.slow
def test_killed_servers_and_cut_connections_lose_nothing():
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL server to run")
    server = PostgresServer(binaries)
    chance, rounds = new_random(__name__), scale(3)
    disturbances = {
        "kill": lambda: server.restart(signal.SIGKILL),
        "restart": lambda: server.restart(signal.SIGINT),
        "cut": server.cut_connections,
    }

    async def main():
        acknowledged, counts, refused = {}, dict.fromkeys(disturbances, 0), 0
        for round_ in range(rounds):
            store, ended = open_store(server.url("bridle")), asyncio.Event()
            sessions = [f"{round_}.{number}" for number in range(WRITERS)]
            writing = [
                asyncio.ensure_future(write_until(store, each, ended, acknowledged, chance))
                for each in sessions
            ]
            for name, disturb in disturbances.items():
                before = dict(acknowledged)
                while not all(
                    each in acknowledged and acknowledged[each] != before.get(each) for each in sessions
                ):
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(disturb)
                counts[name] += 1
            ended.set()
            refused += sum(await asyncio.gather(*writing))
            for session in sessions:
                last, stored = acknowledged[session], await store.read(session)
                assert stored[last.seq - 1] == last, f"an acknowledged record of {session} is lost"
            await store.close()
        print(f"\n{counts}, {sum(each.seq for each in acknowledged.values())} records acknowledged, 0 lost,"
              f" {refused} appends with an error")  # fmt: skip

    try:
        asyncio.run(main())
    finally:
        server.remove()


ZOMBIE = """if True:
    import asyncio, sys
    from bridle.stores import open_store
    from bridle.testing.conformance.sample_records import make_prompt, make_records
    from bridle.values.errors import Conflict

    async def main(url, rounds):
        store = open_store(url)
        for number in range(rounds):
            async with store.lease(f"s{number}") as lease:
                records = []
                try:
                    while True:
                        records += make_records(make_prompt("old owner"), prefix=records)
                        await store.append(f"s{number}", len(records) - 1, records[-1:], epoch=lease.epoch)
                        print(number, len(records), flush=True)
                except Conflict as error:
                    print(number, "refused", error, flush=True)

    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_a_paused_owner_cannot_write_after_a_takeover(postgres):
    rounds, url = scale(5), postgres.new_url()
    chance = new_random(__name__)

    async def take_over(store, session):
        with pytest.raises(Conflict, match="in use"):
            async with store.lease(session):
                pass
        async with store.lease(session, take_over=True) as lease:
            records = list(await store.read(session))
            # Without a record of the new owner only the epoch refuses the old one.
            for _ in range(chance.randint(0, 2)):
                records += make_records(make_prompt("new owner"), prefix=records)
                await store.append(session, len(records) - 1, records[-1:], epoch=lease.epoch)
        return records

    async def main(zombie):
        store = open_store(url)
        for number in range(rounds):
            for _ in range(chance.randint(1, 5)):
                assert zombie.stdout.readline().split()[0] == str(number)
            zombie.send_signal(signal.SIGSTOP)
            records = await take_over(store, f"s{number}")
            zombie.send_signal(signal.SIGCONT)
            while "refused" not in (said := zombie.stdout.readline()):
                # Appends acknowledged before it was stopped.
                assert said, zombie.stderr.read()
                assert int(said.split()[1]) <= len(records)
            assert "was taken over by another process" in said
            assert list(await store.read(f"s{number}")) == records, "the log of the new owner"
        await store.close()

    command = [sys.executable, "-c", ZOMBIE, url, str(rounds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as zombie:
        try:
            asyncio.run(main(zombie))
        except BaseException:
            zombie.kill()
            raise
        assert zombie.communicate() == ("", "")
    print(f"\n{rounds} late writers refused")


def test_two_owners_never_write_together(postgres):
    """Many takeovers at once, each of which writes: one chain, and every acknowledged record is in it."""
    url = postgres.new_url()

    async def own(number, acknowledged):
        store = open_store(url)
        for _ in range(scale(3)):
            try:
                async with store.lease("a", take_over=True) as lease:
                    for _ in range(3):
                        records = list(await store.read("a"))
                        more = make_records(make_prompt(f"{number}"), prefix=records)
                        await store.append("a", len(records), more, epoch=lease.epoch)
                        acknowledged.append((lease.epoch, more[0]))
            except StoreError:
                continue
        await store.close()

    async def main():
        store, acknowledged = open_store(url), []
        await store.append("a", 0, make_records(make_prompt("start")))
        await asyncio.gather(*(own(number, acknowledged) for number in range(4)))
        stored = list(await store.read("a"))
        assert all(stored[record.seq - 1] == record for _, record in acknowledged)
        epochs = [epoch for epoch, _ in sorted(acknowledged, key=lambda each: each[1].seq)]
        assert epochs == sorted(epochs), "an older owner wrote after a newer one"
        await store.close()

    asyncio.run(main())
