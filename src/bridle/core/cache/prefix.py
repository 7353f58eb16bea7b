"""Detects changes of the cached prefix before a request is sent, and reasoning invalidated by them.

Providers cache the beginning of a prompt and compare it byte for byte. Messages never change and are encoded
once, so the prefix is stable as long as its parts are; they are compared here layer by layer, before anything
is sent and paid for. A change is recorded as an event with its first differing block and its cause; with
`prefix="strict"` it also ends the run. Only references are stored: identical objects need no comparison.

Some models accept earlier reasoning only if the text before it is unchanged: tools, instructions, all earlier
messages. Once any of it changes (a revealed tool, removed images, other instructions), they reject it. Such
reasoning is omitted beforehand, because each rejection costs a request. This is decided for the current model
at every call, so it also covers a model that returns after tools were revealed to another. Tools outside the
prompt change nothing.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from bridle.core.calls.catalogue import (
    add_server_tools,
    first_call_positions,
    split_deferred_tools,
    stand_in_names,
)
from bridle.core.context.assemble import memory_text, offered_tools, prompt_cache_key, request_tools
from bridle.core.context.summary_view import is_native_summary_accepted
from bridle.core.context.token_estimate import written_instructions
from bridle.core.context.view import drop_reasoning
from bridle.core.effects import EndRun
from bridle.core.state import State
from bridle.values.cache import PrefixCause, PrefixMoved, PromptLayerName
from bridle.values.events import Compacted, ToolsChanged, ViewChanged
from bridle.values.request import Request, ToolChoice, ToolSpec
from bridle.values.settings import Settings

from .tracking import RequestSnapshot

PREFIX_SETTINGS = ("chain", "output", "thinking", "tool_choice", "extras")
"""Settings, besides tools and instructions, that separate cached prompts."""
ALLOWED_CAUSES = ("compacted", "memory_loaded", "choice_released", "parameter_refused", "tool_called")
"""Causes that never end a run, even under `prefix="strict"`."""
PREFIX_MOVED_REASON = (
    "the cached prefix changed: {layer}, first at {block}, because {why}."
    ' Revert the change and resume, or allow it with Agent(prefix="report")'
)


def find_prefix_change(
    state: State, request: Request, *, aside: bool = False, chosen: bool = False
) -> PrefixMoved | None:
    """First change of the last request's prefix in this one; None if there is none.

    A request `aside` consists of the conversation or its beginning, usually followed by a question; for
    another model than the run's there is no prefix. `chosen`: the caller selects the tool choice step by
    step.
    """
    last = state.cache.last_request
    # defect: prefix-recorded
    if last is None or (aside and request.model.model_key != state.settings.model.model_key):
        return None
    if aside:
        messages = request.messages if request.asks_native_summary else request.messages[:-1]
        last = replace(last, view=last.view[: len(messages)], tool_choice=request.tool_choice)
        request = replace(request, messages=messages)
    found = _find_prefix_difference(state, last, request, chosen=chosen)
    if found is None:
        return None
    layer, block, cause, why = found
    estimate = state.estimate.prompt_tokens - state.estimate.margin_tokens
    return PrefixMoved(layer=layer, block=block, cause=cause, why=why, uncached_tokens=estimate)


def snapshot_request(state: State, choice: ToolChoice) -> RequestSnapshot:
    """Prefix of a request sent in this state with this choice, for later comparison."""
    tools, _ = request_tools(state)
    return RequestSnapshot(
        settings=state.settings,
        tools=tools,
        revealed_tools=state.tools.revealed,
        view=state.conversation.view,
        memory=memory_text(state),
        cache_key=prompt_cache_key(state),
        view_change_count=len(state.conversation.view_changes),
        tool_choice=choice,
        written=written_instructions(state) if state.settings.session_functions else "",
    )


def apply_prefix_moved(state: State, event: PrefixMoved, at: float, proof: str) -> State:
    """Record a change once; under `prefix="strict"`, until it is reverted."""
    cache = state.cache
    run = replace(state.run, adjustments=replace(state.run.adjustments, prefix_change=event))
    if _is_forbidden_change(state.settings, event):
        return replace(state, run=run)
    return replace(
        state,
        run=run,
        cache=replace(cache, last_request=None, history=replace(cache.history, prefix_change=event)),
    )


def end_if_prefix_moved(state: State) -> EndRun | None:
    event = state.run.adjustments.prefix_change
    if event is None or not _is_forbidden_change(state.settings, event):
        return None
    return EndRun(
        stop="failed", reason=PREFIX_MOVED_REASON.format(layer=event.layer, block=event.block, why=event.why)
    )


def _is_forbidden_change(settings: Settings, event: PrefixMoved) -> bool:
    """True if the change ends the run under `prefix="strict"`.

    Intended changes do not: a switch within a model chain, compaction, loaded notes, a released tool choice,
    a parameter that the endpoint rejected, and a tool that the model called.
    """
    is_allowed = event.cause in ALLOWED_CAUSES
    is_intended = is_allowed or (event.cause == "model_switched" and bool(settings.models))
    # defect: prefix-forbidden
    return settings.prefix == "strict" and not is_intended


def _find_prefix_difference(
    state: State, last: RequestSnapshot, request: Request, *, chosen: bool
) -> tuple[PromptLayerName, str, PrefixCause, str] | None:
    """Layer and block of the first difference, its cause, and its description."""
    settings, before = state.settings, last.settings
    if request.model.model_key != before.model.model_key:
        why = f"the model was {before.model.name} before"
        return "model", request.model.name, "model_switched", why
    if request.tools != last.tools:
        changed_tool = _describe_tool(request.tools, find_difference_index(last.tools, request.tools))
        return "tools", changed_tool, *_explain_tools_change(state, last)
    if request.model.abilities.called_tools_declared:
        declared = stand_in_names(last.view, request.model, offered=bool(last.tools))
        called = stand_in_names(request.messages, request.model, offered=bool(request.tools))
        if called != declared:
            at = find_difference_index(declared, called)
            why = "it was called but is not offered, and the provider requires it to be declared"
            return (
                "tools",
                f"tool {at + 1} ({called[at] if at < len(called) else 'gone'})",
                "tool_called",
                why,
            )
    written = written_instructions(state) if settings.session_functions else ""
    if settings.instructions != before.instructions or written != last.written:
        return "system", "instructions", "settings_changed", "the agent's instructions changed"
    if memory_text(state) != last.memory:
        return "memory", *_explain_memory_change(state, last)
    if settings is not before:
        for name in PREFIX_SETTINGS:
            if getattr(before, name) != getattr(settings, name):
                return "settings", name, "settings_changed", f"the agent's {name} changed"
    choice, choice_before, cached = (
        request.tool_choice,
        last.tool_choice,
        request.model.abilities.choice_in_prefix,
    )
    if choice != choice_before and _cached_choice(choice_before, cached) != _cached_choice(choice, cached):
        why = f"the tool choice was {_describe_choice(choice_before)} and is {_describe_choice(choice)}"
        return "settings", "tool_choice", "choice_changed" if chosen else "choice_released", why
    if request.cache_key != last.cache_key:
        return "settings", "cache key", *_explain_key_change(last, request)
    if request.messages[: len(last.view)] != last.view:
        return "history", _describe_part(last, request), *_explain_view_change(state, last)
    return None


def _explain_key_change(last: RequestSnapshot, request: Request) -> tuple[PrefixCause, str]:
    if not request.cache_key:
        return "parameter_refused", "the endpoint refused cache parameters"
    if not last.cache_key:
        return "parameter_refused", "cache parameters are tried again in a new run"
    return "settings_changed", "the cache key depends on agent and tenant, and one of them changed"


def _cached_choice(choice: ToolChoice, cached_aspects: tuple[str, ...]) -> tuple[object, ...]:
    """Aspects of a tool choice that are part of the cached prompt."""
    mode = choice.mode if choice.mode in ("any", "tool") and "forced" in cached_aspects else ""
    none = choice.mode == "none" and "none" in cached_aspects
    return mode, choice.name if mode else "", none, choice.parallel or "parallel" not in cached_aspects


def _describe_choice(choice: ToolChoice) -> str:
    return f"{choice.name or choice.mode!r}{'' if choice.parallel else ', one call at a time'}"


def _explain_memory_change(state: State, last: RequestSnapshot) -> tuple[str, PrefixCause, str]:
    before, now = last.memory.split("\n"), memory_text(state).split("\n")
    at = find_difference_index(before, now)
    label = (now[at] if at < len(now) else before[at]).partition(":")[0] if state.memory.text else ""
    block = f"note {label}" if label[1:].isdigit() else "notes"
    if (state.settings.memory is None) != (last.settings.memory is None):
        return block, "settings_changed", "the agent's memory changed"
    shown = state.memory.loaded
    return block, "memory_loaded", f"the notes were loaded: {shown.why if shown else ''}"


def _explain_tools_change(state: State, last: RequestSnapshot) -> tuple[PrefixCause, str]:
    new = state.tools.revealed[len(last.revealed_tools) :]
    if new and state.settings.tools == last.settings.tools:
        return "tools_revealed", f"the model was shown {', '.join(new)}"
    return "settings_changed", "the agent's tools changed"


def _explain_view_change(state: State, last: RequestSnapshot) -> tuple[PrefixCause, str]:
    since = state.conversation.view_changes[last.view_change_count :]
    why = "; ".join(dict.fromkeys(event.why for event in since)) or "earlier messages are sent differently"
    return "compacted" if any(isinstance(event, Compacted) for event in since) else "view_changed", why


def find_difference_index(before: Sequence[object], now: Sequence[object]) -> int:
    """Index of the first difference; the length of the shorter one if it is a prefix of the other."""
    for at, (old, new) in enumerate(zip(before, now, strict=False)):
        if old is not new and old != new:
            return at
    return min(len(before), len(now))


def _describe_tool(tools: tuple[ToolSpec, ...], at: int) -> str:
    return f"tool {at + 1} ({tools[at].name})" if at < len(tools) else f"tool {at + 1} (gone)"


def _describe_part(last: RequestSnapshot, request: Request) -> str:
    at = find_difference_index(last.view, request.messages)
    if at >= len(request.messages):
        return f"message {at + 1} (gone)"
    part = find_difference_index(last.view[at].parts, request.messages[at].parts)
    return f"message {request.messages[at].id or at + 1}, part {part + 1}"


STALE_REASONING_REASON = "earlier reasoning is bound to text that has changed"


def stale_reasoning(state: State) -> ViewChanged | None:
    conversation = state.conversation
    model = state.settings.model
    movable = state.tools.revealed or conversation.stale_ranges or model.abilities.called_tools_declared
    if not model.abilities.bound_thinking or not movable:
        return None
    messages = conversation.transcript.messages
    offered = offered_tools(state)
    # The call itself was made before its tool was declared.
    first_declared = (
        max(first_call_positions(messages, model, offered=bool(offered)).values(), default=-1) + 1
    )
    if not (state.tools.revealed or conversation.stale_ranges or first_declared):
        return None
    front = {spec.name for spec in split_deferred_tools(state, offered)[0]}
    since = zip(state.tools.revealed, state.tools.revealed_at, strict=True)
    moved = max((at for name, at in since if name in front), default=0)
    moved = max(moved, first_declared)
    stale = {at for first, last in (*conversation.stale_ranges, (0, moved)) for at in range(first, last)}
    before = (messages[at] for at in sorted(stale) if conversation.summarized_count <= at < len(messages))
    own_messages = (
        each
        for each in before
        if each.origin is not None and each.origin.endpoint == model.endpoint.endpoint_id
    )
    changes = tuple(drop_reasoning(state, own_messages))
    if all(change.strip_native for change in changes):
        return None
    return ViewChanged(changes=changes, why=STALE_REASONING_REASON, model_key=model.model_key)


def mark_stale_after(state: State, event: ViewChanged | Compacted) -> State:
    """Mark reasoning after the first changed message as stale."""
    if isinstance(event, Compacted) and event.summarized_until:
        model = state.settings.model
        # After its own provider's summary such a model still accepts its reasoning.
        return (
            state
            if model.abilities.bound_thinking and is_native_summary_accepted(event, model)
            else mark_all_stale(state)
        )
    touched = {change.message for change in event.changes if not change.strip_native}
    places = [
        at for at, message in enumerate(state.conversation.transcript.messages) if message.id in touched
    ]
    return mark_stale_from(state, min(places)) if places else state


def mark_all_stale(state: State) -> State:
    """Mark all reasoning as stale: the text before the whole conversation changed."""
    return mark_stale_from(state, 0) if state.conversation.transcript.messages else state


def apply_tools_changed(state: State, event: ToolsChanged, at: float, proof: str) -> State:
    after = add_server_tools(state, event)
    return after if after.settings.tools == state.settings.tools else mark_all_stale(after)


def mark_stale_from(state: State, first: int) -> State:
    """Mark reasoning from this message on as stale."""
    earlier = tuple(each for each in state.conversation.stale_ranges if each[0] < first)
    return replace(
        state,
        conversation=replace(
            state.conversation, stale_ranges=(*earlier, (first, len(state.conversation.transcript.messages)))
        ),
    )
