"""In-memory store: the reference that every other store is compared with.

A fork refers to its parent and its fork point; records are never copied but found by walking up the
ancestors. Records after a fork point belong to the session they were appended to, hence the two numbers of a
session: it owns the records above `forked_at`, and a child forked at a lower number sees none of them.

A lock, not the event loop, serialises appends: agents are driven from several loops and threads at once, and
check-then-extend is two steps.

A store with limits (`sessions_max`, `bytes_max`) drops the sessions that were used least recently. It keeps those whose
run is not finished, that are leased, that a fork refers to, or that a `Result` of this process holds (`hold_session`).
A dropped name is remembered: the session is not started again in silence.

The JSON of the event that records the settings is kept compressed: with many tools it would be most of what an open
session holds.
"""

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from hashlib import sha256
from secrets import token_bytes
from weakref import WeakValueDictionary
from zlib import compress, decompressobj

from msgspec.structs import replace

from bridle.ports.store import Lease, SessionInfo
from bridle.values.errors import MisuseError, SessionNotFound
from bridle.values.events import Configured, Prompted, Resumed, RunEnded
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


DROPPED_NAMES_MAX = 100_000
"""Names of dropped sessions that are remembered; older names may be used again."""
UNUSED_BLOBS_MAX = 1_000
"""Blobs that no record refers to yet; older ones are dropped by a store with limits."""
CANDIDATES_MAX = 64
"""Sessions looked at when one is to be dropped; those that are in use are looked at last."""
RECORD_BYTES, DATA_FACTOR = 300, 2
"""Estimated size of a record: so much, and so many times its JSON, which is also there as an object."""
UNFINISHED_STOPS = ("waiting", "paused")
SESSION_DROPPED = (
    "session {session!r} was dropped: this store keeps sessions in memory, at most {limits}, and drops those used"
    ' least recently; keep all of them in a file: Agent(…, store="log.db")'
)


class SessionHold:
    """Keeps a session in a store with limits while this object exists."""

    __slots__ = ("__weakref__",)


class MemoryStore:
    def __init__(self, *, sessions_max: int | None = None, bytes_max: int | None = None) -> None:
        """With limits, finished sessions are dropped; `bytes_max` is an estimate. None is no limit."""
        for name, limit in (("sessions_max", sessions_max), ("bytes_max", bytes_max)):
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
                raise MisuseError(f"MemoryStore({name}=…) takes a positive number or None, not {limit!r}")
        self._sessions_max, self._bytes_max = sessions_max, bytes_max
        self._is_limited = sessions_max is not None or bytes_max is not None
        self._sessions_limit = sys.maxsize if sessions_max is None else sessions_max
        self._bytes_limit = sys.maxsize if bytes_max is None else bytes_max
        self._bytes = 0
        self._blob_uses: dict[str, int] = {}
        """Records that refer to each blob; counted in a store with limits."""
        self._unused_blobs: dict[str, None] = {}
        self._dropped: dict[int, None] = {}
        """Hashes of the names of dropped sessions."""
        self._holds: WeakValueDictionary[str, SessionHold] = WeakValueDictionary()
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
                self._find(session)
                check_session_name(session)
                line = _MemorySession(session, None, 0, GENESIS)
            # guard: memory-append-epoch
            if epoch is not None and line.epoch != epoch:
                raise taken_over(session)
            if line.length != after:
                raise stale_append(session, line.length, after)
            if line.head != records[0].prev:
                raise diverged_append(session, after)
            size, blobs = 0, []
            for record in records:
                size += RECORD_BYTES + DATA_FACTOR * len(record.data)
                for hash_ in record.event.required_blobs:
                    if hash_ not in self._blobs:
                        raise missing_blob(session, hash_)
                    blobs.append(hash_)
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
            if self._is_limited:
                line.bytes += size
                self._bytes += size
                if blobs:
                    self._count_blobs(blobs)
                if self._bytes > self._bytes_limit or (not after and len(self._lines) > self._sessions_limit):
                    self._drop_sessions(line)

    async def read(self, session: str, after: int = 0, limit: int | None = None) -> Sequence[Record]:
        with self._lock:
            line = self._find(session)
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
            if self._is_limited:
                self._drop(line)
                self._dropped.pop(hash(session), None)
                fresh.bytes = RECORD_BYTES + DATA_FACTOR * len(record.data)
                self._bytes += fresh.bytes
                self._count_blobs(record.event.required_blobs)
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
            parent = self._find(session)
            if parent is None:
                raise SessionNotFound(f"there is no session {session!r} to fork")
            if not 0 <= at <= parent.length:
                raise fork_beyond_end(session, parent.length, at)
            if self._find(new) is not None:
                raise session_exists(new)
            last = parent.record(at)
            parent.children += 1
            self._touch(_MemorySession(new, parent, at, last.hash if last else GENESIS))

    async def put_blob(self, data: bytes) -> str:
        hash_ = (
            await asyncio.to_thread(_hash_blob, data) if len(data) > LARGE_BLOB_BYTES else _hash_blob(data)
        )
        with self._lock:
            self._blobs.setdefault(hash_, bytes(data))
            if self._is_limited and not self._blob_uses.get(hash_):
                self._unused_blobs.pop(hash_, None)
                self._unused_blobs[hash_] = None
                if len(self._unused_blobs) > UNUSED_BLOBS_MAX:
                    oldest = next(iter(self._unused_blobs))
                    del self._unused_blobs[oldest]
                    self._blobs.pop(oldest, None)
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

    def hold_session(self, session: str) -> SessionHold | None:
        """Keep a session while the returned object exists; None in a store that drops nothing."""
        if not self._is_limited:
            return None
        with self._lock:
            return self._holds.setdefault(session, SessionHold())

    def _find(self, session: str) -> "_MemorySession | None":
        """The session; raises `SessionNotFound` if it was dropped."""
        line = self._lines.get(session)
        if line is None and self._dropped and hash(session) in self._dropped:
            limits = (("sessions", self._sessions_max), ("bytes", self._bytes_max))
            named = " or ".join(f"{limit:,} {unit}" for unit, limit in limits if limit is not None)
            raise SessionNotFound(SESSION_DROPPED.format(session=session, limits=named))
        return line

    def _count_blobs(self, hashes: Iterable[str]) -> None:
        for hash_ in hashes:
            uses = self._blob_uses.get(hash_, 0)
            self._blob_uses[hash_] = uses + 1
            if not uses:
                self._unused_blobs.pop(hash_, None)
                self._bytes += len(self._blobs[hash_])

    def _drop_sessions(self, newest: "_MemorySession") -> None:
        """Drop the sessions used least recently until the limits hold, or enough that are in use were looked at."""
        for _ in range(CANDIDATES_MAX):
            oldest = next(iter(self._lines.values()))
            is_over = len(self._lines) > self._sessions_limit or self._bytes > self._bytes_limit
            if not is_over or oldest is newest:
                return
            del self._lines[oldest.id]
            if self._is_in_use(oldest):
                self._lines[oldest.id] = oldest  # looked at last
            else:
                self._drop(oldest)

    def _is_in_use(self, line: "_MemorySession") -> bool:
        return bool(
            line.children
            or line.id in self._holds
            or line.id in self._waiting
            or not line.is_finished()
            or is_lease_held(f"memory {id(self)}", Lease(session=line.id, epoch=line.epoch))
        )

    def _drop(self, line: "_MemorySession") -> None:
        self._bytes -= line.bytes
        self._live.pop(line.id, None)
        if line.parent is not None:
            line.parent.children -= 1
        for record in line.own:
            for hash_ in record.event.required_blobs:
                self._blob_uses[hash_] -= 1
                if not self._blob_uses[hash_]:
                    del self._blob_uses[hash_]
                    self._bytes -= len(self._blobs.pop(hash_, b""))
        self._dropped[hash(line.id)] = None
        if len(self._dropped) > DROPPED_NAMES_MAX:
            del self._dropped[next(iter(self._dropped))]

    def _touch(self, line: "_MemorySession") -> None:
        self._touches += 1
        line.touched = self._touches
        if self._is_limited:
            self._lines.pop(line.id, None)  # the least recently used session is the first
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

    __slots__ = (
        "bytes", "children", "epoch", "forked_at", "head", "id", "length", "names", "own", "parent", "touched",
    )  # fmt: skip

    def __init__(self, id_: str, parent: "_MemorySession | None", forked_at: int, head: str) -> None:
        self.id = id_
        self.parent = parent
        self.forked_at = forked_at
        self.length = forked_at
        self.head = head
        self.own: list[Record] = []
        self.names: dict[str, int] = {}
        self.touched = self.epoch = self.bytes = self.children = 0

    def is_finished(self) -> bool:
        """True if the last run has ended and nothing will continue it."""
        for record in reversed(self.own):
            event = record.event
            if isinstance(event, RunEnded):
                return event.stop not in UNFINISHED_STOPS
            if isinstance(event, Prompted | Resumed):
                return False
        return True

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
