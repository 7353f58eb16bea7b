"""A folded log as bytes, so that a long log need not be folded again: a snapshot.

A snapshot is derived from the log and never replaces it. Messages are not copied: each names the records that contain
its parts. Messages that differ from their records are kept whole, and so is the rest of the state, which contains the
prompt of the last run and the pending calls.

    encode_snapshot(reader, contents)     the reader after a record -> bytes
    decode_snapshot(data)                 those bytes -> the snapshot, whose `sources` are the records that it needs
    restore_reader(snapshot, contents)    the snapshot and their parts -> an equal reader
"""

from collections.abc import Mapping
from itertools import chain

import msgspec
from msgspec.structs import force_setattr, replace

from bridle.core.recovery.log_repair import LogReader
from bridle.core.state import State
from bridle.values import events as e
from bridle.values.base import Value
from bridle.values.message import Message, Part, ToolCall, ToolResult, Transcript
from bridle.values.settings import Settings

Contents = Mapping[int, tuple[Part, ...]]
"""Parts of records, by the number of the record."""


class FoldSnapshot(Value, kw_only=True):
    """A `LogReader`, without the parts of messages that its records contain."""

    state: State
    """The state without its messages."""
    messages: tuple[Message, ...]
    """Messages of the transcript, then those that occur in views only."""
    parts: tuple[tuple[int | Part, ...], ...]
    """The parts of each message: the number of a record that contains them, or the part itself."""
    transcript_count: int
    view: tuple[tuple[int, int], ...]
    request_view: tuple[tuple[int, int], ...]
    """The views of the session and of its last request, as ranges of `messages`."""
    shares_settings: bool
    """The last request had the current settings."""
    repairs: tuple[str, ...]
    call_ids: tuple[str, ...]
    aliases: dict[str, tuple[str, ...]]
    reply_number: int
    record_digests: tuple[tuple[int, str], ...] = ()
    """Digests of the records that were folded: of how many, after those before."""

    @property
    def sources(self) -> set[int]:
        """Records whose parts are needed to restore the reader."""
        return {part for parts in self.parts for part in parts if isinstance(part, int)}


class _ReplyContent(msgspec.Struct):
    parts: tuple[Part, ...] = ()


class _RecordContent(msgspec.Struct):
    """The content of any event that adds to the conversation; other fields are skipped."""

    parts: tuple[Part, ...] = ()
    reply: _ReplyContent | None = None
    result: ToolResult | None = None


_encode = msgspec.msgpack.Encoder(decimal_format="string").encode
_decode = msgspec.msgpack.Decoder(FoldSnapshot).decode
_decode_content = msgspec.json.Decoder(_RecordContent).decode


def record_parts(event: e.Event) -> tuple[Part, ...]:
    """Parts that the event adds to the conversation, if it is of a kind that snapshots refer to."""
    match event:
        case e.Prompted():
            return event.parts
        case e.ModelReplied():
            return event.reply.parts
        case e.ToolFinished():
            return (event.result,)
        case _:
            return ()


def encode_snapshot(
    reader: LogReader, contents: Contents, record_digests: tuple[tuple[int, str], ...] = ()
) -> bytes:
    """The reader as bytes; `contents` are the parts of all records that it has applied, or of those in use."""
    state, last = reader.state, reader.state.cache.last_request
    transcript = state.conversation.transcript.messages
    table = _MessageTable(transcript)
    shares_settings = last is not None and last.settings == state.settings
    snapshot = FoldSnapshot(
        state=_replace_messages(state, (), (), (), Settings() if shares_settings else None),
        view=table.add_view(state.conversation.view),
        request_view=table.add_view(last.view if last is not None else ()),
        messages=(),
        parts=(),
        transcript_count=len(transcript),
        shares_settings=shares_settings,
        repairs=tuple(reader.repairs),
        call_ids=tuple(sorted(reader.call_ids)),
        aliases={name: tuple(ids) for name, ids in reader.aliases.items()},
        reply_number=reader.reply_number,
        record_digests=record_digests,
    )
    owners = {_part_key(parts[0]): seq for seq, parts in contents.items() if parts}
    snapshot = replace(
        snapshot,
        messages=tuple([replace(message, parts=()) for message in table.messages]),
        parts=tuple([_refer_to_records(message.parts, owners, contents) for message in table.messages]),
    )
    return _encode(snapshot)


def decode_snapshot(data: bytes) -> FoldSnapshot:
    snapshot: FoldSnapshot = _decode(data)
    return snapshot


def decode_parts(data: bytes) -> tuple[Part, ...]:
    """`record_parts` of the event with this data."""
    content = _decode_content(data)
    if content.reply is not None:
        return content.reply.parts
    return (content.result,) if content.result is not None else content.parts


def restore_reader(snapshot: FoldSnapshot, contents: Contents) -> LogReader:
    """The reader that was encoded; `contents` are the parts of the records in `sources`.

    The messages of the snapshot get their parts, so it can be restored once: copies of them would take time and memory.
    """
    messages = list(snapshot.messages)
    for message, parts in zip(messages, snapshot.parts, strict=True):
        force_setattr(message, "parts", _resolve_parts(parts, contents))
    transcript = tuple(messages[: snapshot.transcript_count])
    is_unchanged = snapshot.view == ((0, len(transcript)),)
    state = _replace_messages(
        snapshot.state,
        transcript,
        transcript if is_unchanged else _pick_ranges(messages, snapshot.view),
        _pick_ranges(messages, snapshot.request_view),
        snapshot.state.settings if snapshot.shares_settings else None,
    )
    return LogReader(state, snapshot.repairs, snapshot.call_ids, snapshot.aliases, snapshot.reply_number)


class _MessageTable:
    """All messages of a state, each once."""

    def __init__(self, transcript: tuple[Message, ...]) -> None:
        self.messages = list(transcript)
        self._places = {id(message): place for place, message in enumerate(transcript)}

    def add_view(self, view: tuple[Message, ...]) -> tuple[tuple[int, int], ...]:
        """The view as ranges of `messages`, to which its own messages are added."""
        ranges: list[tuple[int, int]] = []
        for message in view:
            place = self._places.setdefault(id(message), len(self.messages))
            if place == len(self.messages):
                self.messages.append(message)
            if ranges and ranges[-1][1] == place:
                ranges[-1] = (ranges[-1][0], place + 1)
            else:
                ranges.append((place, place + 1))
        return tuple(ranges)


def _replace_messages(
    state: State,
    transcript: tuple[Message, ...],
    view: tuple[Message, ...],
    request_view: tuple[Message, ...],
    request_settings: Settings | None,
) -> State:
    last = state.cache.last_request
    if last is not None:
        changed = {"settings": request_settings} if request_settings is not None else {}
        last = replace(last, view=request_view, **changed)
    return replace(
        state,
        conversation=replace(state.conversation, transcript=Transcript(messages=transcript), view=view),
        cache=replace(state.cache, last_request=last),
    )


def _part_key(part: Part) -> object:
    # The fold keeps parts as they are, except that it may make calls and results again.
    if isinstance(part, ToolResult):
        return ToolResult, part.call_id
    return (ToolCall, part.id) if isinstance(part, ToolCall) else id(part)


def _refer_to_records(
    parts: tuple[Part, ...], owners: Mapping[object, int], contents: Contents
) -> tuple[int | Part, ...]:
    """These parts, with the number of a record in place of all parts of that record."""
    found: list[int | Part] = []
    place = 0
    while place < len(parts):
        seq = owners.get(_part_key(parts[place]))
        if seq is not None and parts[place : place + len(contents[seq])] == contents[seq]:
            found.append(seq)
            place += len(contents[seq])
        else:
            found.append(parts[place])
            place += 1
    return tuple(found)


def _resolve_parts(parts: tuple[int | Part, ...], contents: Contents) -> tuple[Part, ...]:
    resolved: tuple[Part, ...] = ()
    for part in parts:
        resolved += contents[part] if isinstance(part, int) else (part,)
    return resolved


def _pick_ranges(messages: list[Message], ranges: tuple[tuple[int, int], ...]) -> tuple[Message, ...]:
    return tuple(chain.from_iterable(messages[start:stop] for start, stop in ranges))
