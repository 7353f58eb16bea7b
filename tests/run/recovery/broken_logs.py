"""Damaged logs, written row by row without the store's code."""

import json
import sqlite3
from contextlib import closing
from hashlib import sha256

from bridle.stores import open_store

GENESIS = "0" * 64


def write(path, session, events, *, length=None):
    """A whole chain over these events, given as bytes; `length` is what the session's row claims."""
    db = open_store(path)  # only to have the tables
    with closing(sqlite3.connect(path)) as rows:
        rows.execute("DELETE FROM events")
        rows.execute("DELETE FROM sessions")
        rows.execute("DELETE FROM origins")
        sid = 1
        rows.execute(
            "INSERT INTO sessions VALUES (?, ?, NULL, 0, ?, ?, ?, ?, 0, 0)",
            (sid, session, 0, GENESIS, _time_of(1), _time_of(len(events))),
        )
        head = first = GENESIS
        for seq, data in enumerate(events, 1):
            at = _time_of(seq)
            head = sha256(f"{head} {seq} {at!r} ".encode() + data).hexdigest()
            first = head if seq == 1 else first
            rows.execute(
                "INSERT INTO events (sid, seq, at, once, hash, data) VALUES (?, ?, ?, ?, ?, ?)",
                (sid, seq, at, _once(json.loads(data), seq), bytes.fromhex(head), data.decode()),
            )
        rows.execute("UPDATE sessions SET seq = ?, head = ?", (length or len(events), head))
        origin_hash = sha256(f"{sid} None 0 {first} {session}".encode()).hexdigest()
        rows.execute("INSERT INTO origins (uid, sid, seal) VALUES (?, ?, ?)", (session, sid, origin_hash))
        rows.commit()
    return db


def _time_of(seq):
    return 1_700_000_000.0 + seq


def _once(event, seq):
    """What each event of these logs is filed under.  Twice the same cannot be in one table."""
    match event:
        case {"type": "tool_started", "call_id": call}:
            return f"intent:{call}#{event.get('attempt', 1)}"
        case {"type": "tool_finished", "result": {"call_id": call}}:
            return f"receipt:{call}"
    return None


def change(path, *statements):
    with closing(sqlite3.connect(path)) as rows:
        for statement in statements:
            rows.execute(statement)
        rows.commit()
