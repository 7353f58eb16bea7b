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

from ..values.cached import Cause, Layer, PrefixMoved
from ..values.event import Compacted
from ..values.request import Request, ToolChoice, ToolSpec
from ..values.settings import Settings
from .asked import Asked
from .catalogue import laid_out
from .context import memory_of, offered_tools, prompt_key
from .effects import End
from .stand_ins import names_called
from .state import State

SETTINGS_THAT_MOVE = ("chain", "output", "thinking", "tool_choice", "extras")
"""Besides tools and instructions: what providers keep prompts apart by."""
UNAVOIDED = ("compacted", "memory_loaded", "choice_released", "parameter_refused", "tool_called")
"""Causes that end no run, however strict."""
STRICT = (
    "the beginning of the prompt moved: {layer}, first at {block}, because {why}."
    ' Take the change back and resume, or allow it with Agent(prefix="report")'
)


def moved(state: State, request: Request, *, aside: bool = False, chosen: bool = False) -> PrefixMoved | None:
    """What of the last request's prefix this one does not begin with; None when all is as it was.

    What is asked `aside` is the conversation or the beginning of it, mostly with a question behind it;
    whoever else than the run's model is asked had no prefix.  `chosen`: the tool choice is the caller's, step
    by step.
    """
    asked = state.asked
    if asked is None or (aside and request.model.seat != state.settings.model.seat):
        return None
    if aside:
        told = request.messages if request.compacts else request.messages[:-1]
        asked = replace(asked, view=asked.view[: len(told)], choice=request.tool_choice)
        request = replace(request, messages=told)
    fair = state.prompt_tokens - state.slack_tokens
    for layer, block, cause, why in _differences(state, asked, request, chosen=chosen):
        return PrefixMoved(layer=layer, block=block, cause=cause, why=why, anew_tokens=fair)
    return None


def asked_now(state: State, choice: ToolChoice) -> Asked:
    """What a request that is sent in this state, with this tool choice, has in front."""
    tools, _ = laid_out(state, offered_tools(state))
    return Asked(
        settings=state.settings,
        tools=tools,
        shown=state.shown,
        view=state.view,
        memory=memory_of(state),
        cache_key=prompt_key(state),
        changes=len(state.recorded),
        choice=choice,
    )


def prefix_moved(state: State, event: PrefixMoved, at: float, proof: str) -> State:
    """Told once; but whoever wants it strict is told until the change is taken back."""
    run = replace(state.run, prefix_moved=event)
    if _refused(state.settings, event):
        return replace(state, run=run)
    return replace(state, run=run, asked=None, hits=replace(state.hits, moved=event))


def refusal(state: State) -> End | None:
    event = state.run.prefix_moved
    if event is None or not _refused(state.settings, event):
        return None
    return End(stop="failed", reason=STRICT.format(layer=event.layer, block=event.block, why=event.why))


def _refused(settings: Settings, event: PrefixMoved) -> bool:
    """Whoever gives a chain of models wants it used: going on with the next one is no accident.  Nor is a
    conversation made shorter before it no longer fits: who does not want that says so (`compaction`); nor
    are notes, which are loaded at points that were chosen; nor a forced call that is no longer forced; nor a
    parameter that the endpoint refused; nor what the model called, which nobody can take back."""
    chosen = event.cause in UNAVOIDED
    wanted = chosen or (event.cause == "model_switched" and bool(settings.models))
    return settings.prefix == "strict" and not wanted


def _differences(
    state: State, asked: Asked, request: Request, *, chosen: bool
) -> Iterator[tuple[Layer, str, Cause, str]]:
    settings, before = state.settings, asked.settings
    if request.model.seat != before.model.seat:
        why = f"the model was {before.model.name} before"
        yield "model", request.model.name, "model_switched", why
    if request.tools != asked.tools:
        cause, why = _why_tools(state, asked)
        yield "tools", _tool_at(request.tools, _first(asked.tools, request.tools)), cause, why
    if request.model.abilities.called_tools_declared:
        declared = names_called(asked.view, request.model, offered=bool(asked.tools))
        called = names_called(request.messages, request.model, offered=bool(request.tools))
        if called != declared:
            at = _first(declared, called)
            why = "it was called and is not offered, and the provider wants called tools declared"
            yield "tools", f"tool {at + 1} ({called[at] if at < len(called) else 'gone'})", "tool_called", why
    if settings.instructions != before.instructions:
        yield "system", "instructions", "settings_changed", "the agent's instructions changed"
    if memory_of(state) != asked.memory:
        yield "memory", *_why_memory(state, asked)
    for name in _changed(before, settings) if settings is not before else ():
        yield "settings", name, "settings_changed", f"the agent's {name} changed"
    able = request.model.abilities.choice_in_prefix
    same = request.tool_choice == asked.choice
    if not same and _kept_apart(asked.choice, able) != _kept_apart(request.tool_choice, able):
        why = f"the tool choice was {_named(asked.choice)} and is {_named(request.tool_choice)}"
        yield "settings", "tool_choice", "choice_changed" if chosen else "choice_released", why
    if request.cache_key != asked.cache_key:
        yield "settings", "cache key", *_why_key(asked, request)
    if request.messages[: len(asked.view)] != asked.view:
        yield "history", _part_at(asked, request), *_why_view(state, asked)


def _why_key(asked: Asked, request: Request) -> tuple[Cause, str]:
    if not request.cache_key:
        return "parameter_refused", "the endpoint refused cache parameters"
    if not asked.cache_key:
        return "parameter_refused", "cache parameters are tried again in a new run"
    return "settings_changed", "prompts are kept apart by agent and tenant, and one of them is another"


def _kept_apart(choice: ToolChoice, able: tuple[str, ...]) -> tuple[object, ...]:
    """What of a tool choice is part of the cached prompt."""
    mode = choice.mode if choice.mode in ("any", "tool") and "forced" in able else ""
    none = choice.mode == "none" and "none" in able
    return mode, choice.name if mode else "", none, choice.parallel or "parallel" not in able


def _named(choice: ToolChoice) -> str:
    return f"{choice.name or choice.mode!r}{'' if choice.parallel else ', one call at a time'}"


def _changed(before: Settings, now: Settings) -> Iterator[str]:
    for name in SETTINGS_THAT_MOVE:
        if getattr(before, name) != getattr(now, name):
            yield name


def _why_memory(state: State, asked: Asked) -> tuple[str, Cause, str]:
    before, now = asked.memory.split("\n"), memory_of(state).split("\n")
    at = _first(before, now)
    named = (now[at] if at < len(now) else before[at]).partition(":")[0] if state.notebook.text else ""
    block = f"note {named}" if named[1:].isdigit() else "notes"
    if (state.settings.memory is None) != (asked.settings.memory is None):
        return block, "settings_changed", "the agent's memory changed"
    shown = state.notebook.shown
    return block, "memory_loaded", f"the notes were loaded: {shown.why if shown else ''}"


def _why_tools(state: State, asked: Asked) -> tuple[Cause, str]:
    new = state.shown[len(asked.shown) :]
    if new and state.settings.tools == asked.settings.tools:
        return "tools_shown", f"the model was shown {', '.join(new)}"
    return "settings_changed", "the agent's tools changed"


def _why_view(state: State, asked: Asked) -> tuple[Cause, str]:
    since = state.recorded[asked.changes :]
    told = (
        "; ".join(dict.fromkeys(event.why for event in since)) or "what is sent of earlier messages differs"
    )
    return "compacted" if any(isinstance(event, Compacted) for event in since) else "view_changed", told


def _first(before: Sequence[object], now: Sequence[object]) -> int:
    """Where two lines first differ; behind the shorter one when it is the beginning of the other."""
    for at, (old, new) in enumerate(zip(before, now, strict=False)):
        if old is not new and old != new:
            return at
    return min(len(before), len(now))


def _tool_at(tools: tuple[ToolSpec, ...], at: int) -> str:
    return f"tool {at + 1} ({tools[at].name})" if at < len(tools) else f"tool {at + 1} (gone)"


def _part_at(asked: Asked, request: Request) -> str:
    at = _first(asked.view, request.messages)
    if at >= len(request.messages):
        return f"message {at + 1} (gone)"
    part = _first(asked.view[at].parts, request.messages[at].parts)
    return f"message {request.messages[at].id or at + 1}, part {part + 1}"
