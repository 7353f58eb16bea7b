"""More tools than can be shown: which of them the model sees, and since when.

A session begins with the tools that are always shown and those its first words are about; the
model looks for more (`search_tools`), or calls one it remembers.  Whatever it found or called it
has from the next request on, for good.  Each step is a recorded event that says what it costs.

Where a new definition stands decides about the cost.  Tools come first in every prompt, so one
more of them moves all that follows, and the provider reads it anew.  Some endpoints know better:
there all tools are declared from the beginning, outside the prompt, and the result that brought
a tool names it.  Then nothing moves at all.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from bridle.core.context.excerpt import reveal_reader_tool
from bridle.core.context.model_constraints import is_sent_to
from bridle.core.context.token_estimate import estimate_tool_tokens
from bridle.core.effects import EndRun, FindTools, RevealTools
from bridle.core.state import State
from bridle.values.events import RequestAdjusted
from bridle.values.message import Message, Part, ToolCall, ToolResult
from bridle.values.model import Model
from bridle.values.request import ToolChoice, ToolSpec
from bridle.values.settings import Settings

from .permission import decide_hosted_permission

INITIAL_REASON = "what the session's first words are about"
WANTED_REASON = "the model found or called it"
FORCED_REASON = "the call of it is to be forced"
INITIAL_SEARCHES = 2
"""How many searches' worth of tools a session begins with: a good guess saves a turn, a bad one tokens."""


def plan_tool_reveal(state: State, deadline: float | None) -> FindTools | RevealTools | None:
    """What has to be found or shown before the model is asked."""
    reader = reveal_reader_tool(state)
    if reader is not None:
        return _make_reveal(state, reader.names, reader.why)
    catalogue = state.settings.catalogue
    if catalogue is None:
        return None
    if not state.tools_searched:
        room = max(0, catalogue.shown_max - len(state.settings.tools))
        limit = min(room, INITIAL_SEARCHES * catalogue.found_max)
        return FindTools(query=_initial_query(state), limit=limit, deadline=deadline)
    wanted = _hidden_names(state, state.tools_to_reveal)
    return _make_reveal(state, wanted, WANTED_REASON) if wanted else None


def choose_initial_tools(state: State, found: tuple[str, ...], trouble: str = "") -> RevealTools:
    """What was called in a history, and what was found, as far as there is room."""
    settings = state.settings
    assert settings.catalogue is not None
    names = _hidden_names(state, (*_called_names(state), *found))
    hidden = {spec.name: spec for spec in settings.hidden_tools}
    room = settings.catalogue.shown_max - len(settings.tools) - len(state.revealed_tools)
    left = settings.catalogue.tokens_max - estimate_tool_tokens(settings.tools)
    chosen: list[str] = []
    for name in names:
        cost = estimate_tool_tokens((hidden[name],))
        # A large one that does not fit makes place for the smaller ones behind it.
        if len(chosen) < room and cost <= left:
            chosen.append(name)
            left -= cost
    why = f"{INITIAL_REASON}; {trouble}" if trouble else INITIAL_REASON
    return replace(_make_reveal(state, tuple(chosen), why), initial=True)


def reveal_forced_tool(state: State, choice: ToolChoice) -> RevealTools | None:
    """A call of a tool that was never shown cannot be forced."""
    wanted = _hidden_names(state, (choice.name,)) if choice.mode == "tool" else ()
    return _make_reveal(state, wanted, FORCED_REASON) if wanted else None


def name_revealed_tools(state: State, message: Message) -> tuple[Message, tuple[str, ...]]:
    """The results as they are sent, and the tools that the model is to have from then on.

    A result names the tools that it brings and that were never shown, each once.  An error names
    none, because providers take nothing but words in one; what was called in vain is shown all the same.
    """
    if state.settings.catalogue is None:
        return message, ()
    called = {item.call.id: item.call.name for item in state.pending_calls}
    reader = reveal_reader_tool(state)
    more = reader.names if reader is not None else ()
    owed: list[str] = []
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            parts.append(part)
            continue
        beside = () if part.is_error else more
        names = _hidden_names(state, (*part.reveals_tools, called.get(part.call_id, ""), *beside))
        new = tuple(name for name in names if name not in owed)
        owed += new
        parts.append(replace(part, reveals_tools=() if part.is_error else new))
    return replace(message, parts=tuple(parts)), tuple(owed)


def split_deferred_tools(
    state: State, shown: tuple[ToolSpec, ...]
) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """The tools in front of the prompt, and those outside of it."""
    settings = state.settings
    if not _can_defer_tools(settings):
        return shown, ()
    # A tool that was found earlier may be one of those that this agent always shows.
    named = _tools_named_in_results(state) & {spec.name for spec in settings.hidden_tools}
    inside = tuple(spec for spec in shown if spec.name not in named)
    names = frozenset(spec.name for spec in inside)
    return inside, tuple(spec for spec in settings.hidden_tools if spec.name not in names)


def _can_defer_tools(settings: Settings) -> bool:
    return settings.catalogue is not None and settings.model.abilities.deferred_tools


def _make_reveal(state: State, names: tuple[str, ...], why: str) -> RevealTools:
    hidden = {spec.name: spec for spec in state.settings.hidden_tools}
    named = _tools_named_in_results(state) if _can_defer_tools(state.settings) else frozenset()
    moving = any(name not in named for name in names) and state.reply_count > 0
    return RevealTools(
        names=names,
        why=why,
        tokens=estimate_tool_tokens(tuple(hidden[name] for name in names)),
        uncached_tokens=state.prompt_tokens if moving else 0,
    )


def _hidden_names(state: State, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the hidden tools among the names that were never shown, each once."""
    hidden = frozenset(spec.name for spec in state.settings.hidden_tools)
    return tuple(name for name in dict.fromkeys(names) if name in hidden and name not in state.revealed_tools)


def _tools_named_in_results(state: State) -> frozenset[str]:
    """What results name in what is sent: there, and only there, a tool outside the prompt is let in."""
    return frozenset(
        name
        for message in state.view
        if message.role == "tool"
        for part in message.parts
        if isinstance(part, ToolResult)
        for name in part.reveals_tools
    )


def _called_names(state: State) -> tuple[str, ...]:
    return tuple(call.name for message in state.transcript.messages for call in message.calls)


def _initial_query(state: State) -> str:
    """What a person said, and not what was looked up for it."""
    return state.run.prompt.text


# What is stopped before it reaches a provider that cannot take it, and what is said about it.
#
# Some of what an agent is given belongs to one provider: a field of its request (`Extra`), a tool that it
# runs itself (`ToolSpec.native`).  To any other provider these are an error, or worse, mean something else,
# so they are not sent there.  Nor is a tool offered that a provider would run without asking, where the
# policy wants it denied or a person asked.
#
# What was asked for and is not done is recorded (`RequestAdjusted`); with `on_adjusted="error"` the run ends
# before anything is sent.


ADJUSTED_REASON = '{what}. Change what is asked for, or allow the difference with Agent(on_adjusted="event")'


def filter_offered_tools(state: State, specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Those of the tools that may be sent to the current model."""
    return tuple([spec for spec in specs if spec.native is None or not _explain_withheld(state, spec)])


def list_withheld_reasons(state: State, specs: Iterable[ToolSpec]) -> tuple[str, ...]:
    """Why tools that the provider runs itself are not offered, one sentence each."""
    return tuple(filter(None, [_explain_withheld(state, spec) for spec in specs if spec.native is not None]))


def _explain_withheld(state: State, spec: ToolSpec) -> str:
    model, called = state.settings.model, f"the hosted tool {spec.name!r} is not offered"
    if not is_sent_to(spec.native_to, model):
        return f"{called}: it belongs to {', '.join(spec.native_to)}, and {model.name} is asked"
    decision = decide_hosted_permission(state, spec)
    if decision.permission == "deny":
        return f"{called}: it is not allowed ({decision.rule})"
    if decision.permission == "ask":
        return f"{called}: its provider runs it without asking, and a person is to be asked ({decision.rule})"
    return ""


def apply_request_adjusted(state: State, event: RequestAdjusted, at: float, proof: str) -> State:
    """Recorded once a run; whoever wants an error gets it until the cause is gone."""
    run = state.run
    if state.settings.on_adjusted == "error":
        return replace(state, run=replace(run, refused_adjustments=event.adjustments))
    return replace(state, run=replace(run, recorded_notes=(*run.recorded_notes, *event.adjustments)))


def end_if_adjusted(state: State) -> EndRun | None:
    adjusted = state.run.refused_adjustments
    return (
        EndRun(stop="failed", reason=ADJUSTED_REASON.format(what="; ".join(adjusted))) if adjusted else None
    )


# Tools that a request declares only because they were called before.
#
# Where the provider wants every called tool declared (`Abilities.called_tools_declared`) and none is
# offered, the codec declares each called tool by a stand-in.  Stand-ins are in front of the prompt, so the
# first call of a tool that was not offered moves everything behind them.


def stand_in_names(messages: Sequence[Message], model: Model, *, offered: bool) -> tuple[str, ...]:
    """The tools that stand-ins declare, in the order of their first calls."""
    return tuple(first_call_positions(messages, model, offered=offered))


def first_call_positions(messages: Sequence[Message], model: Model, *, offered: bool) -> dict[str, int]:
    """The same, each with the place of the message that called it first."""
    if offered or not model.abilities.called_tools_declared:
        return {}
    places: dict[str, int] = {}
    for at, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall):
                places.setdefault(part.name, at)
    return places
