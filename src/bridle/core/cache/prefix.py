"""The guard of the prefix: has anything moved that the request before had already sent?

Providers keep what a prompt begins with, and compare it to the byte.  Messages never change and are
encoded once, so the prefix stays as long as what it is made of stays; that is compared here, layer by
layer in the order of the prompt, before anything is sent and paid for.  What moved is named with the
first block that differs and with its cause, and is an event; under `prefix="strict"` it is the end of
the run as well.

Nothing is remembered but references: messages and tools that are the same objects cost no comparison.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from bridle.core.calls.catalogue import first_call_positions, split_deferred_tools, stand_in_names
from bridle.core.context.assemble import memory_text, offered_tools, prompt_cache_key
from bridle.core.context.summary_view import is_native_summary_accepted
from bridle.core.context.view import drop_reasoning
from bridle.core.effects import EndRun
from bridle.core.state import State
from bridle.values.cache import PrefixCause, PrefixMoved, PromptLayerName
from bridle.values.events import Compacted, ViewChanged
from bridle.values.request import Request, ToolChoice, ToolSpec
from bridle.values.settings import Settings

from .tracking import RequestSnapshot

PREFIX_SETTINGS = ("chain", "output", "thinking", "tool_choice", "extras")
"""Besides tools and instructions: what providers keep prompts apart by."""
ALLOWED_CAUSES = ("compacted", "memory_loaded", "choice_released", "parameter_refused", "tool_called")
"""Causes that end no run, however strict."""
PREFIX_MOVED_REASON = (
    "the beginning of the prompt moved: {layer}, first at {block}, because {why}."
    ' Take the change back and resume, or allow it with Agent(prefix="report")'
)


def find_prefix_change(
    state: State, request: Request, *, aside: bool = False, chosen: bool = False
) -> PrefixMoved | None:
    """What of the last request's prefix this one does not begin with; None when all is as it was.

    What is asked `aside` is the conversation or the beginning of it, mostly with a question behind it;
    whoever else than the run's model is asked had no prefix.  `chosen`: the tool choice is the caller's, step
    by step.
    """
    asked = state.last_request
    if asked is None or (aside and request.model.model_key != state.settings.model.model_key):
        return None
    if aside:
        told = request.messages if request.asks_native_summary else request.messages[:-1]
        asked = replace(asked, view=asked.view[: len(told)], tool_choice=request.tool_choice)
        request = replace(request, messages=told)
    fair = state.prompt_tokens - state.estimate_margin_tokens
    for layer, block, cause, why in _list_prefix_differences(state, asked, request, chosen=chosen):
        return PrefixMoved(layer=layer, block=block, cause=cause, why=why, uncached_tokens=fair)
    return None


def snapshot_request(state: State, choice: ToolChoice) -> RequestSnapshot:
    """What a request that is sent in this state, with this tool choice, has in front."""
    tools, _ = split_deferred_tools(state, offered_tools(state))
    return RequestSnapshot(
        settings=state.settings,
        tools=tools,
        revealed_tools=state.revealed_tools,
        view=state.view,
        memory=memory_text(state),
        cache_key=prompt_cache_key(state),
        view_change_count=len(state.view_changes),
        tool_choice=choice,
    )


def apply_prefix_moved(state: State, event: PrefixMoved, at: float, proof: str) -> State:
    """Told once; but whoever wants it strict is told until the change is taken back."""
    run = replace(state.run, prefix_change=event)
    if _is_forbidden_change(state.settings, event):
        return replace(state, run=run)
    return replace(state, run=run, last_request=None, cache=replace(state.cache, prefix_change=event))


def end_if_prefix_moved(state: State) -> EndRun | None:
    event = state.run.prefix_change
    if event is None or not _is_forbidden_change(state.settings, event):
        return None
    return EndRun(
        stop="failed", reason=PREFIX_MOVED_REASON.format(layer=event.layer, block=event.block, why=event.why)
    )


def _is_forbidden_change(settings: Settings, event: PrefixMoved) -> bool:
    """Whoever gives a chain of models wants it used: going on with the next one is no accident.  Nor is a
    conversation made shorter before it no longer fits: who does not want that says so (`compaction`); nor
    are notes, which are loaded at points that were chosen; nor a forced call that is no longer forced; nor a
    parameter that the endpoint refused; nor what the model called, which nobody can take back."""
    chosen = event.cause in ALLOWED_CAUSES
    wanted = chosen or (event.cause == "model_switched" and bool(settings.models))
    return settings.prefix == "strict" and not wanted


def _list_prefix_differences(
    state: State, asked: RequestSnapshot, request: Request, *, chosen: bool
) -> Iterator[tuple[PromptLayerName, str, PrefixCause, str]]:
    settings, before = state.settings, asked.settings
    if request.model.model_key != before.model.model_key:
        why = f"the model was {before.model.name} before"
        yield "model", request.model.name, "model_switched", why
    if request.tools != asked.tools:
        cause, why = _explain_tools_change(state, asked)
        yield (
            "tools",
            _describe_tool(request.tools, _first_difference(asked.tools, request.tools)),
            cause,
            why,
        )
    if request.model.abilities.called_tools_declared:
        declared = stand_in_names(asked.view, request.model, offered=bool(asked.tools))
        called = stand_in_names(request.messages, request.model, offered=bool(request.tools))
        if called != declared:
            at = _first_difference(declared, called)
            why = "it was called and is not offered, and the provider wants called tools declared"
            yield "tools", f"tool {at + 1} ({called[at] if at < len(called) else 'gone'})", "tool_called", why
    if settings.instructions != before.instructions:
        yield "system", "instructions", "settings_changed", "the agent's instructions changed"
    if memory_text(state) != asked.memory:
        yield "memory", *_explain_memory_change(state, asked)
    for name in _changed_settings(before, settings) if settings is not before else ():
        yield "settings", name, "settings_changed", f"the agent's {name} changed"
    able = request.model.abilities.choice_in_prefix
    same = request.tool_choice == asked.tool_choice
    if not same and _cached_choice(asked.tool_choice, able) != _cached_choice(request.tool_choice, able):
        shown = tuple(map(_describe_choice, (asked.tool_choice, request.tool_choice)))
        why = f"the tool choice was {shown[0]} and is {shown[1]}"
        yield "settings", "tool_choice", "choice_changed" if chosen else "choice_released", why
    if request.cache_key != asked.cache_key:
        yield "settings", "cache key", *_explain_key_change(asked, request)
    if request.messages[: len(asked.view)] != asked.view:
        yield "history", _describe_part(asked, request), *_explain_view_change(state, asked)


def _explain_key_change(asked: RequestSnapshot, request: Request) -> tuple[PrefixCause, str]:
    if not request.cache_key:
        return "parameter_refused", "the endpoint refused cache parameters"
    if not asked.cache_key:
        return "parameter_refused", "cache parameters are tried again in a new run"
    return "settings_changed", "prompts are kept apart by agent and tenant, and one of them is another"


def _cached_choice(choice: ToolChoice, able: tuple[str, ...]) -> tuple[object, ...]:
    """What of a tool choice is part of the cached prompt."""
    mode = choice.mode if choice.mode in ("any", "tool") and "forced" in able else ""
    none = choice.mode == "none" and "none" in able
    return mode, choice.name if mode else "", none, choice.parallel or "parallel" not in able


def _describe_choice(choice: ToolChoice) -> str:
    return f"{choice.name or choice.mode!r}{'' if choice.parallel else ', one call at a time'}"


def _changed_settings(before: Settings, now: Settings) -> Iterator[str]:
    for name in PREFIX_SETTINGS:
        if getattr(before, name) != getattr(now, name):
            yield name


def _explain_memory_change(state: State, asked: RequestSnapshot) -> tuple[str, PrefixCause, str]:
    before, now = asked.memory.split("\n"), memory_text(state).split("\n")
    at = _first_difference(before, now)
    named = (now[at] if at < len(now) else before[at]).partition(":")[0] if state.memory.text else ""
    block = f"note {named}" if named[1:].isdigit() else "notes"
    if (state.settings.memory is None) != (asked.settings.memory is None):
        return block, "settings_changed", "the agent's memory changed"
    shown = state.memory.loaded
    return block, "memory_loaded", f"the notes were loaded: {shown.why if shown else ''}"


def _explain_tools_change(state: State, asked: RequestSnapshot) -> tuple[PrefixCause, str]:
    new = state.revealed_tools[len(asked.revealed_tools) :]
    if new and state.settings.tools == asked.settings.tools:
        return "tools_shown", f"the model was shown {', '.join(new)}"
    return "settings_changed", "the agent's tools changed"


def _explain_view_change(state: State, asked: RequestSnapshot) -> tuple[PrefixCause, str]:
    since = state.view_changes[asked.view_change_count :]
    told = (
        "; ".join(dict.fromkeys(event.why for event in since)) or "what is sent of earlier messages differs"
    )
    return "compacted" if any(isinstance(event, Compacted) for event in since) else "view_changed", told


def _first_difference(before: Sequence[object], now: Sequence[object]) -> int:
    """Where two lines first differ; behind the shorter one when it is the beginning of the other."""
    for at, (old, new) in enumerate(zip(before, now, strict=False)):
        if old is not new and old != new:
            return at
    return min(len(before), len(now))


def _describe_tool(tools: tuple[ToolSpec, ...], at: int) -> str:
    return f"tool {at + 1} ({tools[at].name})" if at < len(tools) else f"tool {at + 1} (gone)"


def _describe_part(asked: RequestSnapshot, request: Request) -> str:
    at = _first_difference(asked.view, request.messages)
    if at >= len(request.messages):
        return f"message {at + 1} (gone)"
    part = _first_difference(asked.view[at].parts, request.messages[at].parts)
    return f"message {request.messages[at].id or at + 1}, part {part + 1}"


# Reasoning that outlived what it was thought after.
#
# Some models take their earlier thoughts back only behind the very words they were thought after:
# the tools, the instructions, every message before.  When any of it changes (a tool is shown, old
# pictures go, the instructions are others now), what such a model thought before is refused from
# then on.  It is left out before anybody refuses it: waiting for the refusal costs a request each time.
#
# It is decided for the model that is asked, whenever it is asked: one that comes back after tools
# were shown to another has outlived them too.  A tool that stands outside the prompt moves nothing.


STALE_REASONING_REASON = "earlier reasoning is bound to what stood before it then"


def stale_reasoning(state: State) -> ViewChanged | None:
    model = state.settings.model
    movable = state.revealed_tools or state.stale_ranges or model.abilities.called_tools_declared
    if not model.abilities.bound_thinking or not movable:
        return None
    messages = state.transcript.messages
    offered = offered_tools(state)
    # A call whose tool is declared from then on was itself thought before it was declared.
    called = max(first_call_positions(messages, model, offered=bool(offered)).values(), default=-1) + 1
    if not (state.revealed_tools or state.stale_ranges or called):
        return None
    front = {spec.name for spec in split_deferred_tools(state, offered)[0]}
    since = zip(state.revealed_tools, state.revealed_at, strict=True)
    moved = max((at for name, at in since if name in front), default=0)
    moved = max(moved, called)
    stale = {at for first, last in (*state.stale_ranges, (0, moved)) for at in range(first, last)}
    before = (messages[at] for at in sorted(stale) if state.summarized_count <= at < len(messages))
    own = (
        each
        for each in before
        if each.origin is not None and each.origin.endpoint == model.endpoint.endpoint_id
    )
    changes = tuple(drop_reasoning(state, own))
    if all(change.strip_native for change in changes):
        return None
    return ViewChanged(changes=changes, why=STALE_REASONING_REASON, model_key=model.model_key)


def mark_stale_after(state: State, event: ViewChanged | Compacted) -> State:
    """After a change of the view: what was thought since the first message it touches has lost its ground."""
    if isinstance(event, Compacted) and event.summarized_until:
        model = state.settings.model
        # Behind what its own provider made of what stood there, such a model takes its thoughts.
        return (
            state
            if model.abilities.bound_thinking and is_native_summary_accepted(event, model)
            else mark_all_stale(state)
        )
    touched = {change.message for change in event.changes if not change.strip_native}
    places = [at for at, message in enumerate(state.transcript.messages) if message.id in touched]
    return _mark_stale_from(state, min(places)) if places else state


def mark_all_stale(state: State) -> State:
    """What stands before the whole conversation is other now."""
    return _mark_stale_from(state, 0) if state.transcript.messages else state


def _mark_stale_from(state: State, first: int) -> State:
    earlier = tuple(each for each in state.stale_ranges if each[0] < first)
    return replace(state, stale_ranges=(*earlier, (first, len(state.transcript.messages))))
