"""Verifies sessions: their records, the content these refer to, what they mean, and their anchored heads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from bridle.core.recovery.log_repair import fold_log
from bridle.ports.store import PrunableStore, RepairableStore, SessionInfo, Store
from bridle.stores.anchors import Anchor, UnreadableLine
from bridle.stores.conflicts import RESERVED_PREFIXES
from bridle.values.base import Value
from bridle.values.calls import ContentRedacted
from bridle.values.errors import BridleError, Corrupt
from bridle.values.record import Record

ProblemKind = Literal["record", "torn", "blob", "fold", "anchor", "file"]


class Problem(Value):
    """Something in a store that is not what was written."""

    kind: ProblemKind
    text: str
    session: str = ""
    seq: int | None = None
    """The first record that is not as it was written, if that is known."""


class VerifiedSession(Value):
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
    texts = await store.check_file() if isinstance(store, PrunableStore) else ()
    problems = [Problem(kind="file", text=text) for text in texts]
    for session in sorted(anchors.keys() - {info.id for info in infos}):
        last = anchors[session][-1].seq
        text = f"session {session!r} had {last} records, and is not in this log any more"
        problems.append(Problem(kind="anchor", session=session, text=text))
    return sessions, problems


async def verify_session(
    store: Store, session: str, anchors: Sequence[Anchor] = (), heads: frozenset[str] = frozenset()
) -> VerifiedSession:
    """Verify a session with its anchors; `heads` are those of all sessions, because a fork shares records."""
    problems: list[Problem] = []
    records: Sequence[Record] = ()
    try:
        records = await store.read(session)
    except Corrupt as error:
        seq = error.last_good + 1 if error.last_good is not None else None
        problems.append(
            Problem(kind="torn" if error.torn else "record", session=session, seq=seq, text=str(error))
        )
        if isinstance(store, RepairableStore):
            records = await store.read_intact(session)
    problems += [each for record in records for each in await _verify_blobs(store, session, record)]
    repairs: tuple[str, ...] = ()
    try:
        # Logs of budgets, notes and control requests are no conversations.
        repairs = () if session.startswith(RESERVED_PREFIXES) else fold_log(records)[1]
    except BridleError as error:
        problems.append(Problem(kind="fold", session=session, text=f"the log cannot be folded: {error}"))
    hashes = {record.seq: record.hash for record in records}
    wrong = [anchor for anchor in anchors if hashes.get(anchor.seq) != anchor.head]
    if wrong:
        problems.append(_explain_anchor(session, wrong[0], len(records), is_there=wrong[0].seq in hashes))
    if anchors:
        problems += _list_unproved_redactions(session, records, heads | {anchor.head for anchor in anchors})
    return VerifiedSession(
        session=session,
        length=len(records),
        head=records[-1].hash if records else "",
        anchored=max((anchor.seq for anchor in anchors if anchor not in wrong), default=0),
        problems=tuple(problems),
        repairs=repairs,
        redactions=tuple(_list_redactions(records)),
    )


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


def _explain_anchor(session: str, anchor: Anchor, length: int, *, is_there: bool) -> Problem:
    if is_there:
        text = f"record {anchor.seq} or one before it was rewritten: its hash is not the anchored one"
    else:
        text = f"the log has {length} records, and record {anchor.seq} was anchored: its end was cut off"
    return Problem(kind="anchor", session=session, seq=anchor.seq if is_there else length + 1, text=text)
