"""Durable steps per second on one PostgreSQL server: Bridle's store beside LangGraph's checkpointer and plain drivers.

A step adds one event of 1 KB to one of N sessions, and is counted when the server has committed it.  Contestants take
turns, the best of the rounds counts, and the server's data are on a disk.

    bridle      PostgresStore.append, one record
    langgraph   AsyncPostgresSaver.aput: a checkpoint whose channel has one more message (installed in bench/.work)
    asyncpg     a plain transaction: lock the session's row, insert the event, update the row (a pool of ten)
    psycopg     the same with psycopg 3

    python bench/postgres_appends.py [--rounds 3]
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
VENV = HERE / ".work" / "langgraph"
PACKAGES = ("langgraph-checkpoint-postgres", "psycopg[binary]", "psycopg-pool")
LOADS = ((1, 200), (10, 60), (100, 20))
"""Sessions, and steps of each."""
TEXT = "x" * 900
TABLES = """
CREATE TABLE IF NOT EXISTS plain_sessions (uid text PRIMARY KEY, seq bigint NOT NULL, head text NOT NULL);
CREATE TABLE IF NOT EXISTS plain_events (uid text, seq bigint, at float8, hash text, data text, PRIMARY KEY (uid, seq));
TRUNCATE plain_sessions, plain_events;
"""


async def measure(step, sessions, steps):
    async def drive(session):
        for number in range(steps):
            await step(session, number)

    await drive("warm up")
    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(drive(f"s{number}") for number in range(sessions)))
    elapsed, done = time.perf_counter() - start, sessions * steps
    return {"steps/s": done / elapsed, "CPU us/step": 1e6 * (time.process_time() - cpu) / done}


async def run_bridle(server_url, sessions, steps):
    from bridle.stores import open_store
    from bridle.values.events import Prompted
    from bridle.values.message import Text
    from bridle.values.record import GENESIS, seal_record

    store = open_store(f"{server_url}?schema=bench_{time.time_ns()}")
    heads = {}

    async def step(session, number):
        record = seal_record(number + 1, 1.0, Prompted(parts=(Text(text=TEXT),)), heads.get(session, GENESIS))
        await store.append(session, number, [record])
        heads[session] = record.hash

    try:
        return await measure(step, sessions, steps)
    finally:
        await store.close()


async def run_asyncpg(server_url, sessions, steps):
    import asyncpg

    async with asyncpg.create_pool(server_url, min_size=10, max_size=10) as pool:
        await pool.execute(TABLES)

        async def step(session, number):
            async with pool.acquire() as db, db.transaction():
                if number == 0:
                    await db.execute("INSERT INTO plain_sessions VALUES ($1, 0, '')", session)
                await db.fetchrow("SELECT seq, head FROM plain_sessions WHERE uid = $1 FOR UPDATE", session)
                await db.execute(
                    "INSERT INTO plain_events VALUES ($1, $2, 1.0, 'h', $3)", session, number, TEXT
                )
                await db.execute(
                    "UPDATE plain_sessions SET seq = $2, head = 'h' WHERE uid = $1", session, number
                )

        return await measure(step, sessions, steps)


async def run_psycopg(server_url, sessions, steps):
    from psycopg_pool import AsyncConnectionPool

    async with AsyncConnectionPool(server_url, min_size=10, max_size=10) as pool:
        async with pool.connection() as db:
            await db.execute(TABLES)

        async def step(session, number):
            async with pool.connection() as db:
                if number == 0:
                    await db.execute("INSERT INTO plain_sessions VALUES (%s, 0, '')", (session,))
                await db.execute("SELECT seq, head FROM plain_sessions WHERE uid = %s FOR UPDATE", (session,))
                await db.execute(
                    "INSERT INTO plain_events VALUES (%s, %s, 1.0, 'h', %s)", (session, number, TEXT)
                )
                await db.execute(
                    "UPDATE plain_sessions SET seq = %s, head = 'h' WHERE uid = %s", (number, session)
                )

        return await measure(step, sessions, steps)


async def run_langgraph(server_url, sessions, steps):
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg.rows import dict_row
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(server_url, min_size=10, max_size=10, kwargs=options) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        configs, messages, prefix = {}, {}, str(time.time_ns())

        async def step(session, number):
            config = configs.get(session) or {
                "configurable": {"thread_id": prefix + session, "checkpoint_ns": ""}
            }
            kept = messages.setdefault(session, [])
            kept.append(TEXT)
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"messages": list(kept)}
            checkpoint["channel_versions"] = {"messages": f"{number + 1:032}"}
            configs[session] = await saver.aput(
                config, checkpoint, {"step": number}, {"messages": f"{number + 1:032}"}
            )

        return await measure(step, sessions, steps)


RUNNERS = {"bridle": run_bridle, "langgraph": run_langgraph, "asyncpg": run_asyncpg, "psycopg": run_psycopg}


def install():
    if not (VENV / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", VENV], check=True)
    pip = [sys.executable, "-m", "pip", "--python", VENV / "bin" / "python", "install", "-q"]
    subprocess.run([*pip, "--disable-pip-version-check", *PACKAGES], check=True)


def contest(rounds):
    sys.path.insert(0, str(HERE.parent))
    from tests.suite.postgres_server import PostgresServer, find_binaries

    install()
    server = PostgresServer(find_binaries(), on_disk=True)
    best = {}
    try:
        for _ in range(rounds):
            for name in RUNNERS:
                python = sys.executable if name in ("bridle", "asyncpg") else str(VENV / "bin" / "python")
                for sessions, steps in LOADS:
                    command = [python, __file__, "--only", name, server.url(), str(sessions), str(steps)]
                    found = json.loads(
                        subprocess.run(command, capture_output=True, text=True, check=True).stdout
                    )
                    print(name, sessions, found, file=sys.stderr, flush=True)
                    known = best.setdefault((name, sessions), found)
                    if found["steps/s"] > known["steps/s"]:
                        best[name, sessions] = found
        print(server.sql("SHOW server_version"))
    finally:
        server.remove()
    print(f"{'steps/s (CPU us per step of the client)':42}" + "".join(f"{n:>20} sessions" for n, _ in LOADS))
    for name in RUNNERS:
        cells = (best[name, sessions] for sessions, _ in LOADS)
        print(f"{name:42}" + "".join(f"{c['steps/s']:>20,.0f} ({c['CPU us/step']:.0f})" for c in cells))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs=4, metavar=("NAME", "URL", "SESSIONS", "STEPS"))
    options = parser.parse_args()
    if options.only:
        name, url, sessions, steps = options.only
        print(json.dumps(asyncio.run(RUNNERS[name](url, int(sessions), int(steps)))))
    else:
        contest(options.rounds)
