"""Logs as a version of Bridle wrote them, kept for good: later versions must read them to the same state.

    python tests/golden/frozen_logs.py FORMAT      with the version that writes this format

makes tests/golden/formats/FORMAT: `store.sql`, the tables of a store, and a file of records per session.  Its first
line has the digest of the state that the log folds to.  A folder that exists is never written again.
"""

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import msgspec

from bridle import Agent, Budget, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.stores import open_store
from bridle.testing import FakeClock, scripted
from bridle.testing.scripted_model import call_reply

FOLDER = Path(__file__).with_name("formats")


class FrozenRecord(msgspec.Struct, omit_defaults=True):
    seq: int = 0
    at: float = 0.0
    hash: str = ""
    data: str = ""
    session: str = ""
    digest: str = ""


@tool
async def refund(order: int, usd: float) -> str:
    """Pay money back."""
    return f"paid {usd} for order {order}"


@tool(effect="write", approve=True)
async def close_account(name: str) -> str:
    """Close an account."""
    return f"closed {name}"


def digest_state(records):
    """Hash of what a log means: the conversation, what it cost, how it ended, and what is open."""
    state, repairs = fold_log(records)[:2]
    seen = {
        "messages": state.conversation.transcript.messages,
        "spent": state.totals.spent,
        "phase": state.phase,
        "stop": state.run.end.stop,
        "model": state.settings.model.name,
        "instructions": state.settings.instructions,
        "pending": [item.call.id for item in state.calls.batch.pending],
        "repairs": repairs,
    }
    return sha256(msgspec.json.Encoder(decimal_format="string", order="sorted").encode(seen)).hexdigest()


async def write_sessions(path):
    """Sessions with tools, approvals, a long result, a limit and a fork."""
    store, clock = open_store(path), FakeClock()
    shared = {"store": store, "clock": clock}
    calls = call_reply(("refund", {"order": 4411, "usd": 40.0})), "Refunded."
    agent = Agent(scripted(*calls, "You are welcome."), tools=[refund], instructions="Be short.", **shared)
    await agent.run("Refund order 4411.", "tools")
    await agent.run("Thank you.", "tools")
    asked = call_reply(("close_account", {"name": "ann"}))
    agent = Agent(scripted(asked, "Closed."), tools=[close_account], **shared)
    await agent.run("Close the account of Ann.", "answered")
    question = (await agent.approvals("answered"))[0]
    await agent.approve("answered", question.id, by="bob")
    await agent.resume("answered")
    agent = Agent(scripted(asked), tools=[close_account], **shared)
    await agent.run("Close the account of Ann.", "waiting")
    await Agent(scripted("x" * 70_000, "More."), **shared).run("A long answer, please.", "long")
    limited = Agent(scripted(*calls), tools=[refund], budget=Budget(steps=1), **shared)
    await limited.run("Refund order 4411.", "limited")
    await store.fork("tools", 4, "fork")
    await store.close()


def freeze(name):
    folder = FOLDER / name
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as making:
        path = Path(making) / "log.db"
        asyncio.run(write_sessions(path))
        with closing(sqlite3.connect(path)) as db:
            pragmas = [
                f"PRAGMA {each} = {db.execute(f'PRAGMA {each}').fetchone()[0]};"
                for each in ("application_id", "user_version")
            ]
            (folder / "store.sql").write_text("\n".join([*pragmas, *db.iterdump()]) + "\n")

        async def read():
            store = open_store(path)
            for info in await store.sessions():
                records = await store.read(info.id)
                head = FrozenRecord(session=info.id, digest=digest_state(records))
                rows = (
                    FrozenRecord(seq=each.seq, at=each.at, hash=each.hash, data=each.data.decode())
                    for each in records
                )
                lines = (msgspec.json.encode(each) for each in (head, *rows))
                (folder / f"{info.id}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
            await store.close()

        asyncio.run(read())


if __name__ == "__main__":
    freeze(sys.argv[1])
