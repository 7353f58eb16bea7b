"""Verifies sessions: their records, the content these refer to, what they mean, and their anchored heads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from bridle.core.recovery.log_repair import FoldedLog, fold_log
from bridle.ports.store import PrunableStore, RepairableStore, SessionInfo, SnapshotStore, Store, supports
from bridle.stores.anchors import Anchor, UnreadableLine
from bridle.stores.conflicts import RESERVED_PREFIXES
from bridle.values.base import Value
from bridle.values.calls import ContentRedacted
from bridle.values.errors import BridleError, Corrupt
from bridle.values.record import Record

from .session_log import find_inherited_evidence, list_unproved_records
from .snapshots import LoadedRecords

FORGED_SNAPSHOT = (
    "gives another state than these records: another program changed it; remove it with this SQL statement:"
)
INHERITED_REDACTION = (
    "was replaced by a redaction that is not anchored in a log that this session was forked from"
)
IN_PARENT = " (recorded in the log that this session was forked from)"
ProblemKind = Literal["record", "torn", "blob", "fold", "anchor", "snapshot", "file"]


class Problem(Value, kw_only=True):
    """Something in a store that is not what was written."""

    kind: ProblemKind
    text: str
    session: str = ""
    seq: int | None = None
    """The first record that is not as it was written, if that is known."""


class VerifiedSession(Value, kw_only=True):
    session: str
    length: int
    head: str
    anchored: int = 0
    """Number of the last record that an anchor proves; 0 without an anchor."""
    problems: tuple[Problem, ...] = ()
    repairs: tuple[str, ...] = ()
    """Gaps of a log that is as it was written, such as events of a newer version; the log is read without them."""
    redactions: tuple[str, ...] = ()
    """Content that people removed and recorded as removed, one sentence each."""
    notes: tuple[str, ...] = ()
    """Findings that do not affect the log, such as a snapshot that is not used."""


def group_anchors(lines: Iterable[Anchor | UnreadableLine]) -> dict[str, list[Anchor]]:
    """Anchors by session, without those from before the session was removed."""
    found: dict[str, list[Anchor]] = {}
    for line in lines:
        if isinstance(line, UnreadableLine):
            continue
        if line.removed:
            found.pop(line.session, None)
        else:
            found.setdefault(line.session, []).append(line)
    return found


def list_unreadable_anchors(lines: Iterable[Anchor | UnreadableLine]) -> list[Problem]:
    return [
        Problem(kind="anchor", text=f"line {line.number} of the anchors cannot be read: {line.error}")
        for line in lines
        if isinstance(line, UnreadableLine)
    ]


def list_anchored_heads(anchors: Mapping[str, Sequence[Anchor]]) -> frozenset[str]:
    return frozenset(anchor.head for group in anchors.values() for anchor in group)


async def list_all_sessions(store: Store) -> Sequence[SessionInfo]:
    limit = 1_000
    while len(infos := await store.sessions(limit=limit)) == limit:
        limit *= 10
    return infos


async def verify_store(
    store: Store, anchors: Mapping[str, Sequence[Anchor]]
) -> tuple[list[VerifiedSession], list[Problem]]:
    """Verify every log of a store; returns also the problems that belong to no log."""
    infos = await list_all_sessions(store)
    heads = list_anchored_heads(anchors)
    sessions = [await verify_session(store, info.id, anchors.get(info.id, ()), heads) for info in infos]
    texts = await store.check_file() if supports(store, PrunableStore) else ()
    problems = [Problem(kind="file", text=text) for text in texts]
    for session in sorted(anchors.keys() - {info.id for info in infos}):
        last = anchors[session][-1].seq
        text = f"session {session!r} had {last} records, and is not in this log any more"
        problems.append(Problem(kind="anchor", session=session, text=text))
    return sessions, problems


async def verify_session(
    store: Store,
    session: str,
    anchors: Sequence[Anchor] = (),
    heads: frozenset[str] = frozenset(),
    known: Anchor | None = None,
) -> VerifiedSession:
    """Verify a session with its anchors; `heads` are those of all sessions, because a fork shares records.

    `known` is a head that the caller has from elsewhere: a later redaction of a record up to it is reported, whatever
    the anchors say.
    """
    anchors = (*anchors, known) if known is not None else anchors
    problems: list[Problem] = []
    records: Sequence[Record] = ()
    try:
        records = await store.read(session)
    except Corrupt as error:
        seq = error.last_good + 1 if error.last_good is not None else None
        problems.append(
            Problem(kind="torn" if error.torn else "record", session=session, seq=seq, text=str(error))
        )
        if supports(store, RepairableStore):
            records = await store.read_intact(session)
    problems += [each for record in records for each in await _verify_blobs(store, session, record)]
    repairs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    try:
        # Logs of budgets, notes and control requests are no conversations.
        if not session.startswith(RESERVED_PREFIXES):
            folded = fold_log(records)
            repairs = folded.repairs
            if not problems and supports(store, SnapshotStore):
                notes = await _verify_snapshot(store, session, folded, problems)
    except BridleError as error:
        problems.append(Problem(kind="fold", session=session, text=f"the log cannot be folded: {error}"))
    hashes = {record.seq: record.hash for record in records}
    # guard: anchor-matches
    wrong = [anchor for anchor in anchors if hashes.get(anchor.seq) != anchor.head]
    if wrong:
        problems.append(_explain_anchor(session, wrong[0], len(records), is_there=wrong[0].seq in hashes))
    if anchors and anchors != (known,):
        problems += _list_unproved_redactions(session, records, heads | {anchor.head for anchor in anchors})
    if known is not None:
        problems += _list_later_redactions(session, records, known.seq)
    inherited = await _find_inherited_redactions(store, session, records)
    unproved = {record.seq for record in list_unproved_records(records)}
    if anchors:
        last = known.seq if known is not None and anchors == (known,) else len(records)
        problems += _list_unproved_copies(session, inherited, unproved, heads, last)
    return VerifiedSession(
        session=session,
        length=len(records),
        head=records[-1].hash if records else "",
        anchored=max((anchor.seq for anchor in anchors if anchor not in wrong), default=0),
        problems=tuple(problems),
        repairs=repairs,
        redactions=(
            *_list_redactions(records),
            *(
                f"{text}{IN_PARENT}"
                for seq in sorted(unproved)
                for text in _list_redactions(inherited.get(seq, ()))
            ),
        ),
        notes=notes,
    )


def _list_unproved_copies(
    session: str,
    inherited: Mapping[int, Sequence[Record]],
    unproved: set[int],
    heads: frozenset[str],
    last: int,
) -> list[Problem]:
    """Redactions up to record `last` that a fork repeats, and that no anchored head above it proves."""
    return [
        Problem(kind="anchor", session=session, seq=seq, text=f"record {seq} {INHERITED_REDACTION}")
        for seq, evidence in inherited.items()
        if seq <= last
        and (any(record.hash not in heads for record in evidence) or (seq in unproved and not evidence))
    ]


async def _find_inherited_redactions(
    store: Store, session: str, records: Sequence[Record]
) -> dict[int, list[Record]]:
    """Numbers of the redacted records, each with the evidence that only a log above has.

    A run in a fork repeats that evidence, and anchors it: what it repeats must be anchored itself.
    """
    redacted = [record for record in records if record.is_redacted]
    own = {record.hash for record in records} if redacted else set()
    try:
        found = await find_inherited_evidence(store, session, redacted)
    except Corrupt:  # reported for that log
        found = []
    return {
        each.seq: [
            record
            for record in found
            if isinstance(record.event, ContentRedacted)
            and record.event.record_hash == each.hash
            and record.hash not in own
        ]
        for each in redacted
    }


def _list_redactions(records: Sequence[Record]) -> Iterator[str]:
    for event in (record.event for record in records):
        if isinstance(event, ContentRedacted):
            place = f"{event.field} of record {event.record}" if event.field else f"record {event.record}"
            yield f"{place} was redacted by {event.by or 'an unnamed person'}: {event.reason or 'no reason given'}"


def _list_unproved_redactions(
    session: str, records: Sequence[Record], heads: frozenset[str]
) -> Iterator[Problem]:
    """A redaction anchors itself: one without an anchor was not made by Bridle, or without these anchors."""
    for record in records:
        event = record.event
        if isinstance(event, ContentRedacted) and record.hash not in heads:
            text = f"record {event.record} was replaced by a redaction (record {record.seq}) that is not anchored"
            yield Problem(kind="anchor", session=session, seq=event.record, text=text)


def _list_later_redactions(session: str, records: Sequence[Record], seq: int) -> Iterator[Problem]:
    for record in records[seq:]:
        event = record.event
        if isinstance(event, ContentRedacted) and event.record <= seq:
            text = (
                f"record {event.record} was replaced by a redaction (record {record.seq}) after the given head, by "
                f"{event.by or 'an unnamed person'}: {event.reason or 'no reason given'}"
            )
            yield Problem(kind="anchor", session=session, seq=event.record, text=text)


async def _verify_blobs(store: Store, session: str, record: Record) -> list[Problem]:
    found = []
    for hash_ in record.event.required_blobs:
        text = ""
        try:
            if await store.get_blob(hash_) is None:
                text = f"record {record.seq} refers to content {hash_}, which is missing"
        except Corrupt as error:
            text = f"record {record.seq} refers to content that was changed: {error}"
        if text:
            found.append(Problem(kind="blob", session=session, seq=record.seq, text=text))
    return found


async def _verify_snapshot(
    store: Store, session: str, folded: FoldedLog, problems: list[Problem]
) -> tuple[str, ...]:
    """Compare the state that the snapshot gives with the one that the records give; return why it is not used."""
    assert supports(store, SnapshotStore)
    loaded = LoadedRecords()
    await loaded.read(store, session)
    if loaded.unfit:
        return (f"its snapshot is not used here: {loaded.unfit}",)
    if loaded.covered and loaded.fold() != folded:
        remedy = store.explain_snapshot_removal(session)
        text = f"the snapshot of records 1 to {loaded.covered} {FORGED_SNAPSHOT} {remedy}"
        problems.append(Problem(kind="snapshot", session=session, text=text))
    return ()


def _explain_anchor(session: str, anchor: Anchor, length: int, *, is_there: bool) -> Problem:
    if is_there:
        text = f"record {anchor.seq} or one before it was rewritten: its hash is not the anchored one"
    else:
        text = f"the log has {length} records, and record {anchor.seq} was anchored: its end was cut off"
    return Problem(kind="anchor", session=session, seq=anchor.seq if is_there else length + 1, text=text)
