"""The window that a session computes with: the model's own, or a smaller one that its server named.

A server of one's own may be started with less than the model can read.  It says so when it refuses a prompt
(`Failure.window_tokens`), and that holds for this model for the rest of the session.
"""

from ..values.errors import Failure
from ..values.model import Model
from .state import State

WINDOW_TOKENS_LEAST = 256
"""No server is run with less; a smaller number in a refusal is something else."""


def window_tokens(state: State) -> int:
    """The window of the model that is asked."""
    own = state.settings.window_tokens
    return _smaller(state, state.settings.model, own) if state.windows else own


def window_tokens_of(state: State, model: Model) -> int:
    """The window of any model, for which no setting of the agent holds."""
    return _smaller(state, model, model.abilities.prompt_tokens_max)


def note_window(state: State, failure: Failure) -> tuple[tuple[str, int], ...]:
    """The windows named so far, with the one in this failure if it can be true."""
    named, own = failure.window_tokens, window_tokens(state)
    if failure.kind != "context" or named is None or not WINDOW_TOKENS_LEAST <= named < own:
        return state.windows
    seat = state.settings.model.seat
    return (*(each for each in state.windows if each[0] != seat), (seat, named))


def _smaller(state: State, model: Model, own: int) -> int:
    return min(own, dict(state.windows).get(model.seat, own))
