"""Loads a long log from its snapshot, and takes the next one.

A snapshot is used only if it is signed with the user's approval key, which is not in the store: a state can say that a
call was approved and has not run yet. It is used only by the code that made it (`fold_version`) and only with the
records it was made of, all of which are read and compared. `bridle store verify` folds the log and compares the states.
"""

import gc
import hmac
import logging
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import replace

from bridle import __file__ as package_file
from bridle import __loaded_at__, __version__
from bridle.core import state
from bridle.core.recovery.log_repair import FoldedLog, LogReader, apply_records
from bridle.ports.store import RawRecord, SnapshotStore, Store, StoredSnapshot, supports
from bridle.run.calls.approval_proof import open_key, read_key
from bridle.run.recovery.snapshot_codec import (
    FoldSnapshot,
    decode_parts,
    decode_snapshot,
    encode_snapshot,
    record_parts,
    restore_reader,
)
from bridle.values import message
from bridle.values.errors import Unusable
from bridle.values.message import Part
from bridle.values.record import GENESIS, Record

SNAPSHOT_RECORDS = 1_000
"""Records that are folded before a snapshot is worth its space and time."""
FOLD_CODE = (Path(state.__file__).parent, Path(message.__file__).parent, Path(__file__).parent)
COMPRESSION = 1
"""Level of zlib: higher ones take several times as long and save a few per cent."""
BATCH_RECORDS = 200
"""Raw records in memory at a time: few enough for the processor's cache."""
PLAIN_BYTES_MAX = 256 * 1024 * 1024
"""Largest snapshot before compression."""
FILE_TIME_SECONDS = 0.1
"""Times of files are those of the last tick of the system's clock."""
UNFIT = "it did not match the records"
UNSIGNED = "it was changed, or made with another approval key"
OTHER_CODE = "another version of Bridle made it, so it was not checked"
UNDECODABLE = (msgspec.MsgspecError, zlib.error, ValueError, LookupError, TypeError, RecursionError)
LOG = logging.getLogger("bridle")


class LoadedRecords:
    """A log that was read: a reader after its snapshot, and the records that the reader has not applied yet."""

    def __init__(self) -> None:
        self.reader = LogReader()
        self.records: Sequence[Record] = ()
        self.covered, self.head = 0, GENESIS
        """Number and hash of the last record that the reader has applied."""
        self.unfit = ""
        """Reason why a snapshot was not used."""
        self._contents: dict[int, tuple[Part, ...]] = {}
        self._digests: tuple[tuple[int, str], ...] = ()
        self._store: Store | None = None
        self._session = ""

    async def read(self, store: Store, session: str, *, uses_snapshot: bool = True) -> None:
        """Read a log from its snapshot, if it has one that fits; raises `Corrupt` if a record was changed."""
        self._store, self._session = store, session
        if uses_snapshot and supports(store, SnapshotStore):
            keeper = cast("SnapshotStore", store)
            _, self.records = await keeper.read_with_snapshot(session, self._restore)
        else:
            self.records = await store.read(session)

    def fold(self) -> FoldedLog:
        """Apply the records."""
        apply_records(self.reader, self.records)
        self.reader.continue_numbering()
        return FoldedLog(self.reader.state, tuple(self.reader.repairs))

    def make_snapshot(self) -> StoredSnapshot | None:
        """Snapshot of the log, all records of which were applied; None if it would not be used."""
        records, version, key = self.records, fold_version(), self._find_key(creates=True)
        if not version or key is None:
            return None
        contents = {**self._contents, **{record.seq: record_parts(record.event) for record in records}}
        rows = iter([(record.at, bytes.fromhex(record.hash), record.data) for record in records])
        digest = _digest_records(rows, len(records), self.covered, frozenset(), {})
        plain = encode_snapshot(self.reader, contents, (*self._digests, (len(records), digest)))
        if vars(restore_reader(decode_snapshot(plain), contents)) != vars(self.reader):
            LOG.warning("a snapshot of a session differs from its log and is not kept; please report this")
            return None
        snapshot = StoredSnapshot(
            seq=self.covered + len(records),
            head=records[-1].hash,
            fold_version=version,
            data=zlib.compress(plain, COMPRESSION),
            digest="",
            replaced=self.unfit,
        )
        is_small = len(plain) <= PLAIN_BYTES_MAX
        return replace(snapshot, digest=_sign(key, self._session, snapshot)) if is_small else None

    def _find_key(self, *, creates: bool) -> bytes | None:
        assert self._store is not None, "a log is read before it is folded"
        try:
            return open_key(self._store) if creates else read_key(self._store)
        except Unusable as error:
            LOG.info("a session has no snapshots: %s", error)
            return None

    def _restore(self, stored: StoredSnapshot, rows: Iterator[RawRecord]) -> LogReader | None:
        if not stored.fold_version or stored.fold_version != fold_version():
            self.unfit = OTHER_CODE
            return None
        key = self._find_key(creates=False)
        signed = _sign(key, self._session, stored) if key is not None else ""
        # guard: snapshot-signature
        if not signed or not hmac.compare_digest(signed.encode(), stored.digest.encode()):
            self.unfit = UNSIGNED
            return None
        try:
            with _pause_collector():
                return self._restore_intact(stored, rows)
        except UNDECODABLE as error:
            # The log itself is there: a snapshot must not keep it from being read.
            LOG.warning("the snapshot of session %r cannot be read: %s", self._session, error)
            self.unfit = UNFIT
            return None

    def _restore_intact(self, stored: StoredSnapshot, rows: Iterator[RawRecord]) -> LogReader | None:
        snapshot = _decompress(stored.data)
        needed, count = snapshot.sources, 0
        contents: dict[int, tuple[Part, ...]] = {}
        for length, digest in snapshot.record_digests:
            # guard: snapshot-matches-records
            if _digest_records(rows, length, count, needed, contents) != digest:
                self.unfit = UNFIT
                return None
            count += length
        if count != stored.seq:
            self.unfit = UNFIT
            return None
        self.reader, self.covered, self.head = restore_reader(snapshot, contents), count, stored.head
        self._contents, self._digests = contents, snapshot.record_digests
        return self.reader


@contextmanager
def _pause_collector() -> Iterator[None]:
    """Keep the garbage collector from visiting a conversation again and again while it is made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _sign(key: bytes, session: str, snapshot: StoredSnapshot) -> str:
    data = sha256(snapshot.data).hexdigest()
    signed = ("snapshot", session, snapshot.seq, snapshot.head, snapshot.fold_version, data)
    return hmac.new(key, msgspec.json.encode(signed), sha256).hexdigest()


def _decompress(data: bytes) -> FoldSnapshot:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(data, PLAIN_BYTES_MAX)
    if not inflater.eof:
        raise ValueError("it is too long, or its end is missing")
    return decode_snapshot(plain)


def _find_inode(path: str) -> int:
    try:
        return Path(path).stat().st_ino
    except OSError:  # inside of an archive
        return 0


PACKAGE_INODE = _find_inode(package_file)


@cache
def fold_version() -> str:
    """Digest of the code that folds logs and of the values that it makes; empty if that code is not known.

    Files are read when a log is first loaded, long after the code perhaps. They are not those of the loaded code if
    they are younger, or if the folder was exchanged. An installation without source files has no snapshots.
    """
    files = [(path, folder) for folder in FOLD_CODE for path in sorted(folder.rglob("*.py"))]
    times = [time for path, _ in files for time in (path.stat().st_mtime, path.stat().st_ctime)]
    is_exchanged = _find_inode(package_file) != PACKAGE_INODE
    if not files or is_exchanged or max(times) > __loaded_at__ - FILE_TIME_SECONDS:
        return ""
    digest = sha256(f"{__version__}\0{msgspec.__version__}".encode())
    for path, folder in files:
        data = path.read_bytes()
        digest.update(f"\0{path.relative_to(folder)}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def _digest_records(
    rows: Iterator[RawRecord],
    length: int,
    after: int,
    needed: set[int] | frozenset[int],
    contents: dict[int, tuple[Part, ...]],
) -> str:
    """Digest of the next `length` records after the number `after`; the parts of those `needed` join `contents`."""
    digest, marks = sha256(), []
    for start in range(0, length, BATCH_RECORDS):
        batch = list(islice(rows, min(BATCH_RECORDS, length - start)))
        if not batch:
            break
        times, hashes, bodies = zip(*batch, strict=True)
        marks.append((times, hashes, [*map(len, bodies)]))
        deque(map(digest.update, bodies), maxlen=0)
        first = after + start + 1
        for seq in needed.intersection(range(first, first + len(bodies))):
            contents[seq] = decode_parts(bodies[seq - first])
    digest.update(msgspec.msgpack.encode(marks))
    return digest.hexdigest()
