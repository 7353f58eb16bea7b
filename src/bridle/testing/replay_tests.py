"""Regression tests made of recorded sessions: `bridle session replay SESSION --as-test FILE.py`.

The log becomes a fixture of JSON lines beside the test. The test replays it with your agent, offline, and fails on the
first request or decision that differs. With BRIDLE_UPDATE_REPLAY=1 it accepts changed requests: the fixture is written
again with the requests of the agent as it is now and the recorded replies.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bridle.core.lineage.replay import LogReplay
from bridle.run.agent import Agent
from bridle.run.replay.changed_settings import AgentSettingsNow
from bridle.run.replay.replay_session import describe_difference, make_wire, replay_session
from bridle.stores.memory import MemoryStore
from bridle.values.calls import ContentRedacted
from bridle.values.errors import MisuseError
from bridle.values.lineage import Replay
from bridle.values.media import read_at_most
from bridle.values.record import Record, decode_event, unseal_record

FIXTURE_BYTES_MAX = 512 * 1024 * 1024
UPDATE_VARIABLE = "BRIDLE_UPDATE_REPLAY"
TEST_FILE = '''"""Replays the session {session} offline: nothing is sent, and no tool runs.

Written by `bridle session replay {session} --as-test`. To accept changed requests, run it once with
{variable}=1, and review the change of the fixture.
"""

from pathlib import Path

{imports}

FIXTURE = Path(__file__).with_suffix(".jsonl")


def test_the_session_replays():
    assert_replays(FIXTURE{agent})
'''


class FixtureLine(msgspec.Struct):
    """One record of a fixture."""

    session: str
    seq: int
    at: float
    event: msgspec.Raw
    prev: str
    hash: str


def write_fixture(path: Path, sessions: Mapping[str, Sequence[Record]]) -> None:
    """Write the records of sessions as lines of JSON, with the exact bytes of each event."""
    lines = [
        msgspec.json.encode(
            FixtureLine(session, each.seq, each.at, msgspec.Raw(each.data), each.prev, each.hash)
        )
        for session, records in sessions.items()
        for each in records
    ]
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def read_fixture(path: Path) -> dict[str, list[Record]]:
    """The records of a fixture by session; raises `Corrupt` for a changed one, `MisuseError` for another file."""
    lines: dict[str, list[FixtureLine]] = {}
    for number, line in enumerate(read_at_most(path, FIXTURE_BYTES_MAX).splitlines(), 1):
        try:
            read = msgspec.json.decode(line, type=FixtureLine)
        except msgspec.MsgspecError as error:
            raise MisuseError(f"{path}, line {number}: not a record of a log: {error}") from None
        lines.setdefault(read.session, []).append(read)
    if not lines:
        raise MisuseError(f"{path} has no records")
    return {session: _unseal_records(own) for session, own in lines.items()}


def _unseal_records(lines: Sequence[FixtureLine]) -> list[Record]:
    removals = {
        event.unique_key: event
        for line in lines
        if isinstance(event := decode_event(bytes(line.event)), ContentRedacted)
    }
    return [
        unseal_record(line.seq, line.at, bytes(line.event), line.prev, line.hash, removals.get)
        for line in lines
    ]


def write_replay_test(
    path: Path, sessions: Mapping[str, Sequence[Record]], agent_file: str = "", model: str = ""
) -> Path:
    """Write a test and its fixture, of which the first session is replayed; returns the path of the fixture.

    `agent_file` is compared with the log, with this `model` if the file names none.
    Raises `MisuseError` if the test exists.
    """
    fixture = path.with_suffix(".jsonl")
    if path.suffix != ".py" or path.exists():
        raise MisuseError(f"{path}: name a new file that ends in .py")
    path.parent.mkdir(parents=True, exist_ok=True)
    imports, agent = "from bridle.testing import assert_replays", ""
    if agent_file:
        where = os.path.relpath(agent_file, path.parent)
        imports = f"from bridle import load_agent\n{imports}"
        chosen = f", model={json.dumps(model)}" if model else ""
        agent = f", agent=load_agent(Path(__file__).parent / {json.dumps(where)}{chosen})"
    text = TEST_FILE.format(
        session=next(iter(sessions)), variable=UPDATE_VARIABLE, imports=imports, agent=agent
    )
    write_fixture(fixture, sessions)
    path.write_text(text, encoding="utf-8")
    return fixture


def assert_replays(fixture: Path | str, agent: Agent[Any, Any] | None = None) -> Replay:
    """Replay the first session of a fixture; raises `AssertionError` with the first difference."""
    path = Path(fixture)
    sessions = read_fixture(path)
    session = next(iter(sessions))
    now = AgentSettingsNow(agent) if agent is not None else None
    report = asyncio.run(_replay_records(sessions, session, now))
    if report.is_equal:
        return report
    if os.environ.get(UPDATE_VARIABLE) and now is not None:
        sessions[session] = _accept_requests(sessions[session], now)
        write_fixture(path, sessions)
        return asyncio.run(_replay_records(sessions, session, now))
    hint = f"\nif the change is intended: {UPDATE_VARIABLE}=1 python -m pytest" if now is not None else ""
    raise AssertionError("\n".join(describe_difference(report)) + hint)


async def _replay_records(
    sessions: Mapping[str, Sequence[Record]], session: str, now: AgentSettingsNow | None
) -> Replay:
    store = MemoryStore()
    for name, records in sessions.items():
        await store.append(name, 0, records)
    return await replay_session(store, session, now=now)


def _accept_requests(records: Sequence[Record], now: AgentSettingsNow) -> list[Record]:
    """The log with the agent's settings and requests; raises `AssertionError` if it decides something else."""
    replay = LogReplay(make_wire(now), now, accepts_requests=True)
    for record in records:
        difference = replay.apply_record(record)
        if difference is not None:
            raise AssertionError(
                f"record {difference.seq} ({difference.event}) cannot be updated: the agent decides something else"
                " there, and the recorded replies do not fit; record the session again"
            )
    return replay.produced
