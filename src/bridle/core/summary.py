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
from ..values.message import Message, Stop
from ..values.model import Model
from ..values.parts import Text
from ..values.request import Request, ToolChoice
from .budget import plus
from .context import assemble
from .fallback import with_model
from .handoff import fitted, seen
from .misses import answered_aside, sent
from .squeeze import Squeeze
from .state import State

ASK = """\
Pause the work here and write down what is needed to go on with it. What you write will stand in place of \
the conversation above, except for the user's own messages and the latest steps, which stay as they are. \
Do not call a tool; answer with the summary and nothing else.

Say briefly, with names, numbers, paths and ids exactly as they are:
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
    return min(WORDS_MAX, int(WORDS_SHARE * state.settings.window_tokens))


def request_for(state: State, messages: tuple[Message, ...]) -> Request:
    """The question for a summary of these messages, which are the view or its beginning."""
    wish, model = state.settings.compaction, summariser(state)
    assert wish is not None
    more = f"\n\n{wish.words.strip()}" if wish.words.strip() else ""
    question = Message(
        role="user", parts=(Text(text=ASK.format(words=summary_words(state)) + more),), at=state.now
    )
    asked = state
    if model.seat != state.settings.model.seat:
        asked = replace(asked_now_by(state, model.seat), run=replace(state.run, reasoning=""))
        view, _, _ = seen(state.transcript.messages, state.recorded, model)
        messages = fitted(view[: len(messages)], model)
        asked = replace(asked, settings=replace(asked.settings, chain=False))
    choice = state.settings.tool_choice
    forced = state.run.squeeze.uncalled or choice.mode in ("any", "tool")
    told = replace(asked, view=(*messages, question))
    request, _ = assemble(told, ToolChoice(mode="none") if forced else choice)
    return replace(request, output=None)


def overflowed(state: State, failure: Failure) -> Squeeze:
    """After a failure: was it too long, though it may just have been made shorter?"""
    squeeze, kind = state.run.squeeze, failure.kind
    if (kind != "context" and kind != "too_large") or state.settings.compaction is None:
        return squeeze
    if squeeze.asked:
        return replace(squeeze, overflow=kind, said=failure.message, pieces=squeeze.pieces + 1)
    return replace(squeeze, overflow=kind, said=failure.message, failed=squeeze.failed + squeeze.fresh)


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
    )
    # Whoever steps in for another has its own number of tries.
    tries = state.run.tries if squeeze.own == state.run.squeeze.own else 0
    run = replace(
        state.run, attempt=event.attempt, tries=tries + 1, failure=None, partial="", squeeze=squeeze
    )
    return replace(state, run=run, hits=sent(asked_now_by(state, event.seat), event, at))


def summarised(state: State, event: ModelReplied) -> State:
    """Paid for, and kept until it is put in its place; an answer without words was a try in vain."""
    reply, before = event.reply, state.run.squeeze
    words = "" if reply.stop in UNUSABLE else reply.text.strip()
    squeeze = replace(
        before,
        asked=event.summary_of,
        summary=words,
        failed=before.failed + (not words),
        uncalled=before.uncalled or bool(reply.calls),
    )
    run = replace(
        state.run,
        spent=plus(state.run.spent, reply.usage, event.usd),
        attempt=0,
        tries=0,
        rests=0,
        failure=None,
        refusals=(),
        partial="",
        squeeze=squeeze,
    )
    total = plus(state.total, reply.usage, event.usd)
    hits = answered_aside(asked_now_by(state, before.seat), reply, elsewhere=bool(before.seat))
    return replace(state, run=run, total=total, replies=state.replies + 1, hits=hits)
