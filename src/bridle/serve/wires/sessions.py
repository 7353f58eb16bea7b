"""Finds the session that a request continues.

    previous_response_id, thread   named by the client; its messages are new
    a digest of the conversation   what the client has seen decides, also if it names a session (`x-bridle-session`)
    the ids of its tool calls      ours contain the session; a conversation with them may differ from it in the texts
                                   that the model wrote beside its calls
    the header `x-bridle-session`  for a request without a conversation: the end of that session

A client that edits an earlier message or asks for another answer has left the session at that point: it gets a fork,
or a new session if no reply of the session ends there. The index of digests is in memory and bounded; what it does
not have is derived from the logs (`ClientView`) of the sessions that were updated since it looked.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterable
from secrets import token_hex
from typing import NamedTuple

from bridle.ports.store import Store
from bridle.run.archive.sessions import list_sessions
from bridle.run.replay.replay_session import read_records
from bridle.run.validate_input import is_generated_id
from bridle.values.errors import Corrupt, MisuseError, SessionNotFound
from bridle.values.events import Imported, Prompted
from bridle.values.message import Message

from .client_view import ClientView, read_client_view
from .conversation import digest_opening

PLACES_MAX = 20_000
"""Keys of conversations that are remembered."""
SESSIONS_FIRST, SESSIONS_READ_MAX = 50, 3_200
"""Sessions that are listed at once, and at most; older ones are not searched for a conversation."""
SESSIONS_WITHOUT_ROOM_MAX = 50
"""Of those whose places are not remembered, the number that is searched."""
OPENING_RECORDS = 6
"""Records at the beginning of a log among which its first prompt is."""
REPLY_ID_BYTES = 8
SESSION_HEADER = "x-bridle-session"
_CALL_ID = re.compile(r"call_(?P<session>[0-9a-z-]+)_(?P<call>[a-z]\d+_\d+)")
_REPLY_ID = re.compile(r"(resp|msg)_(?P<session>[0-9a-z-]+)_(?P<number>\d{1,9})_[0-9a-f]+")


class SessionPlace(NamedTuple):
    """A point in a session."""

    session: str
    messages: int | None
    """Number of messages of its transcript there; None for its end."""
    is_imported: bool = False
    """True for the end of an imported conversation: only a request that is sent again continues there."""
    is_first: bool = False
    """True for the session of a first request that failed: only that request, sent again, continues there."""


class SessionIndex:
    """The latest places of conversations, by digest or by the id of a reply."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._places: OrderedDict[str, SessionPlace] = OrderedDict()
        self._read: dict[str, int] = {}
        self._read_until = 0.0
        self._openings: dict[str, str] = {}
        self._reading = asyncio.Lock()
        self._claimed: set[str] = set()

    def remember(self, key: str, place: SessionPlace, names: Iterable[str] = ()) -> None:
        """Remember a place by a key, also for clients that name one of these sessions."""
        for each in _list_keys(key, names):
            self._places.pop(each, None)
            self._places[each] = place
        while len(self._places) > PLACES_MAX:
            _, lost = self._places.popitem(last=False)
            self._read.pop(lost.session, None)
            self._read_until = 0.0

    def forget(self, key: str) -> None:
        self._places.pop(key, None)

    def find(self, key: str) -> SessionPlace | None:
        return self._places.get(key)

    async def find_digest(self, digest: str, name: str, opening: str) -> SessionPlace | None:
        """The place after a conversation; in the session of this name or a fork of it, if there is a name.

        `opening` is the digest of how the conversation begins (`digest_opening`).
        """
        key = _name_key(digest, name) if name else digest
        if (found := self._places.get(key)) is not None:
            return found
        async with self._reading:
            found = self._places.get(key) or await self._search_logs(key, opening)
            if found is None and name and name not in self._read:
                found, _ = self._remember_log(name, await read_view(self._store, name), key)
            return found

    async def _search_logs(self, key: str, opening: str) -> SessionPlace | None:
        """Read the logs that the index does not have, the latest first, up to one with this key.

        Of those that begin in another way, only the beginning is read, once. Those for which there is no room are read
        each time, so that their number is limited.
        """
        if len(self._read) > 2 * SESSIONS_READ_MAX:
            self._read_until = 0.0
        limit, without_room, are_others = SESSIONS_FIRST, set[str](), False
        while True:
            infos = await list_sessions(self._store, limit)
            for info in infos:
                is_known = self._read.get(info.id) == info.length or info.id in without_room
                if is_known or info.updated_at < self._read_until:
                    continue
                if await self._read_opening(info.id) not in ("", opening):
                    are_others = True
                    continue
                view = await read_view(self._store, info.id)
                found, has_room = self._remember_log(info.id, view, key)
                if has_room:
                    self._read[info.id] = info.length
                else:
                    without_room.add(info.id)
                if found is not None or len(without_room) == SESSIONS_WITHOUT_ROOM_MAX:
                    return found
            is_all = len(infos) < limit or limit >= SESSIONS_READ_MAX
            if is_all or infos[-1].updated_at < self._read_until:
                break
            limit *= 4
        if is_all:
            self._read = {info.id: self._read[info.id] for info in infos if info.id in self._read}
        if not without_room and not are_others:
            self._read_until = max((info.updated_at for info in infos), default=0.0)
        return None

    async def _read_opening(self, session: str) -> str:
        """The digest of how a conversation begins; empty if the first records of its log do not say it."""
        if session not in self._openings:
            if len(self._openings) > 2 * SESSIONS_READ_MAX:
                self._openings.clear()
            self._openings[session] = await read_opening(self._store, session)
        return self._openings[session]

    def _remember_log(
        self, session: str, view: ClientView | None, key: str
    ) -> tuple[SessionPlace | None, bool]:
        """Remember the replies of a log, the latest first, as older than all that is known, while there is room.

        Returns the place with this key, and whether there was room for the last reply.
        """
        found, has_room = None, True
        for reply in reversed(view.replies) if view is not None else ():
            assert view is not None
            place = SessionPlace(session, reply.messages, reply.is_imported)
            for each in _list_keys(reply.digest, view.names):
                found = place if each == key else found
                if each not in self._places and len(self._places) < PLACES_MAX:
                    self._places[each] = place
                    self._places.move_to_end(each, last=False)
            has_room = has_room and (reply is not view.replies[-1] or reply.digest in self._places)
        return found, has_room

    async def find_reply(self, reply_id: str) -> SessionPlace | None:
        """The place after a reply; after a restart, by the session and the number that its id contains."""
        known, found = self.find(reply_id), _REPLY_ID.fullmatch(reply_id)
        if known is not None or found is None:
            return known
        view = await read_view(self._store, found["session"])
        own = view.own_replies[int(found["number"]) :] if view is not None else []
        return SessionPlace(found["session"], own[0].messages if own else None)

    def mark_sent(self, place: SessionPlace) -> None:
        """Remember that a client got the reply that ends there."""
        self.remember(f"sent {place.messages} {place.session}", place)

    def is_sent(self, session: str, messages: int) -> bool:
        return f"sent {messages} {session}" in self._places

    def claim(self, session: str) -> bool:
        """Reserve a session for a request that is about to start a run in it; False if another one has."""
        if session in self._claimed:
            return False
        self._claimed.add(session)
        return True

    def release(self, session: str) -> None:
        self._claimed.discard(session)


def _list_keys(key: str, names: Iterable[str]) -> tuple[str, ...]:
    return (key, *(_name_key(key, name) for name in names))


def _name_key(digest: str, name: str) -> str:
    return f"{digest} {name}"


async def read_view(store: Store, session: str) -> ClientView | None:
    """The log of a session as its client saw it; None if there is no such session or it cannot be read."""
    try:
        return await read_client_view(await read_records(store, session))
    except (MisuseError, SessionNotFound, Corrupt):
        return None


async def read_opening(store: Store, session: str) -> str:
    """The digest of how a conversation begins, from the first records of its log; empty if they do not say it."""
    try:
        records = await store.read(session, limit=OPENING_RECORDS)
    except Corrupt:
        return ""
    for record in records:
        match record.event:
            case Imported(messages=messages) if any(each.role == "assistant" for each in messages):
                return digest_opening(messages)
            case Prompted(parts=parts):
                return digest_opening((Message(role="user", parts=parts),))
    return ""


def make_reply_id(prefix: str, session: str, number: int) -> str:
    """A new id of a reply: contains the session, unless the client named that itself, and its number there."""
    name = f"{session}_{number}_" if is_generated_id(session) else ""
    return f"{prefix}{name}{token_hex(REPLY_ID_BYTES)}"


def make_call_id(session: str, call_id: str) -> str:
    """Id of a call for the client: contains the session, unless the client named that itself."""
    return f"call_{session}_{call_id}" if is_generated_id(session) else f"call_{call_id}"


def read_call_id(wire_id: str) -> tuple[str, str]:
    """The session and our id of a call; without a session if the id contains none."""
    found = _CALL_ID.fullmatch(wire_id)
    return (found["session"], found["call"]) if found else ("", wire_id.removeprefix("call_"))


def find_called_session(wire_ids: Iterable[str]) -> str:
    """The session that made all of these calls; empty if there is none or more than one."""
    sessions = {read_call_id(wire_id)[0] for wire_id in wire_ids}
    return sessions.pop() if len(sessions) == 1 else ""
