"""Chooses the part of a conversation that the next agent sees after a hand-over."""

from bridle.core.state import State
from bridle.values.message import Compacted

from .plan import measure_event
from .strategies import estimated_tokens

STRATEGY = "handover"
HANDOVER_NOTE = "Another agent handed this task over to you."


def has_handover_view(state: State) -> bool:
    """True if the view for the next agent is in the log already."""
    changes, messages = state.conversation.view_changes, state.conversation.transcript.messages
    latest = changes[-1] if changes else None
    return (
        isinstance(latest, Compacted)
        and latest.strategies == (STRATEGY,)
        and latest.summarized_until == messages[-1].id
    )


def plan_handover_view(state: State, text: str | None) -> Compacted:
    """Event after which the next agent sees only that text; None for the latest prompt."""
    conversation = state.conversation
    event = Compacted(
        strategies=(STRATEGY,),
        why=f"handed over to {state.run.origin.handover}",
        summarized_until=conversation.transcript.messages[-1].id,
        prompt_ids=conversation.prompt_ids[-1:] if text is None else (),
        summary=HANDOVER_NOTE if text is None else text,
        before_tokens=estimated_tokens(state),
    )
    return measure_event(state, event)
