"""State kept by the provider as a conversation object: when one is made, used and dropped.

An object grows by every request that names it, and by the reply.  So it is used only as long as the log
proves what is in it: every request to it was answered by a reply that became a message, and nothing of what
was sent has changed since.  A request that broke off may or may not have been added.  Then, and when the
provider no longer has the object, it is dropped by an event, a new one is made, and the next request sends
everything.  Where none can be made everything is sent every time.  The session's own log is always complete.
"""

from collections.abc import Callable

from msgspec.structs import replace

from ..values import event as e
from ..values.errors import Failure, FailureKind
from ..values.message import Reply, Stop
from .context import has_distinct_call_ids, relies_on_server_state, reply_before
from .effects import DropConversation, OpenConversation
from .held_conversation import HeldConversation
from .saying import counts
from .state import Phase, State

STRATEGY = "conversation"
CUT_OFF = "a request to it broke off, so what it holds is unknown"
FORGOTTEN = "the provider no longer has it"
NOT_A_MESSAGE = "it holds a reply that is not part of what is sent"
MOVED = "what it holds is not what is sent any more"
SWITCHED_OFF = "conversation objects are switched off"
OTHER_MODEL = "another model is asked"


def conversation_wanted(state: State) -> OpenConversation | DropConversation | None:
    """What is to be done about the object before the next request."""
    held, seat = state.conversation, state.settings.model.seat
    if held is not None and held.name:
        why = _why_unusable(state, held)
        return DropConversation(conversation=held.name, seat=held.seat, why=why) if why else None
    if state.settings.chain != STRATEGY or (held is not None and held.seat == seat):
        return None
    return OpenConversation(seat=seat)


def _why_unusable(state: State, held: HeldConversation) -> str:
    if state.settings.chain != STRATEGY:
        return SWITCHED_OFF
    if held.seat != state.settings.model.seat:
        return OTHER_MODEL
    if held.trouble or held.in_flight:
        return held.trouble or CUT_OFF
    return MOVED if held.reply_id and held.reply_id != reply_before(state) else ""


def conversation_sent(state: State, event: e.ModelAsked) -> HeldConversation | None:
    held = state.conversation
    return replace(held, in_flight=True) if held is not None and event.conversation else held


def conversation_answered(state: State, reply: Reply) -> HeldConversation | None:
    held = state.conversation
    if held is None or not held.in_flight:
        return held
    refused = reply.stop in (Stop.REFUSED, Stop.FILTERED)
    if refused or not reply.id or not any(map(counts, reply.parts)) or not has_distinct_call_ids(reply.calls):
        return replace(held, in_flight=False, trouble=NOT_A_MESSAGE)
    return replace(held, in_flight=False, reply_id=reply.id)


def classify_failure(state: State, failure: Failure) -> Failure:
    """The failure as it is handled: a refusal of state that the provider holds means that it is not ours.

    What the provider holds may differ from the log, so everything is sent before anything is blamed.
    """
    known = failure.refused_parameter is not None
    refused = failure.kind == "invalid" and not known and relies_on_server_state(state)
    return replace(failure, kind="forgotten") if refused else failure


def conversation_failed(state: State, event: e.ModelFailed, kind: FailureKind) -> HeldConversation | None:
    held, failure = state.conversation, event.failure
    if held is None or not held.in_flight:
        return held
    if kind == "forgotten":
        return replace(held, in_flight=False, trouble=FORGOTTEN)
    # What was refused was added to nothing; what was begun may have been.
    refused = failure.status is not None and 400 <= failure.status < 500 and event.usage is None
    return replace(held, in_flight=False, trouble="" if refused else CUT_OFF)


def conversation_tried_again(state: State) -> HeldConversation | None:
    """A new run asks once more where none could be made before."""
    held = state.conversation
    return held if held is not None and held.name else None


def _opened(state: State, event: e.ConversationOpened, at: float, proof: str) -> State:
    return replace(state, conversation=HeldConversation(name=event.name, seat=event.seat))


def _dropped(state: State, event: e.ConversationDropped, at: float, proof: str) -> State:
    return replace(state, conversation=None if event.name else HeldConversation(seat=event.seat))


CONVERSING: dict[tuple[Phase, type], Callable[..., State]] = {
    **{(phase, e.ConversationOpened): _opened for phase in (Phase.ASKING, Phase.JUDGING)},
    **{(phase, e.ConversationDropped): _dropped for phase in (Phase.ASKING, Phase.JUDGING)},
}
"""Where these may happen."""
