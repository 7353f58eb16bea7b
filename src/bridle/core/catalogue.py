"""More tools than can be shown: which of them the model sees, and since when.

A session begins with the tools that are always shown and those its first words are about; the
model looks for more (`search_tools`), or calls one it remembers.  Whatever it found or called it
has from the next request on, for good.  Each step is a recorded event that says what it costs.

Where a new definition stands decides about the cost.  Tools come first in every prompt, so one
more of them moves all that follows, and the provider reads it anew.  Some endpoints know better:
there all tools are declared from the beginning, outside the prompt, and the result that brought
a tool names it.  Then nothing moves at all.
"""

from msgspec.structs import replace

from ..values.message import Message
from ..values.parts import Part, ToolResult
from ..values.request import ToolChoice, ToolSpec
from ..values.settings import Settings
from .effects import FindTools, ShowTools
from .excerpt import reader_wanted
from .saying import tools_tokens
from .state import State

FIRST_WORDS = "what the session's first words are about"
WANTED = "the model found or called it"
CHOSEN = "the call of it is to be forced"
SEARCHES_AT_FIRST = 2
"""How many searches' worth of tools a session begins with: a good guess saves a turn, a bad one tokens."""


def to_be_shown(state: State, deadline: float | None) -> FindTools | ShowTools | None:
    """What has to be found or shown before the model is asked."""
    reader = reader_wanted(state)
    if reader is not None:
        return _show(state, reader.names, reader.why)
    catalogue = state.settings.catalogue
    if catalogue is None:
        return None
    if not state.looked:
        room = max(0, catalogue.shown_max - len(state.settings.tools))
        limit = min(room, SEARCHES_AT_FIRST * catalogue.found_max)
        return FindTools(query=_first_words(state), limit=limit, deadline=deadline)
    wanted = _unseen(state, state.owed)
    return _show(state, wanted, WANTED) if wanted else None


def first_shown(state: State, found: tuple[str, ...], trouble: str = "") -> ShowTools:
    """What was called in a history, and what was found, as far as there is room."""
    settings = state.settings
    assert settings.catalogue is not None
    names = _unseen(state, (*_called(state), *found))
    hidden = {spec.name: spec for spec in settings.hidden}
    room = settings.catalogue.shown_max - len(settings.tools) - len(state.shown)
    left = settings.catalogue.tokens_max - tools_tokens(settings.tools)
    chosen: list[str] = []
    for name in names:
        cost = tools_tokens((hidden[name],))
        # A large one that does not fit makes place for the smaller ones behind it.
        if len(chosen) < room and cost <= left:
            chosen.append(name)
            left -= cost
    why = f"{FIRST_WORDS}; {trouble}" if trouble else FIRST_WORDS
    return replace(_show(state, tuple(chosen), why), first=True)


def chosen_unseen(state: State, choice: ToolChoice) -> ShowTools | None:
    """A call of a tool that was never shown cannot be forced."""
    wanted = _unseen(state, (choice.name,)) if choice.mode == "tool" else ()
    return _show(state, wanted, CHOSEN) if wanted else None


def naming(state: State, message: Message) -> tuple[Message, tuple[str, ...]]:
    """The results as they are sent, and the tools that the model is to have from then on.

    A result names the tools that it brings and that were never shown, each once.  An error names
    none, because providers take nothing but words in one; what was called in vain is shown all the same.
    """
    if state.settings.catalogue is None:
        return message, ()
    called = {item.call.id: item.call.name for item in state.calls}
    reader = reader_wanted(state)
    more = reader.names if reader is not None else ()
    owed: list[str] = []
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolResult):
            parts.append(part)
            continue
        beside = () if part.is_error else more
        names = _unseen(state, (*part.shows, called.get(part.call_id, ""), *beside))
        new = tuple(name for name in names if name not in owed)
        owed += new
        parts.append(replace(part, shows=() if part.is_error else new))
    return replace(message, parts=tuple(parts)), tuple(owed)


def laid_out(state: State, shown: tuple[ToolSpec, ...]) -> tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]]:
    """The tools in front of the prompt, and those outside of it."""
    settings = state.settings
    if not _defers(settings):
        return shown, ()
    # A tool that was found earlier may be one of those that this agent always shows.
    named = _named(state) & {spec.name for spec in settings.hidden}
    inside = tuple(spec for spec in shown if spec.name not in named)
    names = frozenset(spec.name for spec in inside)
    return inside, tuple(spec for spec in settings.hidden if spec.name not in names)


def _defers(settings: Settings) -> bool:
    return settings.catalogue is not None and settings.model.abilities.deferred_tools


def _show(state: State, names: tuple[str, ...], why: str) -> ShowTools:
    hidden = {spec.name: spec for spec in state.settings.hidden}
    named = _named(state) if _defers(state.settings) else frozenset()
    moving = any(name not in named for name in names) and state.replies > 0
    return ShowTools(
        names=names,
        why=why,
        tokens=tools_tokens(tuple(hidden[name] for name in names)),
        anew_tokens=state.prompt_tokens if moving else 0,
    )


def _unseen(state: State, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the hidden tools among the names that were never shown, each once."""
    hidden = frozenset(spec.name for spec in state.settings.hidden)
    return tuple(name for name in dict.fromkeys(names) if name in hidden and name not in state.shown)


def _named(state: State) -> frozenset[str]:
    """What results name in what is sent: there, and only there, a tool outside the prompt is let in."""
    return frozenset(
        name
        for message in state.view
        if message.role == "tool"
        for part in message.parts
        if isinstance(part, ToolResult)
        for name in part.shows
    )


def _called(state: State) -> tuple[str, ...]:
    return tuple(call.name for message in state.transcript.messages for call in message.calls)


def _first_words(state: State) -> str:
    """What a person said, and not what was looked up for it."""
    return state.run.turn.words
