"""Lays out an agent's tools: which are visible from the start, and which the model must search for.

A few tools are all visible, in the given order.  With too many, or too large ones, only these are visible:
tools marked `always`, tools the provider runs itself, a tool whose call is forced, and then `search_tools`.
The others are hidden until a search finds them.

Tools that a client brings with its request (`is_brought`) are visible and count against no limit: the limits are the
agent's own, and its own tools are laid out as without a client.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from typing import NamedTuple

from bridle.core.context.excerpt import READ_RESULT
from bridle.core.context.token_estimate import estimate_tool_tokens
from bridle.core.note_tools import FORGET_TOOL, REMEMBER_TOOL
from bridle.ports.tool import Tool
from bridle.ports.tool_index import ToolIndex
from bridle.tools.search.search_tools import SEARCH_TOOL_NAME, SearchTools
from bridle.values.errors import BadTool, MisuseError
from bridle.values.memory import Memory
from bridle.values.request import ToolChoice, ToolSpec
from bridle.values.settings import Settings, ToolCatalogue
from bridle.values.text import escape_text, locate_error

BUILT_IN_TOOLS = (READ_RESULT,)
"""Bridle's own tools, hidden until they are useful."""
NOTE_TOOLS = (REMEMBER_TOOL, FORGET_TOOL)
LOG = logging.getLogger("bridle")
# not from outside: time of a function of the user's program
FIND_SECONDS_MAX = 10.0
"""Time limit of the search for the first prompt; if it fails, the model still has `search_tools`."""


class ToolLayout(NamedTuple):
    tools: Mapping[str, Tool]
    """All tools that can run, by name."""
    visible: tuple[ToolSpec, ...]
    hidden_tools: tuple[ToolSpec, ...]
    catalogue: ToolCatalogue | None = None
    search: SearchTools | None = None


def make_tool_layout(
    tools: Mapping[str, Tool],
    limits: ToolCatalogue,
    index: ToolIndex | None,
    forced: ToolChoice,
    memory: Memory | None = None,
    program_tools: Collection[str] = (),
) -> ToolLayout:
    """Split the tools into visible and hidden ones.  `program_tools` are names of tools that only programs call."""
    names = {*tools, *program_tools}
    notes = NOTE_TOOLS if memory is not None and memory.tools else ()
    check_built_in_names(BUILT_IN_TOOLS, names)
    check_built_in_names(notes, names, "Memory(tools=False) leaves ours out")
    specs = (*(tool.spec for tool in tools.values()), *notes)
    own = tuple(spec for spec in specs if not is_brought(spec))
    if len(own) <= limits.shown_max and estimate_tool_tokens(own) <= limits.tokens_max:
        return ToolLayout(tools, specs, BUILT_IN_TOOLS)
    if SEARCH_TOOL_NAME in names:
        raise MisuseError(
            f"{len(own)} tools are too many to show at once, so Bridle adds a tool {SEARCH_TOOL_NAME!r};"
            f" rename your tool of that name, or raise tools_shown_max"
        )
    always = tuple(spec for spec in own if spec.always_visible or spec.native or _is_forced(forced, spec))
    kept = {spec.name for spec in always}
    hidden = tuple(spec for spec in own if spec.name not in kept)
    if not hidden:
        return ToolLayout(tools, specs, BUILT_IN_TOOLS)
    index = index or import_module("bridle.tools.search.lexical_index").LexicalIndex()
    search = SearchTools(index, hidden, limits.found_max)
    shown = (*always, search.spec)
    _check_visible_limits(shown, limits)
    brought = tuple(spec for spec in specs if is_brought(spec))
    return ToolLayout(
        {**tools, SEARCH_TOOL_NAME: search}, (*shown, *brought), (*hidden, *BUILT_IN_TOOLS), limits, search
    )


def check_built_in_names(built_in: Iterable[ToolSpec], names: Collection[str], remedy: str = "") -> None:
    """Raise `BadTool` if one of the names is that of a tool of Bridle, which it would replace."""
    for spec in built_in:
        # guard: built-in-tool-name
        if spec.name in names:
            more = f", or {remedy}" if remedy else ""
            raise BadTool(
                f"tool `{spec.name}`: Bridle has a tool with that name;"
                f" give yours another name with @tool(name=…){more}"
            )


def list_taken_names(tools: Collection[str], settings: Settings) -> frozenset[str]:
    """The names that no other tool of an agent may have: its own tools, the harness's, and the calls that answer."""
    answers = settings.output.call_names if settings.output is not None else ()
    # guard: names-of-session-tools
    return frozenset((*tools, *settings.tool_names, *answers))


def is_brought(spec: ToolSpec) -> bool:
    """True for a tool that a client brings with its request and runs itself; such a tool is never hidden."""
    return spec.external and spec.always_visible


async def find_initial_tools(
    search: SearchTools | None, query: str, limit: int, seconds: float | None
) -> tuple[tuple[str, ...], str]:
    """Names of the tools found for the first prompt of a session, and an error message or ""."""
    if search is None or limit == 0:
        return (), ""
    try:
        async with asyncio.timeout(FIND_SECONDS_MAX if seconds is None else min(seconds, FIND_SECONDS_MAX)):
            return await search.find(query, limit), ""
    except Exception as error:  # noqa: BLE001 - an index is foreign code, and a guess is not worth a run
        text = f"the tool index raised {locate_error(error)}"
        # guard: index-warning-escaped
        LOG.warning("%s; no tools are revealed for the first prompt", escape_text(text))
        return (), f"the index failed with {type(error).__name__}"


def _is_forced(choice: ToolChoice, spec: ToolSpec) -> bool:
    return choice.mode == "tool" and choice.name == spec.name


def _check_visible_limits(shown: tuple[ToolSpec, ...], limits: ToolCatalogue) -> None:
    tokens = estimate_tool_tokens(shown)
    if len(shown) > limits.shown_max:
        raise MisuseError(
            f"{len(shown) - 1} tools are always visible, but at most {limits.shown_max} may be, including"
            f" {SEARCH_TOOL_NAME}; set @tool(always=True) on fewer, or raise tools_shown_max"
        )
    if tokens > limits.tokens_max:
        raise MisuseError(
            f"the always visible tools take about {tokens} tokens, but at most {limits.tokens_max} are allowed;"
            " set @tool(always=True) on fewer, or raise tool_tokens_max"
        )
