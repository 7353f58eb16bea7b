"""In-memory store: the reference that every other store is compared with.

A fork refers to its parent and its fork point; records are never copied but found by walking up the
ancestors. Records after a fork point belong to the session they were appended to, hence the two numbers of a
session: it owns the records above `forked_at`, and a child forked at a lower number sees none of them.

A lock, not the event loop, serialises appends: agents are driven from several loops and threads at once, and
check-then-extend is two steps.

The JSON of the event that records the settings is kept compressed: with many tools it would be most of what an open
session holds.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from hashlib import sha256
from secrets import token_bytes
from zlib import compress, decompressobj

from msgspec.structs import replace

from bridle.ports.store import Lease, SessionInfo
from bridle.values.errors import SessionNotFound
from bridle.values.events import Configured
from bridle.values.record import GENESIS, Record, decode_event

from .conflicts import (
    check_batch,
    check_evidence,
    check_restart,
    check_session_name,
    diverged_append,
    fork_beyond_end,
    missing_blob,
    repeated_name,
    restarted_fork,
    session_exists,
    stale_append,
    taken_over,
)
from .locks import HeldLease, is_lease_held, resolve_future

LARGE_BLOB_BYTES = 1 << 20
"""Larger blobs are hashed in a thread, because hashing would block the event loop."""
KNOWN_SETTINGS_MAX = 16
"""Settings whose compressed form is remembered: the sessions of an agent differ in their name only."""


class MemoryStore:
    def __init__(self) -> None:
        self._lines: dict[str, _MemorySession] = {}
        self._blobs: dict[str, bytes] = {}
        self._touches = 0
        self._lock = threading.Lock()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._live: dict[str, bytes] = {}
        self.approval_key = token_bytes(32)
        """Secret for approval tokens; lives as long as the records."""

    async def append(
        self, session: str, after: int, records: Sequence[Record], *, epoch: int | None = None
    ) -> None:
        if not records:
            return
        names = check_batch(session, after, records)
        with self._lock:
            line = self._lines.get(session)
            if line is None:
                check_session_name(session)
                line = _MemorySession(session, None, 0, GENESIS)
            if epoch is not None and line.epoch != epoch:
                raise taken_over(session)
            if line.length != after:
                raise stale_append(session, line.length, after)
            if line.head != records[0].prev:
                raise diverged_append(session, after)
            for record in records:
                for hash_ in record.event.required_blobs:
                    if hash_ not in self._blobs:
                        raise missing_blob(session, hash_)
            if names:
                for name in names:
                    if line.has_name(name):
                        raise repeated_name(session, name)
                line.names.update(names)
            if type(records[0].event) is Configured:  # one in the middle of an import stays as it is
                records = (_compress_settings(records[0]), *records[1:])
            line.own.extend(records)
            last = records[-1]
            line.length, line.head = last.seq, last.hash
            self._touch(line)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        with self._lock:
            line = self._lines.get(session)
            records = line.records_after(max(after, 0), limit) if line else ()
        return tuple(map(_restore_settings, records))

    async def restart(self, session: str, head: str, record: Record) -> None:
        check_restart(session, record)
        with self._lock:
            line = self._lines.get(session)
            if line is None or line.head != head:
                raise diverged_append(session, line.length if line else 0)
            if line.parent is not None or any(each.parent is line for each in self._lines.values()):
                raise restarted_fork(session)
            fresh = _MemorySession(session, None, 0, GENESIS)
            fresh.own, fresh.length, fresh.head = [record], 1, record.hash
            if record.event.unique_key is not None:
                fresh.names[record.event.unique_key] = 1
            self._touch(fresh)

    async def redact(
        self, session: str, seq: int, data: bytes, evidence: Mapping[str, Record], blobs: Sequence[str] = ()
    ) -> None:
        with self._lock:
            line = self._lines.get(session)
            owner = line.find_owner(seq) if line else None
            if owner is None:
                raise diverged_append(session, seq)
            old = owner.own[seq - owner.forked_at - 1]
            sharing = [each for each in self._lines.values() if each.find_owner(seq) is owner]
            check_evidence(session, seq, (each.id for each in sharing), evidence)
            for each in sharing:
                record = evidence[each.id]
                if each.length != record.seq - 1 or each.head != record.prev:
                    raise stale_append(each.id, each.length, record.seq - 1)
                if (key := record.event.unique_key) is not None and each.has_name(key):
                    raise repeated_name(each.id, key)
            event = decode_event(data)
            assert event is not None
            owner.own[seq - owner.forked_at - 1] = replace(old, data=data, event=event, is_redacted=True)
            for each in sharing:
                record = evidence[each.id]
                each.own.append(record)
                each.length, each.head = record.seq, record.hash
                if record.event.unique_key is not None:
                    each.names[record.event.unique_key] = record.seq
                self._touch(each)
            records = (record for each in self._lines.values() for record in each.own)
            used = {hash_ for record in records for hash_ in record.event.required_blobs} if blobs else set()
            for hash_ in blobs:
                if hash_ not in used:
                    self._blobs.pop(hash_, None)

    async def fork(self, session: str, at: int, new: str) -> None:
        check_session_name(new)
        with self._lock:
            parent = self._lines.get(session)
            if parent is None:
                raise SessionNotFound(f"there is no session {session!r} to fork")
            if not 0 <= at <= parent.length:
                raise fork_beyond_end(session, parent.length, at)
            if new in self._lines:
                raise session_exists(new)
            last = parent.record(at)
            self._touch(_MemorySession(new, parent, at, last.hash if last else GENESIS))

    async def put_blob(self, data: bytes) -> str:
        hash_ = (
            await asyncio.to_thread(_hash_blob, data) if len(data) > LARGE_BLOB_BYTES else _hash_blob(data)
        )
        with self._lock:
            self._blobs.setdefault(hash_, bytes(data))
        return hash_

    async def get_blob(self, hash_: str) -> bytes | None:
        with self._lock:
            return self._blobs.get(hash_)

    def lease(self, session: str, *, take_over: bool = False) -> AbstractAsyncContextManager[Lease]:
        return HeldLease(self, f"memory {id(self)}", session, take_over=take_over)

    async def is_leased(self, session: str) -> bool:
        return is_lease_held(
            f"memory {id(self)}", Lease(session=session, epoch=await self.read_epoch(session))
        )

    async def read_epoch(self, session: str) -> int:
        with self._lock:
            line = self._lines.get(session)
            return line.epoch if line else 0

    async def raise_epoch(self, session: str, epoch: int) -> None:
        with self._lock:
            line = self._lines.get(session)
            if line is None:
                raise SessionNotFound(f"there is no session {session!r} to take over")
            if line.epoch != epoch:
                raise taken_over(session)
            line.epoch += 1

    async def wait_for_records(self, session: str, after: int) -> None:
        with self._lock:
            line = self._lines.get(session)
            if line is not None and line.length > after:
                return
            future = asyncio.get_running_loop().create_future()
            others = [other for other in self._waiting.get(session, ()) if not other.done()]
            self._waiting[session] = [*others, future]
        await future

    async def publish_live(self, session: str, data: bytes) -> bool:
        if session not in self._live:
            return False
        self._live[session] = data
        return True

    async def read_live(self, session: str) -> bytes:
        return self._live.setdefault(session, b"")

    async def sessions(self, limit: int = 50) -> Sequence[SessionInfo]:
        with self._lock:
            newest_first = sorted(self._lines.values(), key=lambda line: -line.touched)
            return tuple(line.info() for line in newest_first[: max(limit, 0)])

    async def close(self) -> None:
        """Do nothing: the records live as long as this object."""

    def _touch(self, line: "_MemorySession") -> None:
        self._touches += 1
        line.touched = self._touches
        self._lines[line.id] = line
        if self._waiting:
            for future in self._waiting.pop(line.id, ()):
                resolve_future(future)


def _hash_blob(data: bytes) -> str:
    return sha256(data).hexdigest()


def _compress_settings(record: Record) -> Record:
    settings, mark, session = record.data.rpartition(b',"session":')
    if not mark:
        settings, session = session, b""
    return replace(record, data=_compress(settings) + mark + session)


@lru_cache(maxsize=KNOWN_SETTINGS_MAX)
def _compress(settings: bytes) -> bytes:
    return compress(settings, 1)


def _restore_settings(record: Record) -> Record:
    if isinstance(record.event, Configured) and not record.data.startswith(b"{"):  # which JSON starts with
        stream = decompressobj()
        return replace(record, data=stream.decompress(record.data) + stream.unused_data)
    return record


class _MemorySession:
    """One session: its own records, and the parent that holds the records before them."""

    __slots__ = ("epoch", "forked_at", "head", "id", "length", "names", "own", "parent", "touched")

    def __init__(self, id_: str, parent: "_MemorySession | None", forked_at: int, head: str) -> None:
        self.id = id_
        self.parent = parent
        self.forked_at = forked_at
        self.length = forked_at
        self.head = head
        self.own: list[Record] = []
        self.names: dict[str, int] = {}
        self.touched = self.epoch = 0

    def segments(self) -> Iterator[tuple["_MemorySession", int]]:
        """Yield this session and its ancestors, each with the last of its own records visible here."""
        line: _MemorySession | None = self
        last = self.length
        while line is not None:
            yield line, last
            last = min(last, line.forked_at)
            line = line.parent

    def has_name(self, name: str) -> bool:
        if self.parent is None:
            return name in self.names
        return any(line.names.get(name, last + 1) <= last for line, last in self.segments())

    def record(self, seq: int) -> Record | None:
        owner = self.find_owner(seq)
        return owner.own[seq - owner.forked_at - 1] if owner else None

    def find_owner(self, seq: int) -> "_MemorySession | None":
        return next((line for line, last in self.segments() if line.forked_at < seq <= last), None)

    def records_after(self, after: int, limit: int | None) -> tuple[Record, ...]:
        until = self.length if limit is None else min(self.length, after + max(limit, 0))
        if after >= self.forked_at:
            return tuple(self.own[after - self.forked_at : max(until, after) - self.forked_at])
        found: list[Record] = []
        for line, last in self.segments():
            start, end = max(after, line.forked_at), min(last, until)
            if start < end:
                found[:0] = line.own[start - line.forked_at : end - line.forked_at]
        return tuple(found)

    def info(self) -> SessionInfo:
        last = self.record(self.length)
        return SessionInfo(
            id=self.id,
            length=self.length,
            created_at=self.own[0].at if self.own else last.at if last else 0.0,
            updated_at=last.at if last else 0.0,
            parent=self.parent.id if self.parent else "",
            forked_at=self.forked_at,
        )
