"""Reasoning that outlived what it was thought after.

Some models take their earlier thoughts back only behind the very words they were thought after:
the tools, the instructions, every message before.  When any of it changes (a tool is shown, old
pictures go, the instructions are others now), what such a model thought before is refused from
then on.  It is left out before anybody refuses it: waiting for the refusal costs a request each time.

It is decided for the model that is asked, whenever it is asked: one that comes back after tools
were shown to another has outlived them too.  A tool that stands outside the prompt moves nothing.
"""

from msgspec.structs import replace

from ..values.event import Compacted, ViewChanged
from .catalogue import laid_out
from .context import offered_tools
from .handoff import without_reasoning
from .precis import is_taken
from .stand_ins import first_calls
from .state import State

WHY = "earlier reasoning is bound to what stood before it then"


def outlived(state: State) -> ViewChanged | None:
    model = state.settings.model
    movable = state.shown or state.moved or model.abilities.called_tools_declared
    if not model.abilities.bound_thinking or not movable:
        return None
    messages = state.transcript.messages
    offered = offered_tools(state)
    # A call whose tool is declared from then on was itself thought before it was declared.
    called = max(first_calls(messages, model, offered=bool(offered)).values(), default=-1) + 1
    if not (state.shown or state.moved or called):
        return None
    front = {spec.name for spec in laid_out(state, offered)[0]}
    since = zip(state.shown, state.shown_at, strict=True)
    moved = max((at for name, at in since if name in front), default=0)
    moved = max(moved, called)
    stale = {at for first, last in (*state.moved, (0, moved)) for at in range(first, last)}
    before = (messages[at] for at in sorted(stale) if state.covered <= at < len(messages))
    own = (each for each in before if each.origin is not None and each.origin.endpoint == model.endpoint.home)
    changes = tuple(without_reasoning(state, own))
    if all(change.plain for change in changes):
        return None
    return ViewChanged(changes=changes, why=WHY, seat=model.seat)


def moved_by(state: State, event: ViewChanged | Compacted) -> State:
    """After a change of the view: what was thought since the first message it touches has lost its ground."""
    if isinstance(event, Compacted) and event.through:
        model = state.settings.model
        # Behind what its own provider made of what stood there, such a model takes its thoughts.
        return state if model.abilities.bound_thinking and is_taken(event, model) else moved_wholly(state)
    touched = {change.message for change in event.changes if not change.plain}
    places = [at for at, message in enumerate(state.transcript.messages) if message.id in touched]
    return _moved(state, min(places)) if places else state


def moved_wholly(state: State) -> State:
    """What stands before the whole conversation is other now."""
    return _moved(state, 0) if state.transcript.messages else state


def _moved(state: State, first: int) -> State:
    earlier = tuple(each for each in state.moved if each[0] < first)
    return replace(state, moved=(*earlier, (first, len(state.transcript.messages))))
