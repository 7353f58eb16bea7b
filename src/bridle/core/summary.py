"""Old turns in a few words: how a model is asked for them, and what becomes of its answer.

It is asked on the one road on which models are asked: the same tools, instructions and messages as ever,
so that the provider reads what it has kept, with one message more that asks for the summary.  What
comes back is paid for like any reply and is no part of the conversation.  When everything is too long even
for that, the first turns are summarised alone, and then the summary with the next ones.

Nothing is said to the model about tools but not to call them: forbidding calls would be another prompt to
some providers.  One that calls all the same is asked again with calls forbidden.
"""

from msgspec.structs import replace

from ..values.errors import Failure
from ..values.event import ModelAsked, ModelReplied
from ..values.message import Message, Reply, Stop
from ..values.model import Model
from ..values.parts import Text
from ..values.request import Request, ToolChoice
from . import precis
from .budget import booked, plus
from .context import assemble, tool_choice_of
from .fallback import with_model
from .gathering import own_words
from .handoff import fitted, seen
from .misses import answered_aside, sent
from .squeeze import Squeeze
from .state import State
from .window import window_tokens

ASK = """\
Pause the work here and write down what is needed to go on with it. What you write will stand in place of \
the conversation above, except for the user's own messages and the latest steps, which stay as they are. \
Do not call a tool; answer with the summary and nothing else.

Say"""
MATTER = """\
 briefly, with names, numbers, paths and ids exactly as they are:
- what has been done, in order, and what came of it
- what was found out and decided, and why
- what failed or must not be repeated
- what is open, and what comes next
At most {words} words."""
LEAD = (
    "[The beginning of this conversation was shortened. What the user said in it stands here word for word;"
    " a summary of the rest follows.]"
)
LABEL = "[The user:]"
HEADING = "[Summary of the steps up to here, written by the model; these are not the user's words:]\n"
WORDS_MAX = 800
WORDS_SHARE = 0.05
"""Of a small window, in words."""
UNUSABLE = (Stop.REFUSED, Stop.FILTERED)


def summariser(state: State) -> Model:
    """Who is asked for a summary now."""
    wish = state.settings.compaction
    other = wish.summariser if wish is not None and not state.run.squeeze.own else None
    return other or state.settings.model


def asked_now_by(state: State, seat: str) -> State:
    """The state as it is for whoever is asked for a summary: another model has other prices and limits."""
    wish = state.settings.compaction
    other = wish.summariser if wish is not None else None
    if not seat or other is None or other.seat != seat:
        return state
    return replace(state, settings=with_model(state.settings, other))


def summary_words(state: State) -> int:
    """How long a summary may be."""
    return min(WORDS_MAX, int(WORDS_SHARE * window_tokens(state)))


def matter(state: State) -> str:
    """What a summary is to be about."""
    wish = state.settings.compaction
    more = f"\n\n{wish.words.strip()}" if wish is not None and wish.words.strip() else ""
    return MATTER.format(words=summary_words(state)) + more


def request_for(state: State, messages: tuple[Message, ...]) -> Request:
    """The question for a summary of these messages, which are the view or its beginning."""
    model = summariser(state)
    words = (Text(text=ASK + matter(state)),)
    question = Message(role="user", parts=words, at=state.now, provenance="harness")
    # What is asked aside must not be added to a conversation object.
    aside = replace(state.settings, chain=state.settings.chain is True)
    asked = replace(state, settings=aside)
    if model.seat != state.settings.model.seat:
        asked = replace(asked_now_by(state, model.seat), run=replace(state.run, reasoning=""))
        view, _, _ = seen(state.transcript.messages, state.recorded, model)
        # Its view may be longer: what one provider made of old turns is nothing to another.
        end = next((at + 1 for at, each in enumerate(view) if each.id == messages[-1].id), len(messages))
        messages = fitted(view[:end], model)
        asked = replace(asked, settings=replace(asked.settings, chain=False))
    choice = tool_choice_of(state)
    forced = state.run.squeeze.uncalled or choice.mode in ("any", "tool")
    told = replace(asked, view=(*messages, question))
    request, _ = assemble(told, ToolChoice(mode="none") if forced else choice)
    return replace(request, output=None)


def native_request_for(state: State, messages: tuple[Message, ...]) -> Request:
    """The request for something short in place of these messages, which are the beginning of the view."""
    told = replace(state, view=messages, settings=replace(state.settings, chain=False))
    request, _ = assemble(told)
    words = precis.ASK + matter(state)
    return replace(request, output=None, compacts=True, summary_words=words)


def overflowed(state: State, failure: Failure) -> Squeeze:
    """After a failure: was it too long, though it may just have been made shorter?"""
    squeeze, kind = state.run.squeeze, failure.kind
    if (kind != "context" and kind != "too_large") or state.settings.compaction is None:
        return squeeze
    told = replace(squeeze, overflow=kind, said=failure.message, window_tokens=failure.window_tokens)
    if squeeze.asked:
        return replace(told, pieces=squeeze.pieces + 1)
    return replace(told, failed=squeeze.failed + squeeze.fresh)


def heard_of(state: State, stop: Stop) -> Squeeze:
    """After a reply, which may have ended where the window does."""
    filled = stop is Stop.CONTEXT and state.settings.compaction is not None
    return replace(state.run.squeeze, overflow="context" if filled else "", said="", fresh=False, pieces=0)


def tried_anew(state: State) -> Squeeze:
    """Somebody resumes the run, and may have seen to what was in its way."""
    return replace(state.run.squeeze, overflow="", said="", failed=0, tried_tokens=0, pieces=0, fresh=False)


def summary_asked(state: State, event: ModelAsked, at: float) -> State:
    squeeze = replace(
        state.run.squeeze,
        asked=event.summary_of,
        seat=event.seat,
        own=state.run.squeeze.own or not event.seat,
        native=event.native,
        plain=state.run.squeeze.plain or (state.run.squeeze.native and not event.native),
    )
    # Whoever steps in for another has its own number of tries.
    before = state.run.squeeze
    tries = state.run.tries if (squeeze.own, squeeze.plain) == (before.own, before.plain) else 0
    run = replace(
        state.run, attempt=event.attempt, tries=tries + 1, failure=None, partial="", squeeze=squeeze
    )
    return replace(state, run=run, hits=sent(asked_now_by(state, event.seat), event, at))


def summarised(state: State, event: ModelReplied) -> State:
    """Paid for, and kept until it is put in its place; an answer without words was a try in vain."""
    reply, before = event.reply, state.run.squeeze
    if before.native:
        squeeze = _provided(state, reply)
    else:
        words = "" if reply.stop in UNUSABLE else reply.text.strip()
        squeeze = replace(
            before,
            summary=words,
            failed=before.failed + (not words),
            uncalled=before.uncalled or bool(reply.calls),
        )
    squeeze, usage = replace(squeeze, asked=event.summary_of, native=False), booked(state, reply)
    run = replace(
        state.run,
        spent=plus(state.run.spent, usage, event.usd),
        attempt=0,
        tries=0,
        rests=0,
        failure=None,
        refusals=(),
        partial="",
        squeeze=squeeze,
    )
    total = plus(state.total, usage, event.usd)
    hits = answered_aside(asked_now_by(state, before.seat), reply, elsewhere=bool(before.seat))
    return replace(state, run=run, total=total, replies=state.replies + 1, hits=hits)


def _provided(state: State, reply: Reply) -> Squeeze:
    """What the provider made, if people's words are safe in it; else its words, or another try without it."""
    squeeze, messages = state.run.squeeze, state.transcript.messages
    made = precis.made_in(reply)
    end = next(at + 1 for at, message in enumerate(messages) if message.id == squeeze.asked)
    said = [own_words(state, message) for message in messages[:end] if message.id in state.prompts]
    if made and precis.is_safe(made, said, state.settings.model):
        return replace(squeeze, made=made, maker=reply.origin)
    words = precis.words_in(made)
    return replace(squeeze, summary=words, plain=not words)
