"""Reasoning that outlived the tools it was thought after.

Some models take their earlier thoughts back only behind the very words they were thought after,
and the list of tools is the first of those.  When a tool is added in front, what such a model
thought before is refused from then on.  It is left out before anybody refuses it: waiting for
the refusal costs a request each time.

It is decided for the model that is asked, whenever it is asked: one that comes back after tools
were shown to another has outlived them too.  A tool that stands outside the prompt moves nothing.
"""

from ..values.event import ViewChanged
from .catalogue import laid_out
from .context import shown_tools
from .handoff import without_reasoning
from .state import State

WHY = "earlier reasoning is bound to the tools of then"


def outlived(state: State) -> ViewChanged | None:
    model = state.settings.model
    if not state.shown or not model.abilities.bound_thinking:
        return None
    front = {spec.name for spec in laid_out(state, shown_tools(state.settings, state.shown))[0]}
    since = zip(state.shown, state.shown_at, strict=True)
    moved = max((at for name, at in since if name in front), default=0)
    before = state.transcript.messages[:moved]
    own = (each for each in before if each.origin is not None and each.origin.endpoint == model.endpoint.home)
    changes = tuple(without_reasoning(state, own))
    if all(change.plain for change in changes):
        return None
    return ViewChanged(changes=changes, why=WHY, seat=model.seat)
