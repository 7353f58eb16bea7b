"""Selection of the tools that a request offers.

With more tools than can be shown, a session starts with those that are always visible and those relevant to
its first prompt. The model searches for more (`search_tools`), or calls one that it remembers. Tools it found
or called are part of every later request. Each step is a recorded event with its cost.

The cost depends on the position of a new definition. Tools come first in every prompt, so an additional one
is a cache miss for everything after it. Some endpoints avoid that: all tools are declared from the start,
outside the prompt, and the result that revealed a tool names it.

Some options belong to one provider: a request field (`Extra`), a hosted tool (`ToolSpec.native`). They are
not sent to other providers. A hosted tool that runs without asking is not offered if the policy denies it or
requires approval. Omitted options are recorded (`RequestAdjusted`); with `on_adjusted="error"` the run ends
before anything is sent.

If a provider requires every called tool to be declared (`Abilities.called_tools_declared`) and none is
offered, the codec declares each called tool with a stand-in. Stand-ins precede the prompt, so the first call
of a tool that was not offered is a cache miss.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from bridle.core.context.excerpt import reveal_reader_tool
from bridle.core.context.model_constraints import is_sent_to
from bridle.core.context.token_estimate import estimate_tool_tokens
from bridle.core.effects import EndRun, FindTools, RevealTools
from bridle.core.state import Phase, RequestAdjustments, RunOrigin, State
from bridle.values.events import ModelAsked, RequestAdjusted, ToolFinished, ToolsChanged
from bridle.values.message import Message, Part, ToolCall, ToolResult
from bridle.values.model import Model
from bridle.values.request import HostedSpec, ToolChoice, ToolSpec
from bridle.values.settings import Settings

from .permission import decide_hosted_permission

INITIAL_REASON = "relevant to the session's first prompt"
WANTED_REASON = "the model found or called it"
FORCED_REASON = "tool_choice forces it"
INITIAL_SEARCHES = 2
"""Size of the initial selection in searches: a good guess saves a turn, a bad one costs tokens."""


def plan_tool_reveal(state: State, deadline: float | None) -> FindTools | RevealTools | None:
    """Effect that finds or reveals tools before the next model call; None if none is needed."""
    reader = reveal_reader_tool(state)
    if reader is not None:
        return _make_reveal(state, reader.names, reader.why)
    catalogue = state.settings.catalogue
    if catalogue is None:
        return None
    if not state.tools.searched:
        room = max(0, catalogue.shown_max - len(state.settings.tools))
        limit = min(room, INITIAL_SEARCHES * catalogue.found_max)
        return FindTools(query=_initial_query(state), limit=limit, deadline=deadline)
    wanted = _hidden_names(state, state.tools.to_reveal)
    return _make_reveal(state, wanted, WANTED_REASON) if wanted else None


def choose_initial_tools(state: State, found: tuple[str, ...], search_error: str = "") -> RevealTools:
    """Tools called in an imported history, and tools found, as far as they fit."""
    settings = state.settings
    assert settings.catalogue is not None
    names = _hidden_names(state, (*_called_names(state), *found))
    hidden = {spec.name: spec for spec in settings.hidden_tools}
    room = settings.catalogue.shown_max - len(settings.tools) - len(state.tools.revealed)
    tokens_left = settings.catalogue.tokens_max - estimate_tool_tokens(settings.tools)
    chosen: list[str] = []
    for name in names:
        cost = estimate_tool_tokens((hidden[name],))
        # Skip a large tool that does not fit; smaller ones after it may.
        if len(chosen) < room and cost <= tokens_left:
            chosen.append(name)
            tokens_left -= cost
    why = f"{INITIAL_REASON}; {search_error}" if search_error else INITIAL_REASON
    return replace(_make_reveal(state, tuple(chosen), why), initial=True)


def reveal_forced_tool(state: State, choice: ToolChoice) -> RevealTools | None:
    """Reveal a hidden tool that `tool_choice` forces: the model must see it first."""
    wanted = _hidden_names(state, (choice.name,)) if choice.mode == "tool" else ()
    return _make_reveal(state, wanted, FORCED_REASON) if wanted else None


def name_revealed_tools(state: State, message: Message) -> tuple[Message, tuple[str, ...]]:
    """The results as sent, and the tools that they reveal to the model.

    A result names each tool that it reveals, once. An error result names none, because providers accept only
    text there; a tool called without success is revealed nevertheless.
    """
    if state.settings.catalogue is None:
        return message, ()
    called = {item.call.id: item.call.name for item in state.calls.batch.pending}
    reader = reveal_reader_tool(state)
    reader_names = reader.names if reader is not None else ()
    revealed: list[str] = []
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            parts.append(part)
            continue
        extra_names = () if part.is_error else reader_names
        names = _hidden_names(state, (*part.reveals_tools, called.get(part.call_id, ""), *extra_names))
        new = tuple(name for name in names if name not in revealed)
        revealed += new
        parts.append(replace(part, reveals_tools=() if part.is_error else new))
    return replace(message, parts=tuple(parts)), tuple(revealed)


def split_deferred_tools(
    state: State, shown: tuple[ToolSpec, ...]
) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """Tools inside the prompt, and deferred tools outside it."""
    settings = state.settings
    if not _can_defer_tools(settings):
        return shown, ()
    # A tool found earlier may now be one that the agent always shows.
    named = _tools_named_in_results(state) & {spec.name for spec in settings.hidden_tools}
    inside = tuple(spec for spec in shown if spec.name not in named)
    names = frozenset(spec.name for spec in inside)
    return inside, tuple(spec for spec in settings.hidden_tools if spec.name not in names)


def _can_defer_tools(settings: Settings) -> bool:
    return settings.catalogue is not None and settings.model.abilities.deferred_tools


def _make_reveal(state: State, names: tuple[str, ...], why: str) -> RevealTools:
    hidden = {spec.name: spec for spec in state.settings.hidden_tools}
    named = _tools_named_in_results(state) if _can_defer_tools(state.settings) else frozenset()
    moving = any(name not in named for name in names) and state.totals.reply_count > 0
    return RevealTools(
        names=names,
        why=why,
        tokens=estimate_tool_tokens(tuple(hidden[name] for name in names)),
        uncached_tokens=state.estimate.prompt_tokens if moving else 0,
    )


def _hidden_names(state: State, names: tuple[str, ...]) -> tuple[str, ...]:
    """Hidden tools among the names that were not revealed yet, each once."""
    hidden = frozenset(spec.name for spec in state.settings.hidden_tools)
    return tuple(name for name in dict.fromkeys(names) if name in hidden and name not in state.tools.revealed)


def _tools_named_in_results(state: State) -> frozenset[str]:
    """Tools named in the results that are sent; only these activate a deferred tool."""
    return frozenset(
        name
        for message in state.conversation.view
        if message.role == "tool"
        for part in message.parts
        if isinstance(part, ToolResult)
        for name in part.reveals_tools
    )


def _called_names(state: State) -> tuple[str, ...]:
    return tuple(call.name for message in state.conversation.transcript.messages for call in message.calls)


def _initial_query(state: State) -> str:
    """The user's text, without retrieved context."""
    return state.run.prompt.text


HANDOVERS_REASON = (
    "the run was handed over {count} times and not to {name}: Agent(handovers_max={limit}) allows no more;"
    " resume with a higher limit to go on"
)
ADJUSTED_REASON = '{what}. Change the request, or allow the difference with Agent(on_adjusted="event")'


def filter_offered_tools(state: State, specs: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """Tools that may be sent to the current model."""
    if not state.settings.has_conditional_tools:
        return specs
    return tuple(
        [
            spec
            for spec in specs
            if spec.is_declared and (spec.native is None or not _explain_withheld(state, spec))
        ]
    )


def list_withheld_reasons(state: State, specs: Iterable[ToolSpec]) -> tuple[str, ...]:
    """Reasons why hosted tools are not offered, one sentence each."""
    if not state.settings.has_conditional_tools:
        return ()
    return tuple(filter(None, [_explain_withheld(state, spec) for spec in specs if spec.native is not None]))


def _explain_withheld(state: State, spec: ToolSpec) -> str:
    model, prefix = state.settings.model, f"the hosted tool {spec.name!r} is not offered"
    if spec.hosted is not None:
        if missing := explain_missing_hosted(spec.hosted, model):
            return f"{prefix}: {missing}"
    elif not is_sent_to(spec.native_to, model):
        return f"{prefix}: it belongs to {', '.join(spec.native_to)}, and {model.name} is in use"
    decision = decide_hosted_permission(state, spec)
    if decision.permission == "deny":
        return f"{prefix}: it is not allowed ({decision.rule})"
    if decision.permission == "ask":
        return f"{prefix}: its provider runs it without approval, but approval is required ({decision.rule})"
    return ""


def explain_missing_hosted(hosted: HostedSpec, model: Model) -> str:
    """Reason why a model cannot be offered a hosted tool, with the alternative; empty if it can."""
    options = dict(model.abilities.hosted).get(hosted.concept)
    # guard: hosted-tool-known
    if options is None:
        return f"{model.name} has no hosted {hosted.concept}; use {hosted.alternative}"
    # guard: hosted-restrictions-enforced
    unmet = [name for name in hosted.restrictions if name not in options]
    if unmet:
        return f"the provider of {model.name} does not enforce {', '.join(unmet)}; use {hosted.alternative}"
    return ""


def apply_request_adjusted(state: State, event: RequestAdjusted, at: float, proof: str) -> State:
    """Record adjustments once per run; with `on_adjusted="error"`, until the cause is gone."""
    run = state.run
    if state.settings.on_adjusted == "error":
        adjustments = replace(run.adjustments, refused_adjustments=event.adjustments, reported_changes=())
    else:
        notes = (*run.adjustments.recorded_notes, *event.adjustments)
        adjustments = replace(
            run.adjustments, recorded_notes=notes, adjusted_now=event.adjustments, reported_changes=()
        )
    return replace(state, run=replace(run, adjustments=adjustments))


def adjustments_after_request(adjustments: RequestAdjustments, event: ModelAsked) -> RequestAdjustments:
    """Record the notes of a request that was sent, each once."""
    recorded = adjustments.recorded_notes
    if not event.notes and adjustments.prefix_change is None and not adjustments.adjusted_now:
        return adjustments
    new = [note for note in event.notes if note not in recorded]
    if not new and adjustments.prefix_change is None and not adjustments.adjusted_now:
        return adjustments
    return RequestAdjustments(
        recorded_notes=(*recorded, *new),
        refused_adjustments=adjustments.refused_adjustments,
        step_options=adjustments.step_options,
    )


def end_if_adjusted(state: State) -> EndRun | None:
    adjusted = state.run.adjustments.refused_adjustments
    return (
        EndRun(stop="failed", reason=ADJUSTED_REASON.format(what="; ".join(adjusted))) if adjusted else None
    )


def stand_in_names(messages: Sequence[Message], model: Model, *, offered: bool) -> tuple[str, ...]:
    """Names of tools declared by stand-ins, in the order of their first calls."""
    return tuple(first_call_positions(messages, model, offered=offered))


def first_call_positions(messages: Sequence[Message], model: Model, *, offered: bool) -> dict[str, int]:
    """Names of tools declared by stand-ins, each with the index of the first message that called it."""
    if offered or not model.abilities.called_tools_declared:
        return {}
    places: dict[str, int] = {}
    for at, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                places.setdefault(part.name, at)
    return places


def note_handover(state: State, event: ToolFinished) -> State:
    """State in which another agent takes over next; the first hand-over of a reply counts."""
    spec, origin = state.settings.find_tool(event.name), state.run.origin
    if spec is None or not spec.handover or event.result.outcome != "ok" or origin.handover:
        return state
    return replace(state, run=replace(state.run, origin=replace(origin, handover=spec.handover)))


def add_agent(state: State, name: str) -> RunOrigin:
    """Origin of a run that the agent of this name takes over."""
    origin = state.run.origin
    first = origin.first_settings if origin.agents else state.settings
    return replace(origin, agents=(*origin.agents, name), handover="", first_settings=first)


def is_handover_due(state: State) -> bool:
    """True if the run waits for the settings of the agent that takes over."""
    return state.phase is Phase.CALLING_MODEL and bool(state.run.origin.handover)


def is_return_due(state: State) -> bool:
    """True if calls in doubt are settled and the run waits for the settings of the first agent."""
    return state.phase is Phase.CALLING_MODEL and state.run.origin.settles


def limit_handovers(state: State) -> tuple[EndRun, ...]:
    """End of a run that is to be handed over once more than the agent's limit allows; else empty."""
    origin, limit = state.run.origin, state.settings.handovers_max
    if limit is None or len(origin.agents) < limit:
        return ()
    reason = HANDOVERS_REASON.format(count=len(origin.agents), name=origin.handover, limit=limit)
    return (EndRun(stop="no_progress", reason=reason),)


def add_server_tools(state: State, event: ToolsChanged) -> State:
    """State with the new tools of a server after the visible ones or, with a catalogue, the hidden ones."""
    settings, tools = state.settings, state.tools
    others = tuple(each for each in tools.server_reports if each.server != event.server)
    after = replace(state, tools=replace(tools, server_reports=(*others, replace(event, added=()))))
    added = tuple(spec for spec in event.added if settings.find_tool(spec.name) is None)
    if not added:
        return after
    if settings.catalogue is not None:
        return replace(after, settings=replace(settings, hidden_tools=(*settings.hidden_tools, *added)))
    tokens = state.estimate.prompt_tokens
    return replace(
        after,
        settings=replace(settings, tools=(*settings.tools, *added)),
        estimate=replace(
            state.estimate, prompt_tokens=tokens + estimate_tool_tokens(added) if tokens else tokens
        ),
    )
