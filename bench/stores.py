"""Figures of the SQLite store: size on disk, time to load, and appends per second beside LangGraph's checkpointer.

    python bench/stores.py                     sizes and loading
    python bench/stores.py --langgraph         installs LangGraph in bench/.work/stores and compares appends

A turn is a question of 80 bytes and an answer.  `content` is the JSON of all records.  LangGraph's saver writes the whole
conversation with every checkpoint; both keep one conversation of TURNS turns, each with 1 KB of new text, in one file.
Times are CPU time of the process if not said otherwise; rounds are interleaved and the best is kept.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

WORK = Path(__file__).parent / ".work" / "stores"
TURNS, ROUNDS, RECORDS = 200, 9, 10_000
LETTERS = "abcdefghij klmnopqrstuvwxyz"

LANGGRAPH = """
import asyncio, json, os, sys, time, uuid
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

async def main(path, turns):
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        await saver.setup()
        config = {"configurable": {"thread_id": "s", "checkpoint_ns": ""}}
        messages, begun = [], time.perf_counter()
        for turn in range(turns):
            messages = [*messages, {"role": "assistant", "content": f"{turn} " + "x" * 1000}]
            checkpoint = {**empty_checkpoint(), "channel_values": {"messages": messages}}
            checkpoint["channel_versions"] = {"messages": turn + 1}
            config = await saver.aput(config, checkpoint, {"step": turn}, {"messages": turn + 1})
        seconds = time.perf_counter() - begun
    size = sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end))
    print(json.dumps({"seconds": seconds, "bytes": size}))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


async def append_turns(path: Path) -> dict[str, float]:
    from bridle.stores.sqlite.store import SqliteStore
    from bridle.testing.conformance.sample_records import make_prompt
    from bridle.values.record import GENESIS, seal_record

    store, prev, begun = SqliteStore(path), GENESIS, time.perf_counter()
    for turn in range(TURNS):
        record = seal_record(turn + 1, 1.0, make_prompt(f"{turn} " + "x" * 1000), prev)
        await store.append("s", turn, [record])
        prev = record.hash
    seconds = time.perf_counter() - begun
    await store.close()
    return {"seconds": seconds, "bytes": path.stat().st_size}


def compare_appends(folder: Path) -> None:
    if not WORK.exists():
        subprocess.run([sys.executable, "-m", "venv", WORK], check=True)
    install = [WORK / "bin" / "pip", "install", "-q", "langgraph", "langgraph-checkpoint-sqlite"]
    subprocess.run(install, check=True)
    ours, theirs = [], []
    for number in range(ROUNDS):
        ours.append(asyncio.run(append_turns(folder / f"ours{number}.db")))
        command = [WORK / "bin" / "python", "-c", LANGGRAPH, folder / f"theirs{number}.db", str(TURNS)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        theirs.append(json.loads(done.stdout))
    for name, rows in (("bridle", ours), ("langgraph", theirs)):
        best = min(row["seconds"] for row in rows)
        print(f"{name:10} {TURNS / best:8.0f} turns/s (wall time)  {rows[0]['bytes']:12,.0f} bytes")


def make_words(chance: random.Random, count: int) -> str:
    return "".join(chance.choice(LETTERS) for _ in range(count))


async def measure_size(path: Path, answer_bytes: int) -> str:
    """Size of the file after 1,000 turns in 20 sessions."""
    from bridle import Agent
    from bridle.stores.sqlite.store import SqliteStore
    from bridle.testing import FakeClock, scripted

    chance, store, content = random.Random(1), SqliteStore(path), 0
    for session in range(20):
        answers = [make_words(chance, answer_bytes) for _ in range(50)]
        agent = Agent(scripted(*answers), store=store, clock=FakeClock())
        for _ in range(50):
            await agent.run(make_words(chance, 80), f"s{session}")
        content += sum(len(record.data) for record in await store.read(f"s{session}"))
    await store.close()
    ratio = path.stat().st_size / content
    return f"1,000 turns, answers of {answer_bytes:,} bytes: the file is {ratio:.2f} times the content"


async def measure_loading(path: Path, answer_bytes: int) -> str:
    """Time to load a session of 10,000 records, relative to reading and decoding its bytes.

    Decoded: each event is dropped before the next one, or all are kept, as a load has to. Loaded: with the snapshot
    that the first run leaves, and without one: read, verified and folded. Freeing the memory of one is not measured
    with the next.
    """
    from bridle import Agent
    from bridle.core.recovery.log_repair import fold_log
    from bridle.run.recovery.session_log import load_log
    from bridle.stores.sqlite.store import SqliteStore
    from bridle.testing import FakeClock, scripted
    from bridle.values.record import GENESIS, _decode_event, seal_record

    chance, store = random.Random(1), SqliteStore(path)
    agent = Agent(
        scripted(*(make_words(chance, answer_bytes) for _ in range(50))), store=store, clock=FakeClock()
    )
    for _ in range(50):
        await agent.run(make_words(chance, 80), "seed")
    first, *turns = await store.read("seed")
    records, prev = [], GENESIS
    for number in range(RECORDS):
        event = first.event if number == 0 else turns[(number - 1) % len(turns)].event
        records.append(seal_record(number + 1, first.at, event, prev))
        prev = records[-1].hash
    await store.append("long", 0, records)
    del records, turns
    begun = time.process_time()
    await load_log(store, "long", keeps_snapshot=True)
    taking = time.process_time() - begun
    query = """SELECT CAST(coalesce(data, bytes) AS BLOB) FROM events LEFT JOIN blobs ON blobs.hash = events.blob
        JOIN sessions USING (sid) WHERE uid = 'long' ORDER BY events.seq"""
    best = [float("inf")] * 5
    for _ in range(ROUNDS):
        times: list[float] = []
        begun = time.process_time()
        with closing(sqlite3.connect(path)) as db:
            for (data,) in db.execute(query):
                _decode_event(data)
        times.append(time.process_time() - begun)
        begun = time.process_time()
        with closing(sqlite3.connect(path)) as db:
            kept = [_decode_event(data) for (data,) in db.execute(query)]
        times.append(time.process_time() - begun)
        del kept
        begun = time.process_time()
        log = await load_log(store, "long")
        times.append(time.process_time() - begun)
        del log
        # The event loop holds the result of the job that woke this task, and frees it afterwards.
        await asyncio.sleep(0)
        begun = time.process_time()
        read = await store.read("long")
        times.append(time.process_time() - begun)
        begun = time.process_time()
        fold_log(read)
        times.append(time.process_time() - begun)
        del read
        await asyncio.sleep(0)
        best = [min(pair) for pair in zip(best, times, strict=True)]
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        ((snapshot_bytes,),) = db.execute("SELECT sum(length(data)) FROM snapshots").fetchall()
    plain, keeping, loaded, verified, folded = best
    return (
        f"{RECORDS:,} records, answers of {answer_bytes:,} bytes: decoded {plain * 1e3:.0f} ms, kept {keeping * 1e3:.0f} ms; "
        f"loaded {loaded / plain:.2f} times the first, {loaded / keeping:.2f} times the second; without a snapshot "
        f"read and verified {verified / plain:.1f}, folded {folded / plain:.1f}; "
        f"the snapshot has {snapshot_bytes:,} bytes and the load that took it {taking * 1e3:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--langgraph", action="store_true", help="compare appends with LangGraph's checkpointer"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.langgraph:
            compare_appends(Path(folder))
            return
        for size in (1_000, 4_000, 20_000):
            print(asyncio.run(measure_size(Path(folder) / f"size{size}.db", size)), flush=True)
            print(asyncio.run(measure_loading(Path(folder) / f"load{size}.db", size)), flush=True)


if __name__ == "__main__":
    main()
