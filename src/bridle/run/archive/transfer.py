"""Exports a session as lines of JSON, and imports it into another store, byte for byte.

    {"format":"bridle-session","version":1,"session":"s","records":2,"head":"…","lineage":[],"blobs":true,
     "subruns":[{"session":"inner-…","records":5,"head":"…"}]}
    {"seq":1,"at":1700000000.0,"prev":"000…","hash":"…","data":{"type":"configured",…}}
    {"blob":"<SHA-256>","base64":"…"}           before the first record that refers to it
    {"subrun":"inner-…","seq":1,…}              records of the runs inside its tools

`data` is the event exactly as it was hashed, so the hash chain is verified on import, and exporting the imported
session gives the same bytes. A fork is exported with the records that it shares; it shares them again where its
parent has them. Lines and members of other names are skipped: they may be added without a new version.
"""

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import BinaryIO

import msgspec

from bridle.ports.store import SessionInfo, Store
from bridle.run.recovery.session_log import SESSIONS_MAX, find_inherited_redactions
from bridle.run.validate_input import check_session
from bridle.values.base import Value
from bridle.values.budget import SubrunStarted
from bridle.values.calls import ContentRedacted
from bridle.values.errors import Conflict, Corrupt, MisuseError, SessionNotFound, Unusable
from bridle.values.events import Configured, Event, Forked, Prompted
from bridle.values.record import GENESIS, Record, decode_event, seal_record, unseal_record
from bridle.values.text import describe_error

FORMAT, VERSION = "bridle-session", 1
LINE_BYTES_MAX = 256 * 1024 * 1024
"""Longest line of an export that is read: a blob as base64."""
UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Errors of a line from outside that is not what an export has."""


def describe_damage(error: BaseException) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else describe_error(error)


def limit_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; raises `Corrupt` before one that is too long is read whole."""
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise Corrupt(f"line {number} is damaged: it has more than {LINE_BYTES_MAX:,} bytes")
        yield line


class _SubrunHeader(msgspec.Struct):
    session: str
    records: int
    head: str


class _Header(msgspec.Struct):
    format: str
    version: int
    session: str
    records: int
    head: str
    lineage: tuple[Forked, ...] = ()
    blobs: bool = True
    subruns: tuple[_SubrunHeader, ...] = ()


class _Line(msgspec.Struct):
    """A record or a blob."""

    seq: int = 0
    at: float = 0.0
    prev: str = ""
    hash: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")
    blob: str = ""
    base64: str = ""
    subrun: str = ""
    """Session of the record, if it is not the exported one."""


class ImportedSession(Value, kw_only=True):
    session: str
    records: int
    blobs: int
    parent: str = ""
    """Session in the store that it shares records with."""
    shared: int = 0
    """Number of shared records."""
    subruns: tuple[str, ...] = ()
    """Sessions of runs inside its tools that were imported with it."""
    missing_subruns: tuple[str, ...] = ()
    """Sessions of such runs that are not in the store: a resumed run answers their unfinished calls as in doubt."""


async def export_session(
    store: Store, session: str, *, blobs: bool = True, subruns: bool = True
) -> AsyncIterator[bytes]:
    """Yield the lines of an export; raises `Corrupt` if the log or a blob is damaged.

    `subruns` adds the sessions of the runs inside its tools, at any depth, unless other runs or tenants use them too.
    Without `blobs`, long tool results are left out; such an export can be imported only where they are stored.
    """
    check_session(session)
    records = await read_with_evidence(store, session)
    if not records:
        raise SessionNotFound(f"no session {session!r} in this store; `bridle sessions` lists them")
    lineage = tuple(record.event for record in records if isinstance(record.event, Forked))
    inner = await _read_subruns(store, session, records) if subruns else {}
    heads = tuple(_SubrunHeader(name, len(own), own[-1].hash) for name, own in inner.items())
    yield _encode_line(
        _Header(FORMAT, VERSION, session, len(records), records[-1].hash, lineage, blobs, heads)
    )
    written: set[str] = set()
    sessions: list[tuple[dict[str, object], Sequence[Record]]] = [({}, records)]
    sessions += [({"subrun": name}, own) for name, own in inner.items()]
    for place, record in ((place, record) for place, own in sessions for record in own):
        for hash_ in record.event.required_blobs if blobs else ():
            if hash_ not in written:
                written.add(hash_)
                yield _encode_line(
                    {"blob": hash_, "base64": b64encode(await _read_blob(store, hash_)).decode()}
                )
        yield _encode_line(
            {
                **place,
                "seq": record.seq,
                "at": record.at,
                "prev": record.prev,
                "hash": record.hash,
                "data": msgspec.Raw(record.data),
            }
        )


async def read_with_evidence(store: Store, session: str) -> Sequence[Record]:
    """Read a log that is to prove its redactions by itself.

    A fork proves a redaction that came after it by the log it was forked from. Here such redactions follow at its end.
    """
    line = [*await store.read(session)]
    for event in await find_inherited_redactions(store, session, line):
        line.append(seal_record(len(line) + 1, line[-1].at, event, line[-1].hash))
    return line


async def import_session(store: Store, lines: Iterable[bytes], *, name: str = "") -> ImportedSession:
    """Import an export as a new session, in one step; raises `Corrupt` with the number of a damaged line.

    `name` replaces the name of the session. Raises `Conflict` if the store has a session of that name.
    """
    header, found, blobs = _parse_lines(lines)
    session = check_session(name or header.session)
    records = _verify_records(header, found.pop("", []))
    inner = {each.session: _verify_records(each, found.pop(each.session, [])) for each in header.subruns}
    if found:
        raise Corrupt(
            f"line 1 is damaged: it does not name session {min(found)!r}, whose records are in the file"
        )
    existing = [info for info in await store.sessions(limit=SESSIONS_MAX) if info.id == session]
    if existing and not await _is_unfinished(store, existing[0], records):
        raise Conflict(
            f"there is already a session {session!r} in this store; import it as another one with --as NAME"
        )
    new = {name: own for name, own in inner.items() if not await _is_stored(store, check_session(name), own)}
    parent, shared = await _find_parent(store, records)
    if existing:
        parent, shared = existing[0].parent, existing[0].length
    missing = [
        (record.seq, hash_)
        for record in (*records[shared:], *(record for own in new.values() for record in own))
        for hash_ in record.event.required_blobs
        if hash_ not in blobs and await store.get_blob(hash_) is None
    ]
    if missing:
        raise MisuseError(
            f"record {missing[0][0]} needs blob {missing[0][1]}, which is neither in the file nor in the store; "
            "export the session again without --no-blobs"
        )
    for data in blobs.values():
        await store.put_blob(data)
    for name, own in new.items():  # first, because a run that misses them must not be resumed
        await store.append(name, 0, own)
    if shared and not existing:
        await store.fork(parent, shared, session)
    await store.append(session, shared, records[shared:])
    started = {name for own in (records, *inner.values()) for name in _list_started(own)}
    return ImportedSession(
        session=session,
        records=len(records),
        blobs=len(blobs),
        parent=parent,
        shared=shared,
        subruns=tuple(new),
        missing_subruns=tuple([name for name in sorted(started - {*inner}) if not await store.read(name)]),
    )


async def _read_subruns(store: Store, session: str, records: Sequence[Record]) -> dict[str, Sequence[Record]]:
    """The records of the runs inside the tools of a session, by session; only those that belong to it alone."""
    found: dict[str, Sequence[Record]] = {}
    waiting = [(session, records)]
    for outer, own in waiting:
        names, tenants = {outer}, set[str]()
        for event in (record.event for record in own):
            match event:
                case Forked(parent=name) | Configured(session=name):
                    names.add(name)  # the session had this name when it started runs
                case Prompted(tenant=tenant):
                    tenants.add(tenant)
        for name in _list_started(own):
            if name in found or name == session:
                continue
            inner = await read_with_evidence(store, name)
            prompts = [record.event for record in inner if isinstance(record.event, Prompted)]
            if inner and all(each.parent_session in names and each.tenant in tenants for each in prompts):
                found[name] = inner
                waiting.append((name, inner))
    return found


def _list_started(records: Sequence[Record]) -> Sequence[str]:
    events = (record.event for record in records)
    return tuple(dict.fromkeys(event.session for event in events if isinstance(event, SubrunStarted)))


async def _is_unfinished(store: Store, info: SessionInfo, records: Sequence[Record]) -> bool:
    """True if a crash ended an import of these records: there is a fork that shares some of them and has no own."""
    is_empty = bool(info.parent) and info.length == info.forked_at < len(records)
    return is_empty and _has_same_hashes(await store.read(info.id), records)


def _has_same_hashes(existing: Sequence[Record], records: Sequence[Record]) -> bool:
    """True if these are the first of the records; hashes cover content that was removed since as well."""
    return [each.hash for each in existing] == [each.hash for each in records[: len(existing)]]


async def _is_stored(store: Store, session: str, records: Sequence[Record]) -> bool:
    """True if the store has these records; raises `Conflict` if it has others under this name."""
    existing = await store.read(session)
    if existing and not _has_same_hashes(records, existing):
        raise Conflict(
            f"there is already another session {session!r} in this store; import into an empty one"
        )
    return bool(existing)


Lines = list[tuple[int, _Line]]
"""Lines with their numbers."""


def _parse_lines(lines: Iterable[bytes]) -> tuple[_Header, dict[str, Lines], dict[str, bytes]]:
    """The header, the records by session (the exported one is ""), and the blobs."""
    header: _Header | None = None
    records: dict[str, Lines] = {}
    blobs: dict[str, bytes] = {}
    for number, text in enumerate(lines, 1):
        if header is None:
            header = _parse_header(text)
            continue
        try:
            line = msgspec.json.decode(text, type=_Line)
            if line.blob:
                data = b64decode(line.base64, validate=True)
                if sha256(data).hexdigest() != line.blob:
                    raise Corrupt(f"line {number} is damaged: its blob does not match its hash")
                blobs[line.blob] = data
            elif line.seq:
                records.setdefault(line.subrun, []).append((number, line))
        except UNREADABLE as error:
            raise Corrupt(f"line {number} is damaged: {describe_damage(error)}") from error
    if header is None:
        raise Corrupt("the file is empty; write it with `bridle session export SESSION`")
    return header, records, blobs


def _parse_header(text: bytes) -> _Header:
    try:
        known = msgspec.json.decode(text, type=dict[str, object])
    except UNREADABLE as error:
        raise Corrupt(
            "line 1 is damaged, or this is not an export; write one with `bridle session export SESSION`"
        ) from error
    version = known.get("version")
    if known.get("format") != FORMAT or not isinstance(version, int) or version < VERSION:
        raise Corrupt(
            "line 1: this is not an exported session; write one with `bridle session export SESSION`"
        )
    if version > VERSION:
        raise Unusable(
            f"the export has version {version}, this Bridle reads version {VERSION}; upgrade Bridle"
        )
    try:
        return msgspec.json.decode(text, type=_Header)
    except UNREADABLE as error:
        raise Corrupt(f"line 1 is damaged: {describe_damage(error)}") from error


def _verify_records(header: _Header | _SubrunHeader, lines: Sequence[tuple[int, _Line]]) -> list[Record]:
    """The records; raises `Corrupt` if one is missing, moved or changed."""
    evidence: dict[str, Event] = {}
    for _, line in lines:
        if b'"content_redacted"' in bytes(line.data) and isinstance(
            event := decode_event(bytes(line.data)), ContentRedacted
        ):
            evidence[event.unique_key or ""] = event
    records: list[Record] = []
    prev = GENESIS
    for expected, (number, line) in enumerate(lines, 1):
        # guard: import-chain
        if line.seq != expected or line.prev != prev:
            raise Corrupt(
                f"line {number} is damaged: record {expected} was expected, which continues the one before"
            )
        try:
            record = unseal_record(line.seq, line.at, bytes(line.data), line.prev, line.hash, evidence.get)
        except (Corrupt, *UNREADABLE) as error:
            raise Corrupt(f"line {number} is damaged: {describe_damage(error)}") from error
        records.append(record)
        prev = record.hash
    # guard: import-header-head
    if not records or len(records) != header.records or prev != header.head:
        raise Corrupt(
            f"the file is cut off after line {lines[-1][0] if lines else 1}: "
            f"it has {len(records)} of {header.records} records"
        )
    return records


async def _find_parent(store: Store, records: Sequence[Record]) -> tuple[str, int]:
    """The session of the store that has the records before the last fork, and their number."""
    forks = [record for record in records if isinstance(record.event, Forked)]
    for record in reversed(forks):
        event = record.event
        assert isinstance(event, Forked)
        shared = record.seq - 1
        existing = await store.read(event.parent) if shared == event.at > 0 else ()
        pairs = zip(existing, records[:shared], strict=False)
        # A record that was redacted in the file and not here is not shared: its content would come back.
        if (
            len(existing) >= shared
            and _has_same_hashes(records[:shared], existing)
            and all(one.is_redacted or not other.is_redacted for one, other in pairs)
        ):
            return event.parent, shared
    return "", 0


async def _read_blob(store: Store, hash_: str) -> bytes:
    data = await store.get_blob(hash_)
    if data is None:
        raise Corrupt(f"the store is missing blob {hash_}, which the log refers to; restore it from a backup")
    return data


def _encode_line(fields: _Header | Mapping[str, object]) -> bytes:
    return msgspec.json.encode(fields) + b"\n"


def find_sharing_sessions(infos: Sequence[SessionInfo], session: str, seq: int) -> tuple[str, ...]:
    """Sessions that contain record `seq` of a session: its owner, and the forks that share it."""
    by_id = {info.id: info for info in infos}
    owner, seen = session, {session}
    while owner in by_id and by_id[owner].parent and seq <= by_id[owner].forked_at:
        owner = by_id[owner].parent
        if owner in seen:
            break  # a cycle in a damaged store
        seen.add(owner)
    found, waiting = [owner], [owner]
    while waiting:
        parent = waiting.pop()
        forks = [each.id for each in infos if each.parent == parent and each.forked_at >= seq]
        forks = [each for each in forks if each not in found]
        found += forks
        waiting += forks
    return tuple(found)
