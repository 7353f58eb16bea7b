"""An export that somebody has changed is refused with one line, whatever was changed."""

import asyncio
import io
import json
import random
from typing import Any

import pytest

from bridle import Agent, tool
from bridle.run.archive import transfer
from bridle.sessions import export_session, import_session, redact_record
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.errors import BridleError, Corrupt
from tests.suite.campaign import list_seeds
from tests.suite.command import bridle

ROUNDS = list_seeds(600, least=300)
VALUES = (
    None,
    True,
    -1,
    2**63,
    2**70,
    10**400,
    1e308,
    "",
    "\ud800",
    "a/b",
    "é" * 50,
    "9" * 5000,
    [],
    {},
    [[]],
    "0" * 64,
)
LINES = (
    b"[" * 100_000,
    b'{"data":' * 5_000,
    b'{"seq":' + b"9" * 6_000 + b"}",
    b"\xff\xfe",
    '{"blob":"a","base64":"é"}'.encode(),
    b'{"format":"bridle-session","version":"' + b"9" * 6_000 + b'"}',
    '{"format":"bridle-session","version":"²"}'.encode(),
)


@tool(effect="read")
def look(number: int) -> str:
    """Look."""
    return "value " * 3_000


@pytest.fixture(scope="module")
def lines():
    async def make():
        store = MemoryStore()
        await Agent("sim:", tools=[look], store=store).run('!call look {"number": 1}', "s")
        return [line async for line in export_session(store, "s")]

    return asyncio.run(make())


def change(rng, held):
    """The value with one thing in it changed."""
    if isinstance(held, dict) and held and rng.random() < 0.85:
        name = rng.choice(list(held))
        if rng.random() < 0.2:
            return {key: value for key, value in held.items() if key != name}
        return {**held, name: change(rng, held[name])}
    if isinstance(held, list) and held and rng.random() < 0.85:
        place = rng.randrange(len(held))
        return [*held[:place], change(rng, held[place]), *held[place + 1 :]]
    return rng.choice(VALUES)


def test_a_changed_export_is_refused_or_read(lines):
    async def main():
        refused = 0
        for seed in ROUNDS:
            rng = random.Random(seed)
            place = rng.choice([0, rng.randrange(len(lines))])
            made = list(lines)
            made[place] = json.dumps(change(rng, json.loads(lines[place]))).encode()
            if rng.random() < 0.2:
                made[place] = rng.choice(LINES)
            try:
                await import_session(MemoryStore(), made)
            except BridleError as error:
                refused += 1
                assert "\n" not in str(error), f"seed {seed}"
        return refused

    assert asyncio.run(main()) > len(ROUNDS) // 2


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
@pytest.mark.parametrize("place", [0, 1])
def test_the_command_refuses_it_without_a_traceback(lines, line, place, tmp_path):
    file = tmp_path / "export.jsonl"
    file.write_bytes(b"\n".join([*[each.strip() for each in lines[:place]], line, *lines[place + 1 :]]))
    done = bridle("session", "import", str(file), "--store", str(tmp_path / "log.db"))
    assert done.code != 0 and "Traceback" not in done.err, done.err


def test_a_line_without_end_is_not_read_whole(monkeypatch):
    monkeypatch.setattr(transfer, "LINE_BYTES_MAX", 1_000)
    file = io.BytesIO(b"{}\n" + b"a" * 1_000_000)
    with pytest.raises(Corrupt, match="line 2 is damaged: it has more than 1,000 bytes"):
        list(transfer.limit_lines(file))
    assert file.tell() < 2_000


def test_a_redaction_beside_a_deletion_of_a_fork_leaves_the_fork_out(tmp_path, monkeypatch):
    async def main():
        store: Any = open_store(str(tmp_path / "log.db"))
        agent = Agent("sim:", store=store)
        await agent.run("my secret 12345", "s")
        await agent.fork("s", new="fork")
        number = next(record.seq for record in await store.read("s") if b"my secret 12345" in record.data)
        list_sessions = store.sessions

        async def list_and_delete(**options):
            """Another process deletes the fork after sessions were listed."""
            found = await list_sessions(**options)
            if records := await store.read("fork"):
                await store.remove_session("fork", records[-1].hash, at=1.0, reason="gc")
            return found

        monkeypatch.setattr(store, "sessions", list_and_delete)
        try:
            return await redact_record(store, "s", number, reason="privacy", by="me")
        finally:
            await store.close()

    assert asyncio.run(main()).sessions == ("s",)
