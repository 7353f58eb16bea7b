"""The run that answers a request: in the session that the request continues, in a fork of it, or in a new one."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from bridle.core.context.view import make_legal
from bridle.core.state import State
from bridle.run.agent import Agent
from bridle.run.calls.approval import list_external_calls
from bridle.run.context.made_context import Owner
from bridle.run.stream import Stream
from bridle.run.validate_input import WaitingCaller, is_generated_id, new_session_id
from bridle.serve.identity import HOLDER, Access, find_owner
from bridle.values.errors import Failure, FailureKind, MisuseError, ProviderError
from bridle.values.message import Message, Reply, ToolResult
from bridle.values.request import Request
from bridle.values.result import History

from .client_view import ClientView, RecordedTurn
from .conversation import (
    ClientResult,
    ClientTurn,
    ConversationDigest,
    describe_result,
    digest_conversation,
    digest_first_request,
    digest_opening,
    refuse_lone_results,
    split_conversation,
)
from .options import ClientOptions, complete_options, keep_options
from .sessions import SessionIndex, SessionPlace, find_called_session, read_call_id, read_view

BOTH_GIVEN = (
    "The input has messages of the assistant besides 'previous_response_id'; send either the whole conversation or"
    " the id with what is new."
)
OTHER_AGENT = (
    "Session '{session}' belongs to the model '{agent}'; send the request to that model, or name no session."
)
IMPORT_LOSES = "strict mode: the conversation so far cannot be carried as it is"
OTHER_HISTORY = "session {session!r}, which has another history: the conversation got a session of its own"
CHANGED_TEXT = "text beside tool calls, which is not what the model wrote there"
ANSWERED_STOPS = ("done", "refused", "waiting", "paused")
"""Ends of a run whose reply can be given again."""


class WireCaller(NamedTuple):
    """The user behind a request."""

    name: str = ""
    tenant: str = ""
    access: Access = HOLDER

    @property
    def recorded_name(self) -> str:
        """The caller of its runs, which is gone after a restart."""
        return WaitingCaller(self.name) if self.access.is_proven else self.name


class NamedPlace(NamedTuple):
    """Names in the request of a client besides the conversation; empty if there are none."""

    session: str = ""
    reply_id: str = ""
    keeps: frozenset[str] = frozenset()
    """Options of the run that a continuation by `reply_id` takes from the request before, and does not send again."""
    lost_code: str = ""
    """The vendor's code if there is no such reply."""
    lost_words: str = "Previous response with id '{id}' not found."
    """The vendor's message then."""


class ClientRun(NamedTuple):
    """A request with the run that answers it, which has not started."""

    stream: Stream[Any]
    digest: ConversationDigest
    """Of the conversation as the client sent it; the next request begins with it and the reply."""
    names: tuple[str, ...]
    """Sessions that the client may name with its next request: the one of the run, and the one that it named."""
    number: int
    """Number of replies before this one in the session."""
    replies: tuple[Reply, ...] = ()
    """Replies that the run had before it failed or its process ended, if this continues it."""
    partial: str = ""
    """Text after them, which the next reply continues."""
    notes: tuple[str, ...] = ()
    """Parts of the request that are not used."""
    first_key: str = ""
    """Key of a request that has nothing else by which its session is found; empty if it has."""


class _Found(NamedTuple):
    """A request and the log that it continues."""

    place: SessionPlace
    view: ClientView
    turn: ClientTurn
    is_free: bool
    """False while another request uses the session."""
    is_sent: bool
    """True if a client got the last reply of the log, as far as this server knows."""

    @property
    def repeats_last_turn(self) -> bool:
        """True if the last reply of the log answers this very request, and no client got it."""
        replies, state = self.view.replies, self.view.state
        before = replies[-2].messages if len(replies) > 1 else None
        return (
            self.is_free
            and bool(replies)
            and before == self.place.messages
            and self.view.turn.is_empty
            and state.run.end.stop in ANSWERED_STOPS
            and (left := find_unrecorded(self.view.ended, self.turn)) is not None
            and left.is_empty
            and not self.is_sent
        )

    @property
    def number(self) -> int:
        """Number of replies before the one that answers this request."""
        if self.repeats_last_turn:
            return len(self.view.own_replies) - 1
        return self.view.count_replies(self.place.messages)


class _Opened(NamedTuple):
    """The run that continues a session, and what it said before; no run if there is none to continue."""

    stream: Stream[Any] | None
    said: RecordedTurn = RecordedTurn()
    notes: tuple[str, ...] = ()
    """What earlier requests of a resumed run lost: a run records each loss once, and a reply names all of its run."""


class TurnOpener:
    """Opens turns of one agent."""

    def __init__(
        self,
        name: str,
        agent: Agent[Any, Any],
        index: SessionIndex,
        find_context: Callable[[Access, Owner], Awaitable[object]],
        is_busy: Callable[[str], bool],
        *,
        forwards: bool = False,
    ) -> None:
        """`forwards`: the agent only forwards, and has done nothing that the client's conversation lacks."""
        self._name, self._agent, self._index, self._find_context = name, agent, index, find_context
        self._is_busy, self._forwards = is_busy, forwards

    @asynccontextmanager
    async def open(
        self,
        request: Request,
        options: ClientOptions,
        caller: WireCaller,
        named: NamedPlace,
        *,
        is_in_use: bool = False,
    ) -> AsyncIterator[ClientRun]:
        """Open a turn; its session is reserved for it until the caller has started the run and leaves this context.

        `is_in_use`: another server has a run in that session.
        """
        turn = split_conversation(request.messages)
        scope = self._name, caller.tenant, caller.name
        reply = await self._index.find_reply(named.reply_id) if named.reply_id else None
        is_used = await self._check_named(named, reply, turn, caller)
        place = reply if named.reply_id else await self._find_place(turn, scope, named)
        is_changed = False
        if place is None and not named.reply_id and not self._forwards:
            place = await self._find_called(turn, scope, named)
            is_changed = place is not None
        first_key = ""
        if place is None and not (named.reply_id or named.session or turn.head or turn.results):
            first_key = digest_first_request(scope, request)
            place = self._index.find(first_key)
        is_claimed = place is not None and self._index.claim(place.session)
        try:
            stream: Stream[Any] | None = None
            view = await read_view(self._agent.store, place.session) if place is not None else None
            said = RecordedTurn()
            notes: tuple[str, ...] = ()
            number = 0
            is_own = (
                place is not None and view is not None and await self._is_own(place.session, view, caller)
            )
            if place is not None and view is not None and is_own:
                is_free = is_claimed and not is_in_use and not self._is_busy(place.session)
                messages = len(view.state.conversation.transcript.messages)
                is_sent = self._index.is_sent(place.session, messages)
                found = _Found(place, view, turn, is_free, is_sent)
                kept = keep_options(self._agent, options, view.state.settings, named.keeps)
                stream, said, notes = await self._continue(found, kept, caller)
                number = found.number if stream is not None else 0
                notes += (CHANGED_TEXT,) if is_changed and stream is not None else ()
            elif named.reply_id:
                message = named.lost_words.format(id=named.reply_id)
                kind: FailureKind = "not_found" if named.lost_code else "forgotten"
                raise _not_found(kind, message, named.lost_code)
            if stream is None:
                refuse_lone_results(turn)
                notes = (OTHER_HISTORY.format(session=named.session),) if is_used else ()
                if turn.head and options.imported:
                    if options.is_strict:
                        raise MisuseError(f"{IMPORT_LOSES}: {'; '.join(options.imported)}")
                    notes += options.imported
                notes += options.import_notes if turn.head else ()
                stream = await self._begin("" if is_used else named.session, turn, options, caller)
            digest = ConversationDigest(scope).add(*request.messages)
            names = tuple({stream.session: None, **({named.session: None} if named.session else {})})
            yield ClientRun(
                stream, digest, names, number, tuple(said.replies), said.partial, notes, first_key
            )
        finally:
            if place is not None and is_claimed:
                self._index.release(place.session)

    async def _check_named(
        self, named: NamedPlace, reply: SessionPlace | None, turn: ClientTurn, caller: WireCaller
    ) -> bool:
        """True if the named session exists.

        Refuses one of another tenant or agent, and one that does not exist although its name is one of ours.
        """
        if named.reply_id and turn.head:
            raise ProviderError(Failure(kind="invalid", message=BOTH_GIVEN, status=400))
        session = reply.session if reply is not None else named.session
        view = await read_view(self._agent.store, session) if session else None
        is_own = view is not None and await self._is_own(session, view, caller)
        if named.session and not is_own and (view is not None or is_generated_id(session)):
            raise _not_found("invalid", f"Session '{session}' not found.")
        if is_own and view is not None and view.agent != self._name:
            message = OTHER_AGENT.format(session=session, agent=view.agent)
            raise ProviderError(Failure(kind="invalid", message=message, status=400))
        return view is not None

    async def _find_place(
        self, turn: ClientTurn, scope: tuple[str, ...], named: NamedPlace
    ) -> SessionPlace | None:
        if turn.head:
            digest = digest_conversation(scope, turn.head)
            return await self._index.find_digest(digest, named.session, digest_opening(turn.head))
        called = named.session or find_called_session(result.wire_id for result in turn.results)
        return SessionPlace(called, None) if called else None

    async def _find_called(
        self, turn: ClientTurn, scope: tuple[str, ...], named: NamedPlace
    ) -> SessionPlace | None:
        """The place in the session that made the last calls of a conversation, if only texts beside calls differ."""
        called = next((message.calls for message in reversed(turn.head) if message.calls), ())
        session = find_called_session(call.wire_id for call in called)
        view = await read_view(self._agent.store, session) if session else None
        if view is None or (named.session and named.session not in view.names):
            return None
        loose = ConversationDigest(scope).add(*turn.head).loose_value
        seen = next((each for each in reversed(view.replies) if each.loose_digest == loose), None)
        return SessionPlace(session, seen.messages) if seen is not None else None

    async def _continue(self, found: _Found, options: ClientOptions, caller: WireCaller) -> "_Opened":
        """The run in the session or in a fork of it, and what it said so far; no run if the results do not fit."""
        place, view, turn = found.place, found.view, found.turn
        session, state = place.session, view.state
        recorded = view.find_turn(place.messages)
        left = find_unrecorded(recorded, turn) if recorded is not None else None
        if place.messages is None and left is None:
            left = turn
        if found.repeats_last_turn:
            return await self._reopen(session, {}, state, options, caller, view.ended)
        if place.is_first and not found.is_free:  # sent twice at once: refused, because the session has a run
            return await self._reopen(session, {}, state, options, caller, RecordedTurn())
        if place.is_first and view.own_replies:  # the session went on without this client
            return _Opened(None)
        if left is None or (not found.is_free and place.messages is not None):
            if turn.results or place.is_imported:
                return _Opened(None)
            fork = await self._agent.fork(session, f"m{place.messages}", tenant=caller.tenant)
            return _Opened(await self._prompt(fork.session, turn, options, caller))
        if left.is_empty:  # the run failed, or its process ended
            return await self._reopen(session, {}, state, options, caller, view.turn)
        if place.is_imported:
            return _Opened(None)
        results = match_results(state, left.results)
        if results is None:
            return _Opened(None)
        if results and left.prompt:
            await self._agent.open_session(session).record_results(results, caller.tenant)
        elif not left.prompt:
            return await self._reopen(session, results, state, options, caller, view.turn)
        return _Opened(await self._prompt(session, turn, options, caller))

    async def _reopen(
        self,
        session: str,
        results: Mapping[str, ToolResult],
        state: State,
        options: ClientOptions,
        caller: WireCaller,
        said: RecordedTurn,
    ) -> "_Opened":
        """The run of the session, resumed."""
        stream = await self._resume(session, results, state, options, caller)
        return _Opened(stream, said, state.run.adjustments.recorded_notes)

    async def _is_own(self, session: str, view: ClientView, caller: WireCaller) -> bool:
        """True if the session is the caller's; one without an owner has no prompt yet, and is no tenant's."""
        owner = view.state.identity.owner
        if owner != caller.tenant and (owner is not None or caller.tenant):
            return False
        access = caller.access
        # guard: wire-session-of-caller
        return access.sessions != "own" or access.may_see(await find_owner(self._agent.store, session))

    async def _resume(
        self,
        session: str,
        results: Mapping[str, ToolResult],
        state: State,
        options: ClientOptions,
        caller: WireCaller,
    ) -> Stream[Any]:
        overridden = [override.option for override in state.settings.overrides]
        origin = state.run.origin
        context = await self._find_context(caller.access, Owner(origin.tenant, origin.caller))
        return self._agent.resume_stream(
            session,
            tenant=caller.tenant,
            results=results,
            context=context,
            **complete_options(self._agent, options.run, overridden),
        )

    async def _begin(
        self, session: str, turn: ClientTurn, options: ClientOptions, caller: WireCaller
    ) -> Stream[Any]:
        """A new session, with the conversation so far imported into it."""
        before = (*turn.head, *(message for message in turn.tail if message.role == "tool"))
        messages, repairs = make_legal(before)
        history = History(messages=messages, repairs=repairs) if messages else None
        return await self._prompt(
            session or new_session_id(self._agent.clock.now()), turn, options, caller, history, new=True
        )

    async def _prompt(
        self,
        session: str,
        turn: ClientTurn,
        options: ClientOptions,
        caller: WireCaller,
        history: History | None = None,
        *,
        new: bool = False,
    ) -> Stream[Any]:
        return self._agent.stream(
            turn.prompt,
            session,
            new=new,
            history=history,
            caller=caller.recorded_name,
            tenant=caller.tenant,
            context=await self._find_context(caller.access, Owner(caller.tenant, caller.name)),
            **options.run,
        )


def _not_found(kind: FailureKind, message: str, code: str = "") -> ProviderError:
    return ProviderError(Failure(kind=kind, message=message, status=404, code=code))


def find_unrecorded(recorded: RecordedTurn, turn: ClientTurn) -> ClientTurn | None:
    """The part of a turn that is not in the log yet; None if the log has something else in its place."""
    given, left = dict(recorded.results), []
    for each in turn.results:
        call_id, described = read_call_id(each.wire_id)[1], describe_result(each.result)
        if not each.wire_id:  # a wire without ids of calls
            call_id = next((known for known, other in given.items() if other == described), "")
        if call_id not in given:
            left.append(each)
        elif given.pop(call_id) != described:
            return None
    if given or (recorded.prompt is not None and left):
        return None
    if recorded.prompt is None:
        return turn._replace(results=tuple(left))
    sent = Message(role="user", parts=turn.prompt), Message(role="user", parts=recorded.prompt)
    is_same = digest_conversation((), sent[:1]) == digest_conversation((), sent[1:])
    return turn._replace(results=(), prompt=()) if is_same else None


def match_results(state: State, given: tuple[ClientResult, ...]) -> Mapping[str, ToolResult] | None:
    """The results by our call ids; None if one is for no waiting call, or a waiting call has none.

    A wire without ids of calls names the tool: its results are in the order of the calls.
    """
    waiting = {call.id: call for call in list_external_calls(state)}
    matched: dict[str, ToolResult] = {}
    for each in given:
        call_id = read_call_id(each.wire_id)[1]
        if call_id not in waiting:
            named = (
                call.id for call in waiting.values() if call.name == each.name and call.id not in matched
            )
            call_id = next(named, "") if not each.wire_id else ""
        if not call_id:
            return None
        matched[call_id] = each.result
    return matched if not given or len(matched) == len(waiting) else None
