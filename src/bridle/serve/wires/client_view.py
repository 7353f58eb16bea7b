"""The log of a session as a client of a wire saw it: its own messages, and one reply for each run.

A client holds the conversation and the server does not remember which one is which session: that is derived from the
log, so that it survives the server and is the same in all servers of a store.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bridle.core.hooks import change_reply
from bridle.core.recovery.growing import settle_conversation
from bridle.core.state import State
from bridle.run.calls.approval import list_external_calls
from bridle.run.recovery.session_log import fold_records
from bridle.values.events import (
    Configured,
    Forked,
    Imported,
    ModelAsked,
    ModelReplied,
    Prompted,
    RunEnded,
    RunStop,
    ToolFinished,
)
from bridle.values.hooks import HookDecided
from bridle.values.message import Message, PromptPart, Reply, Text
from bridle.values.record import Record
from bridle.values.result import AttemptRestarted
from bridle.values.settings import Settings

from .conversation import ConversationDigest, describe_result

WAITS_FOR_PERSON = (
    "This run waits for a person: {reason}. That call goes on only after the answer; calls before it may have run."
    " After the answer, the session {session} continues; a new message here gives the waiting call up."
)


REFUSED = "The agent does not give this answer."
"""Text in the place of an answer that a hook refused: some wires have no other sign of a refusal."""
BROKEN_STOPS = ("failed", "budget")
"""Ends of a run that are a failure for the client, also after some text."""


def describe_wait(reason: str, session: str) -> str:
    """The text that ends the reply of a run that waits for a person."""
    return WAITS_FOR_PERSON.format(reason=reason, session=session)


def show_answer(answer: str, *, is_wrapped: bool) -> str:
    """The answer as JSON for a client, which does not know that the model writes a list or a number in an object."""
    if not is_wrapped:
        return answer
    try:
        held = msgspec.json.decode(answer, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:  # no answer: the words of a refusal
        return answer
    return bytes(held["value"]).decode() if set(held) == {"value"} else answer


def is_reviewed(settings: Settings) -> bool:
    """True if hooks or validators decide about the texts of the model, which reach a client only after that."""
    return bool(settings.validators) or not settings.hook_points.isdisjoint(("after_model", "on_end"))


def review_reply(replies: list[Reply], event: HookDecided) -> None:
    """Apply the decision of an `after_model` hook to the last reply; one that was not accepted loses its parts."""
    if event.point != "after_model" or not replies or event.action == "continue":
        return
    is_changed = event.action in ("change", "answer")
    replies[-1] = change_reply(replies[-1], event) if is_changed else replace(replies[-1], parts=())


def list_accepted_texts(replies: Sequence[Reply], stop: RunStop | None, answer: str) -> list[str]:
    """The texts of a reviewed run: those beside calls, and the answer, which may have been changed or sent back."""
    steps = [reply.text for reply in replies if reply.calls]
    if stop == "refused":
        return [*steps, answer or REFUSED]
    return [*steps, answer] if stop == "done" else steps


class SeenReply(NamedTuple):
    """The end of a reply in a log."""

    digest: str
    """Of the conversation up to it."""
    messages: int
    """Number of messages of the transcript there."""
    is_imported: bool = False
    """True for the end of an imported conversation, which other sessions may share."""
    is_broken: bool = False
    """True for the text before a failure: the client may keep it, or send its request again."""
    loose_digest: str = ""
    """Of the same conversation without the texts of the model beside calls."""


class RecordedTurn:
    """Messages of a client after a reply, as far as they are in the log, and the run that followed."""

    def __init__(self) -> None:
        self.results: dict[str, tuple[str, bool, list[str]]] = {}
        """Results of calls, described (`describe_result`), by our call id."""
        self.prompt: tuple[PromptPart, ...] | None = None
        self.replies: list[Reply] = []
        """Replies of the model since then."""
        self.texts: list[str] = []
        """Texts that the client saw since then, also those of replies that broke off."""
        self.partial = ""
        """Text of a run that failed, which the reply of the resumed run continues."""

    @property
    def is_empty(self) -> bool:
        return not self.results and self.prompt is None and not self.replies


class ClientView:
    """Reads a log, record by record."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}
        """The session and those that it was forked from."""
        self.agent = ""
        """Agent of the first prompt."""
        self.replies: list[SeenReply] = []
        self.turn, self.ended = RecordedTurn(), RecordedTurn()
        """The messages after the last reply, and those that led to it."""
        self.state = State()
        self._digest: ConversationDigest | None = None
        self._broken: Message | None = None
        self._imported: Sequence[Message] = ()
        self._ending: RunEnded | None = None

    @property
    def own_replies(self) -> list[SeenReply]:
        """Complete ones of runs, in the order of their numbers (`make_reply_id`)."""
        return [reply for reply in self.replies if not reply.is_imported and not reply.is_broken]

    def find_turn(self, messages: int | None) -> RecordedTurn | None:
        """The messages after a place in the log; None if the log has a complete reply after it."""
        last = self.replies[-1] if self.replies else None
        if last is not None and last.is_broken and last.messages == messages:
            return RecordedTurn()
        complete = [reply for reply in self.replies if not reply.is_broken]
        is_at_end = messages is None or (bool(complete) and complete[-1].messages == messages)
        return self.turn if is_at_end else None

    def count_replies(self, messages: int | None) -> int:
        """Number of replies of runs up to a place."""
        return sum(messages is None or reply.messages <= messages for reply in self.own_replies)

    def observe(self, record: Record, before: State, after: State) -> None:
        if not isinstance(record.event, HookDecided):
            self.end_reply()
        self.state = after
        match record.event:
            case Configured(session=session) if session:
                self.names[session] = None
            case Forked(session=session, parent=parent):
                self.names |= {parent: None, session: None}
            case Imported(messages=messages):
                self._imported = messages
            case Prompted():
                self._take_prompt(record.event, after)
            case ToolFinished(source="caller", result=result) if self._digest is not None:
                text_hash = record.event.stored_result.hash if record.event.stored_result else ""
                self.turn.results[result.call_id] = describe_result(result, text_hash)
                self._digest.add_result(result, text_hash)
            case ModelReplied(summarizes_until="", reply=reply):
                if self.turn.partial:
                    reply = replace(reply, parts=(Text(text=self.turn.partial), *reply.parts))
                self.turn.replies.append(reply)
                self.turn.texts.append(reply.text)
                self.turn.partial = ""
            case ModelAsked(summarizes_until="") if partial := before.run.attempt.partial_text:
                self.turn.texts += partial, AttemptRestarted(attempt=0, reason="", is_text_void=True).text
            case HookDecided():
                review_reply(self.turn.replies, record.event)
            case RunEnded():
                self._ending = record.event

    def _take_prompt(self, event: Prompted, after: State) -> None:
        if self._digest is None:
            self.agent = after.settings.name
            self._digest = ConversationDigest((self.agent, event.tenant, event.caller)).add(*self._imported)
            if self._imported and self._imported[-1].role == "assistant":
                self.replies.append(SeenReply(self._digest.value, len(self._imported), is_imported=True))
        if self._broken is not None:  # the client goes on after the text that it has
            self._digest.add(self._broken)
            self._broken, self.turn = None, RecordedTurn()
        self.turn.prompt = event.parts
        self._digest.add(Message(role="user", parts=event.parts))

    def end_reply(self) -> None:
        """The end of a run and of its hooks, of which the client saw a reply unless there was no text and no call."""
        if self._ending is None:
            return
        event, after, self._ending = self._ending, self.state, None
        end, is_broken = after.run.end, event.stop in BROKEN_STOPS
        output = after.settings.output
        answer = show_answer(end.answer, is_wrapped=output is not None and output.is_wrapped)
        texts = self.turn.texts if output is None else [answer]
        partial = self.turn.partial + event.partial_text
        if is_reviewed(after.settings):
            if is_broken:
                return
            steps = self.turn.replies if output is None else ()
            texts, partial = list_accepted_texts(steps, end.stop, answer), ""
        calls = list_external_calls(after) if event.stop == "waiting" else ()
        is_for_person = event.stop == "waiting" and not calls
        ours = describe_wait(event.reason, next(reversed(self.names), "")) if is_for_person else ""
        parts = [Text(text=text) for text in (*texts, partial, ours) if text.strip()]
        if self._digest is None or not (parts or calls):
            return
        message = Message(role="assistant", parts=(*parts, *calls))
        count = len(after.conversation.transcript.messages)
        loose = self._digest.compute_with(message, is_loose=True)
        seen = SeenReply(self._digest.compute_with(message), count, is_broken=is_broken, loose_digest=loose)
        if self.replies and self.replies[-1].is_broken:  # the client has the text of the next one
            self.replies.pop()
        self.replies.append(seen)
        if is_broken:
            self._broken, self.turn.partial = message, partial
            self.turn.texts = [reply.text for reply in self.turn.replies]
            return
        self._digest.add(message)
        self._broken = None
        self.ended, self.turn = self.turn, RecordedTurn()


async def read_client_view(records: Sequence[Record]) -> ClientView:
    view = ClientView()
    await fold_records(records, view.observe)
    view.end_reply()
    view.state = settle_conversation(view.state)
    return view
