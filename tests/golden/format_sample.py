"""Writes the sample of a format: a store and an export, kept for good, which every later version must read.

    python -m tests.golden.format_sample [FOLDER]      with the first version that writes a new format

makes tests/golden/format_N, or the folder: `store.db`, the log; `export.jsonl`, its session `work` as `bridle session export` writes it;
`expected.json`, what each session means to a user.  A folder that exists is never written again.  The clock, the
models, the approval key and all names are fixed, so the same version writes the same rows.
"""

import asyncio
import os
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from bridle import Agent, Budget, Compaction, Media, Memory, StoredBudget, Text, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.run.budget.stored import BudgetLog
from bridle.run.calls.approval_proof import KEY_FILE_VARIABLE
from bridle.sessions import export_session, redact_record
from bridle.sim.responder.conversation import ConversationFacts
from bridle.stores import open_store
from bridle.stores.sqlite.database_file import FORMAT
from bridle.testing import FakeClock
from bridle.testing.scripted_model import simulated
from bridle.values.budget import parse_budget_log_name
from bridle.values.record import Record

HERE = Path(__file__).parent
SAMPLES = sorted(HERE.glob("format_*/"))
EXPORTED = "work"
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000a49444154789c6300010000050001"
    "0d0a2db40000000049454e44ae426082"
)
KEY = bytes(range(32))
"""Approval key of the sample: its approvals count where this is the user's key."""
MODEL = "sim:anthropic/claude-sonnet-5-5"


@tool(effect="read")
async def look_up(order: int) -> str:
    """Look an order up."""
    return f"order {order}: " + "paid; " * 30


@tool(effect="write", approve=True)
async def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


class Gate:
    """A tool that waits until its run is cancelled, the first time, and returns at once afterwards."""

    def __init__(self) -> None:
        self.is_started = asyncio.Event()

    def make_tool(self) -> Any:
        @tool(effect="read")
        async def wait_for_courier() -> str:
            """Wait for the courier."""
            if not self.is_started.is_set():
                self.is_started.set()
                await asyncio.Event().wait()
            return "the courier came"

        return wait_for_courier


@tool(effect="read")
async def read_report() -> str:
    """Read the report."""
    return "".join(f"line {number} of the report\n" for number in range(1_500))


def write_part(facts: ConversationFacts) -> str:
    """A long answer."""
    return f"{facts.prompt} " * 200


def make_agent(store: object, clock: FakeClock, *tools: Any, model: object = MODEL, **options: Any) -> Agent:
    """An agent with everything that the sessions of the sample need; also for resuming them."""
    shared: Any = {"store": store, "clock": clock, "random_source": lambda: 0.5}
    clerk = Agent(MODEL, name="clerk", instructions="Look orders up.", tools=[look_up], **shared)
    closer = Agent(MODEL, name="closer", instructions="Close the case.", tools=[look_up], **shared)
    return Agent(
        model,  # type: ignore[arg-type]
        name="desk",
        instructions="Be short.",
        tools=[look_up, refund, read_report, clerk.as_tool("ask_clerk", "Ask the clerk."), *tools],
        handover=[closer],
        **shared,
        **options,
    )


async def write_sessions(path: Path) -> None:
    store, clock = open_store(path), FakeClock()
    gate = Gate()
    pool = StoredBudget(name="sample", usd=5)
    agent = make_agent(store, clock, gate.make_tool(), pool=pool, memory=Memory())
    picture = Media.from_bytes(PICTURE)
    await agent.run([picture, Text(text='!call look_up {"order": 1}\n!then\n!say Paid.')], EXPORTED)
    clock.advance(60)
    await agent.run('!call refund {"order": 1}\n!then\n!say Refunded.', EXPORTED)
    (question,) = await agent.approvals(EXPORTED)
    await agent.approve(EXPORTED, question.id, by="ann")
    await agent.resume(EXPORTED)
    await agent.run(
        '!call ask_clerk {"prompt": "!call look_up {\\"order\\": 2}\\n!then\\n!say Two."}\n!then\n!say Asked.',
        EXPORTED,
    )
    cancelled = asyncio.create_task(
        agent.run("!call wait_for_courier {}\n!then\n!say The courier came.", EXPORTED)
    )
    await gate.is_started.wait()
    cancelled.cancel()
    await asyncio.gather(cancelled, return_exceptions=True)
    clock.advance(60)
    await agent.resume(EXPORTED)
    short = make_agent(
        store, clock, gate.make_tool(), model=simulated(write_part, model=MODEL), context_tokens=6_000,
        compaction=Compaction(keep=0.1),
    )  # fmt: skip
    for number in range(8):
        await short.run(f"Write part {number}.", EXPORTED)
    await agent.run("!call read_report {}\n!then\n!say It is long.", EXPORTED)
    limited = make_agent(store, clock, gate.make_tool(), budget=Budget(steps=1))
    await limited.run('!call look_up {"order": 3}\n!then\n!say Three.', EXPORTED)
    await agent.run("!call transfer_to_closer {}\n!then\n!say Closed.", EXPORTED)
    await agent.fork(EXPORTED, "m4", new="fork")
    await agent.run("!say Another way.", "fork")
    await agent.run('!call refund {"order": 9}\n!then\n!say Refunded.', "waiting", caller="bob")
    await agent.run('!call refund {"order": 8}\n!then\n!say Refunded.', "approved")
    (question,) = await agent.approvals("approved")
    await agent.approve("approved", question.id, by="ann")
    await redact_record(store, "waiting", 2, field="caller", reason="a name", by="ann", clock=clock)
    await store.close()


async def describe_store(store: Any) -> dict[str, dict[str, Any]]:
    """What each log means: the conversation, what it cost, how its last run ended, what is open."""
    found = {}
    for info in await store.sessions():
        records = await store.read(info.id)
        found[info.id] = {
            "records": len(records),
            "head": records[-1].hash,
            "parent": info.parent,
            "redacted": [record.seq for record in records if record.is_redacted],
            "events": sorted({str(type(record.event).__struct_config__.tag) for record in records}),
            **(await describe_log(store, info.id, records)),
        }
    return found


async def describe_log(store: Any, name: str, records: Sequence[Record]) -> dict[str, Any]:
    if budget := parse_budget_log_name(name):
        account = await BudgetLog(store, budget).catch_up()
        return {"spent": to_plain(account.spent), "open": len(account.open_reservations)}
    state, repairs = fold_log(records)[:2]
    return {
        "messages": [
            {"role": each.role, "parts": to_plain(each.parts)}
            for each in state.conversation.transcript.messages
        ],
        "view": len(state.conversation.view),
        "spent": to_plain(state.totals.spent),
        "phase": state.phase.name,
        "stop": state.run.end.stop,
        "reason": state.run.end.reason,
        "agent": state.settings.name,
        "model": state.settings.model.name,
        "instructions": state.settings.instructions,
        "pending": [item.call.name for item in state.calls.batch.pending if item.result is None],
        "repairs": list(repairs),
    }


def to_plain(value: Any) -> Any:
    """A value as JSON data; members with their default are left out."""
    return msgspec.json.decode(msgspec.json.encode(value))


def write_key(folder: Path) -> Path:
    """The approval key of the sample, as a file that only its owner can read."""
    path = folder / "approval.key"
    path.touch(0o600)
    path.write_bytes(KEY)
    return path


async def write_sample(folder: Path) -> None:
    """Write the files of a sample into an empty folder."""
    path = folder / "log.db"
    await write_sessions(path)
    store = open_store(path)
    (folder / "export.jsonl").write_bytes(b"".join([line async for line in export_session(store, EXPORTED)]))
    expected = await describe_store(store)
    (folder / "expected.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(expected, order="sorted"), indent=1) + b"\n"
    )
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM INTO ?", (str(folder / "store.db"),))


def main(*to: str) -> int:
    kept = Path(*to) if to else HERE / f"format_{FORMAT}"
    if kept.exists():
        print(f"{kept} exists and is never written again", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as making:
        os.environ[KEY_FILE_VARIABLE] = str(write_key(Path(making)))
        asyncio.run(write_sample(Path(making)))
        kept.mkdir()
        for name in ("store.db", "export.jsonl", "expected.json"):
            (kept / name).write_bytes((Path(making) / name).read_bytes())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
