"""When a piece of a session's past is gone: what is left of the present.

Nobody knows what was done in the part that was lost.  So a run that was under way is over, its
open calls are in doubt whatever the log says of them, and the model hears that it may have done
more than it can read: the one thing that must not happen is that it pays twice.
"""

from msgspec.structs import replace

from ..values import event as e
from ..values.message import Message
from ..values.parts import Text
from .calls import answered_by, given_up
from .saying import said
from .state import Phase, State

LOST = (
    "A part of the record of this conversation was lost at this point. Things may have been said and done"
    " that are not in it; find out before you repeat anything."
)
ENDED = "what came after was lost"


def repaired(state: State, event: e.Repaired, at: float, proof: str) -> State:
    if not event.lost or state.phase is Phase.NEW:
        return state
    after = state
    if state.phase is not Phase.RESTING:
        run = replace(state.run, stop="cancelled", reason=ENDED, answer="", reply=None, said="")
        after = replace(state, phase=Phase.RESTING, run=run)
        if state.calls:
            doubtful = tuple(replace(item, in_doubt=True) for item in state.calls)
            after = answered_by(after, given_up(doubtful), at)
    return said(after, Message(role="user", parts=(Text(text=LOST),), at=at, provenance="harness"))


def passed_over(state: State, event: e.Unknown, at: float, proof: str) -> State:
    return state
