"""Transitions of events about the log itself, which may come in every phase: forks, repairs, redactions."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from bridle.values import events as e
from bridle.values.cache import PrefixMoved

from .cache.prefix import mark_stale_from
from .calls.orphaned import apply_forked, apply_log_repaired, ignore_unknown_event
from .state import Phase, State


def apply_content_redacted(state: State, event: e.ContentRedacted, at: float, proof: str) -> State:
    """Send everything again: the prompt has changed, and a provider may hold what was removed."""
    messages = state.conversation.transcript.messages
    places = [place for place, message in enumerate(messages) if message.id == event.message]
    if not places:
        return state
    moved = PrefixMoved(
        layer="history",
        block=f"message {event.message}",
        cause="view_changed",
        why=f"content of record {event.record} was redacted",
    )
    cache = replace(
        state.cache,
        history=replace(state.cache.history, prefix_change=moved),
        last_request=None,
        server_conversation=None,
        chained_from=len(messages),
    )
    return mark_stale_from(replace(state, cache=cache), places[0])


LOG_TRANSITIONS: dict[tuple[Phase, type], Callable[[State, Any, float, str], State]] = {
    (phase, event): handle
    for phase in Phase
    for event, handle in (
        (e.Forked, apply_forked),
        (e.LogRepaired, apply_log_repaired),
        (e.UnknownEvent, ignore_unknown_event),
        (e.ContentRedacted, apply_content_redacted),
        (e.ControlRefused, ignore_unknown_event),
    )
}
