"""Sessions that another program renamed, exchanged, deleted or redated are noticed when they are read."""

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from bridle import Agent
from bridle.run.budget.stored import StoredBudget
from bridle.stores import open_store
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.values.errors import Corrupt

SWAP = "UPDATE sessions SET uid = CASE uid WHEN 'a' THEN 'b?' WHEN 'b' THEN 'a?' ELSE uid END"
SWAP_BACK = "UPDATE sessions SET uid = rtrim(uid, '?')"


def change(path, *statements):
    with closing(sqlite3.connect(path)) as rows:
        for statement in statements:
            rows.execute(statement)
        rows.commit()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "log.db"

    async def fill():
        store = open_store(path)
        await store.append("a", 0, make_records(make_prompt("one"), make_prompt("two")))
        await store.append("b", 0, make_records(make_prompt("three"), make_prompt("four")))
        await store.fork("a", 2, "c")
        await store.fork("a", 2, "d")
        await store.close()

    asyncio.run(fill())
    return path


def read(path, session):
    async def reading():
        store = open_store(path)
        try:
            return await store.read(session)
        finally:
            await store.close()

    return asyncio.run(reading())


@pytest.mark.parametrize(
    ("statements", "session", "why"),
    [
        ((SWAP, SWAP_BACK), "a", "recorded as session 'b'"),
        (("UPDATE sessions SET uid = 'e' WHERE uid = 'a'",), "e", "recorded as session 'a'"),
        (("UPDATE sessions SET uid = 'e' WHERE uid = 'a'",), "a", "deleted or renamed"),
        (("UPDATE sessions SET uid = 'e' WHERE uid = 'c'",), "e", "recorded as session 'c'"),
        (
            ("DELETE FROM events WHERE sid = 2", "DELETE FROM sessions WHERE uid = 'b'"),
            "b",
            "deleted or renamed",
        ),
        (
            (
                "UPDATE events SET sid = 3 - sid, seq = seq + 100",
                "UPDATE events SET seq = seq - 100",
                "UPDATE sessions SET head = (SELECT lower(hex(hash)) FROM events WHERE sid = 1 AND seq = 2) WHERE sid = 1",
                "UPDATE sessions SET head = (SELECT lower(hex(hash)) FROM events WHERE sid = 2 AND seq = 2) WHERE sid = 2",
            ),
            "b",
            "belong to another session",
        ),
        (
            (
                "DELETE FROM events WHERE sid = 1 AND seq = 2",
                "UPDATE sessions SET seq = 1, updated = (SELECT at FROM events WHERE sid = 1) WHERE sid = 1",
            ),
            "a",
            "record 1 is not the last record",
        ),
        (("UPDATE sessions SET created = created + 60 WHERE uid = 'a'",), "a", "times"),
        (("UPDATE sessions SET updated = updated - 60 WHERE uid = 'd'",), "d", "times"),
    ],
    ids=[
        "swapped",
        "renamed",
        "the old name",
        "fork renamed",
        "deleted",
        "records exchanged",
        "end removed",
        "created",
        "updated",
    ],
)
def test_a_session_that_is_not_what_was_recorded_is_noticed(path, statements, session, why):
    assert len(read(path, "a")) == len(read(path, "b")) == len(read(path, "d")) == 2
    change(path, *statements)
    with pytest.raises(Corrupt, match=why):
        read(path, session)


def test_a_deleted_session_is_not_begun_again(path):
    change(path, "DELETE FROM events WHERE sid = 2", "DELETE FROM sessions WHERE uid = 'b'")
    store = open_store(path)
    with pytest.raises(Corrupt, match="deleted"):
        asyncio.run(store.append("b", 0, make_records(make_prompt("new"))))
    with pytest.raises(Corrupt, match="deleted"):
        asyncio.run(store.fork("a", 1, "b"))
    assert len(read(path, "a")) == 2


@pytest.mark.parametrize("how", ["delete", "rename"])
def test_a_budget_that_was_deleted_or_renamed_is_not_a_new_one(tmp_path, how):
    path = tmp_path / "log.db"
    agent = Agent("sim:", store=path, pool=StoredBudget(name="q4", tokens=100_000))
    assert agent.run_sync("!say Hi.").stop == "done"
    which = "(SELECT sid FROM sessions WHERE uid LIKE 'budget:%')"
    statements = {
        "delete": (
            f"DELETE FROM events WHERE sid IN {which}",
            "DELETE FROM sessions WHERE uid LIKE 'budget:%'",
        ),
        "rename": ("UPDATE sessions SET uid = 'x' || uid WHERE uid LIKE 'budget:%'",),
    }
    change(path, *statements[how])
    again = Agent("sim:", store=path, pool=StoredBudget(name="q4", tokens=100_000))
    with pytest.raises(Corrupt, match="deleted or renamed"):
        again.run_sync("!say Hi.")


def test_notes_that_were_given_to_another_tenant_are_not_read(tmp_path):
    path = tmp_path / "log.db"

    async def exchange():
        store: Any = open_store(path)
        await store.append("notes:ann", 0, make_records(make_prompt("ann's")))
        change(path, "UPDATE sessions SET uid = 'notes:bob' WHERE uid = 'notes:ann'")
        with pytest.raises(Corrupt, match="notes:ann"):
            await store.read("notes:bob")
        assert await store.read_intact("notes:bob") == ()
        with pytest.raises(Corrupt, match="deleted or renamed"):
            await store.read("notes:ann")

    asyncio.run(exchange())


def test_a_session_without_its_origin_is_refused(path):
    change(path, "DELETE FROM origins WHERE uid = 'a'")
    with pytest.raises(Corrupt, match="its row in the table origins was removed by another program; restore"):
        read(path, "a")
    assert len(read(path, "b")) == 2
