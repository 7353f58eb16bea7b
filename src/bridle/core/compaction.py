"""Make a conversation shorter before it no longer fits: when, what, and how far.

Looked at before every request, in the midst of a run as well as at its beginning.  Nothing is done below
the gate (`weighing.gate`).  Above it the strategies (strategies.py) are tried in their order until the
prompt is down to the target, all in one recorded event: each change of what was sent before makes the
provider read it anew, so it is done seldom and thoroughly, and the event says what that costs.

Rule 1: the log keeps every original; only the view is shorter.
Rule 2: a call and its result are never parted, and the newest messages stay as they are.
Rule 3: what people said stays, word for word.  Only a text of an earlier run that is longer than anything
        a person types, in a prompt that does not fit, becomes its beginning and its end.
Rule 4: a summary is written from what was said, before anything shrinks, while the provider still
        has it in its cache; and only when shrinking would not be enough.
Rule 5: two tries in vain are the last, and where nothing fits any more the end of the run, with the names of
        what cannot shrink.  What still fits is sent.
"""

from msgspec.structs import replace

from ..values.event import Compacted
from ..values.message import Message
from ..values.request import Request
from ..values.value import Value
from . import precis
from .context import roomed
from .effects import Compact, End
from .gathering import old_chunks, own_words
from .handoff import seen, viewed
from .memory import outdated
from .rebinding import moved_by
from .saying import text_tokens
from .state import Phase, State
from .strategies import STRATEGIES, tail_start
from .stuck import stuck
from .summary import ASK, HEADING, LABEL, LEAD, native_request_for, request_for, summariser, summary_words
from .weighing import (
    CHARACTERS_PER_TOKEN,
    filled,
    gate,
    least,
    limit,
    message_weight,
    price_anew,
    scaled,
    share,
    weight,
)
from .window import window_tokens, window_tokens_of

TRIES_MAX = 2
SHORTER = "the conversation was made shorter"
WORTH_SHARE = 0.1
"""Of the window: what a change must gain to be worth reading everything behind it anew."""
GROWTH_SHARE = 0.05
"""Of the window: how much more there must be before another try after one in vain."""
TOKENS_PER_WORD = 2
"""Of a summary, with some to spare: it is full of names and numbers."""
REPLY_TOKENS_MAX = 8_000
"""Room for a summary, and for thinking where nothing is said about that."""
SUMMARY_SHARE = 0.125
PIECE_SHARE = 0.5
"""Of the window: how much is summarised at a time, when all of it does not fit."""
PIECES_MAX = 4


class SummaryWanted(Value):
    """Old turns are to give way, and somebody has to say what was in them."""

    request: Request
    through: str


def compaction(state: State) -> Compact | SummaryWanted | End | None:
    """What has to be done before the model can be asked; None when nothing has."""
    wish, squeeze = state.settings.compaction, state.run.squeeze
    if wish is None:
        return None
    if squeeze.summary or squeeze.made:
        return Compact(event=_with_summary(state))
    now = filled(state)
    if now <= gate(state):
        return None
    hard, spent = now > limit(state), squeeze.failed >= TRIES_MAX or squeeze.pieces > PIECES_MAX
    if spent and hard:
        return stuck(state)
    if squeeze.failed and not hard and now - squeeze.tried_tokens < share(state, GROWTH_SHARE):
        return None
    smaller = _shrunk(state)
    gain = now - smaller.after_tokens
    if smaller.changes and smaller.after_tokens <= share(state, wish.to):
        return Compact(event=smaller)
    whole = _sendable(state)
    # Not if a summary would have to be asked for right behind it: that would be read anew twice.
    if not whole and gain >= share(state, WORTH_SHARE) and smaller.after_tokens <= gate(state):
        return Compact(event=smaller)
    wanted = None if spent else _summary_wanted(state, whole=whole, hard=hard)
    if wanted is not None:
        return wanted
    if smaller.changes and (hard or gain >= share(state, WORTH_SHARE)):
        return Compact(event=smaller)
    return stuck(state) if least(state) > window_tokens(state) else None


def compacted(state: State, event: Compacted, at: float, proof: str) -> State:
    before, squeeze = filled(state), state.run.squeeze
    in_vain = event.after_tokens > gate(state) and before - event.after_tokens < before * WORTH_SHARE
    failed = squeeze.failed + 1 if in_vain else squeeze.failed if squeeze.overflow else 0
    fresh = replace(
        squeeze,
        overflow="",
        failed=failed,
        tried_tokens=event.after_tokens,
        fresh=True,
        asked="",
        summary="",
        made=(),
        maker=None,
    )
    run = replace(state.run, squeeze=fresh, failure=None if squeeze.overflow else state.run.failure)
    after = viewed(moved_by(replace(state, run=run, recorded=(*state.recorded, event)), event))
    # Money is set aside for the dear estimate, the window is filled by the fair one.
    dear = max(event.after_tokens, min(state.prompt_tokens, weight(after, after.view)))
    shorter = replace(
        after,
        prompt_tokens=dear,
        slack_tokens=dear - event.after_tokens,
        counted_tokens=min(event.after_tokens, state.counted_tokens * event.after_tokens // max(before, 1)),
    )
    return outdated(shorter, SHORTER)


def _shrunk(state: State, summary: Compacted | None = None) -> Compacted:
    """The view without what can go without a summary, as far down as it goes or has to."""
    assert state.settings.compaction is not None
    event = summary or Compacted(how=(), why="")
    event = _weighed(state, replace(event, before_tokens=filled(state)))
    for strategy in STRATEGIES:
        if strategy.find is None or event.after_tokens <= share(state, state.settings.compaction.to):
            continue
        if strategy.hard and event.after_tokens <= limit(state):
            continue
        known = {(change.message, change.part, change.inner) for change in event.changes}
        found = (each for each in strategy.find(state) if (each.message, each.part, each.inner) not in known)
        if changes := tuple(found):
            more = replace(event, changes=(*event.changes, *changes), how=(*event.how, strategy.name))
            event = _weighed(state, more)
    return replace(event, why=_why(state))


def _weighed(state: State, event: Compacted) -> Compacted:
    """With what is left of the prompt, and what of that has to be read anew."""
    view, _, _ = seen(state.transcript.messages, (*state.recorded, event), state.settings.model)
    whole = weight(state, state.view)
    pairs = enumerate(zip(state.view, view, strict=False))
    first = next((at for at, (old, new) in pairs if old != new), min(len(view), len(state.view)))
    anew = scaled(state, sum(message_weight(state, message) for message in view[first:]), whole)
    after = scaled(state, weight(state, view), whole)
    return replace(event, after_tokens=after, anew_tokens=anew, usd=price_anew(state, anew))


def _why(state: State) -> str:
    squeeze = state.run.squeeze
    if squeeze.overflow:
        return f"it did not fit into the model's window: {squeeze.said or 'the reply ended there'}"
    window = window_tokens(state)
    return f"the next prompt would fill {filled(state):,} of {window:,} tokens, more than {gate(state):,}"


def _summary_wanted(state: State, *, whole: bool, hard: bool) -> SummaryWanted | None:
    """A summary of the old turns, if there are enough of them; of the first of them, if they are too many."""
    if state.phase is Phase.JUDGING:
        return None  # in the midst of a reply that was paused nobody else can be heard
    end = tail_start(state)
    for native in precis.cuts(state, end) if precis.able(state) else ():
        if _is_worth(state, native, hard=hard) and _fits(state, _told(state, native)):
            return _wanted(state, native_request_for(state, _told(state, native)), native)
    if not whole:
        end = _answered(state, min(end, _piece_end(state)))
    if not _is_worth(state, end, hard=hard):
        return None
    told = _finished(state.view) if whole else _told(state, end)
    return _wanted(state, request_for(state, told), end)


def _wanted(state: State, request: Request, end: int) -> SummaryWanted:
    room = min(request.max_tokens or REPLY_TOKENS_MAX, _reply_tokens(state))
    through = state.transcript.messages[end - 1].id
    return SummaryWanted(request=roomed(request, room), through=through)


def _is_worth(state: State, end: int, *, hard: bool) -> bool:
    """Whether so many messages of the transcript are worth a summary."""
    messages = state.transcript.messages
    if end <= state.covered:
        return False
    prompts = (own_words(state, each) for each in messages[:end] if each.id in state.prompts)
    said = sum(message_weight(state, each) for each in prompts)
    old = sum(message_weight(state, message) for message in _told(state, end))
    gain = scaled(state, old - said, weight(state, state.view)) - TOKENS_PER_WORD * summary_words(state)
    return gain >= (share(state, WORTH_SHARE) if not hard else 1)


def _told(state: State, end: int) -> tuple[Message, ...]:
    """What of the view stands for so many messages of the transcript."""
    return state.view[: end - state.covered + bool(state.covered)]


def _fits(state: State, view: tuple[Message, ...]) -> bool:
    """Whether this much of the view can be sent with room for a summary."""
    tokens = scaled(state, weight(state, view), weight(state, state.view))
    return tokens + _reply_tokens(state) <= window_tokens(state)


def _finished(view: tuple[Message, ...]) -> tuple[Message, ...]:
    """Without a reply that the model has not ended yet: nothing may be said behind that."""
    return view[:-1] if view[-1].role == "assistant" else view


def _reply_tokens(state: State) -> int:
    """For the summary and the thinking before it, which is as much as ever: less would be another prompt."""
    thinking = state.settings.thinking
    return _summary_tokens(state) + ((thinking.budget_tokens or 0) if thinking is not None else 0)


def _summary_tokens(state: State) -> int:
    window = min(window_tokens(state), window_tokens_of(state, summariser(state)))
    return max(1, min(REPLY_TOKENS_MAX, int(window * SUMMARY_SHARE)))


def _sendable(state: State) -> bool:
    """Whether the whole view can be sent with the question for a summary behind it."""
    squeeze, other = state.run.squeeze, summariser(state)
    if squeeze.overflow or squeeze.pieces:
        return False
    own = other.seat == state.settings.model.seat
    window = window_tokens(state) if own else window_tokens_of(state, other)
    return filled(state) + text_tokens(ASK) + _reply_tokens(state) <= window


def _piece_end(state: State) -> int:
    """How far the first turns go that can be summarised at one go."""
    messages, whole = state.transcript.messages, weight(state, state.view)
    window = min(window_tokens(state), window_tokens_of(state, summariser(state)))
    room = int(window * PIECE_SHARE) >> state.run.squeeze.pieces
    taken = weight(state, state.view[:1]) if state.covered else weight(state, ())
    end = state.covered
    for at in range(state.covered, len(messages)):
        taken += message_weight(state, state.view[at - state.covered + bool(state.covered)])
        if scaled(state, taken, whole) > room:
            break
        if at + 1 == len(messages) or messages[at + 1].role != "tool":
            end = at + 1
    return end


def _answered(state: State, end: int) -> int:
    """Not right behind a prompt: asked for a summary there, a model answers the prompt."""
    messages = state.transcript.messages
    while end > state.covered and messages[end - 1].id in state.prompts:
        end -= 1
    return end


def _with_summary(state: State) -> Compacted:
    """The summary in its place, and as much more as is still needed."""
    squeeze, messages = state.run.squeeze, state.transcript.messages
    end = next(at + 1 for at, message in enumerate(messages) if message.id == squeeze.asked)
    words = (squeeze.summary or precis.words_in(squeeze.made))[
        : _summary_tokens(state) * CHARACTERS_PER_TOKEN
    ]
    event = Compacted(
        how=("turns",),
        why=_why(state),
        through=squeeze.asked,
        prompts=tuple(message.id for message in messages[:end] if message.id in state.prompts),
        lead=LEAD,
        label=LABEL,
        # They are nobody's words, and the summary has what came of them.
        changes=tuple(old_chunks(state, end)),
        summary=HEADING + words if words else "",
        native=squeeze.made,
        origin=squeeze.maker,
        before_tokens=filled(state),
    )
    # What stands behind it stays as it is: it is taken for what followed the turns, or its reasoning is not.
    return _weighed(state, event) if squeeze.made else _shrunk(state, event)
