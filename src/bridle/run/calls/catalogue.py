"""Lays out an agent's tools: which are visible from the start, and which the model must search for.

A few tools are all visible, in the given order.  With too many, or too large ones, only these are visible:
tools marked `always`, tools the provider runs itself, a tool whose call is forced, and then `search_tools`.
The others are hidden until a search finds them.
"""

import asyncio
import logging
from collections.abc import Mapping
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
from bridle.values.settings import ToolCatalogue
from bridle.values.text import escape_text, locate_error

BUILT_IN_TOOLS = (READ_RESULT,)
"""Bridle's own tools, hidden until they are useful."""
LOG = logging.getLogger("bridle")
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
    output_name: str = "",
    memory: Memory | None = None,
) -> ToolLayout:
    """Split the tools into visible and hidden ones.  `output_name` is the name of the output type, if any."""
    notes = (REMEMBER_TOOL, FORGET_TOOL) if memory is not None and memory.tools else ()
    for spec in BUILT_IN_TOOLS:
        if spec.name in tools:
            raise BadTool(
                f"tool `{spec.name}`: Bridle has a tool with that name;"
                " give yours another name with @tool(name=…)"
            )
    built_in = tuple(spec for spec in BUILT_IN_TOOLS if spec.name != output_name)
    # An agent may store notes elsewhere: its own tool with one of these names replaces ours.
    specs = (
        *(tool.spec for tool in tools.values()),
        *(spec for spec in notes if spec.name not in (*tools, output_name)),
    )
    if len(specs) <= limits.shown_max and estimate_tool_tokens(specs) <= limits.tokens_max:
        return ToolLayout(tools, specs, built_in)
    if SEARCH_TOOL_NAME in tools:
        raise MisuseError(
            f"{len(specs)} tools are too many to show at once, so Bridle adds a tool {SEARCH_TOOL_NAME!r};"
            f" rename your tool of that name, or raise tools_shown_max"
        )
    always = tuple(spec for spec in specs if spec.always_visible or spec.native or _is_forced(forced, spec))
    kept = {spec.name for spec in always}
    hidden = tuple(spec for spec in specs if spec.name not in kept)
    if not hidden:
        return ToolLayout(tools, specs, built_in)
    index = index or import_module("bridle.tools.search.lexical_index").LexicalIndex()
    search = SearchTools(index, hidden, limits.found_max)
    shown = (*always, search.spec)
    _check_visible_limits(shown, limits)
    return ToolLayout({**tools, SEARCH_TOOL_NAME: search}, shown, (*hidden, *built_in), limits, search)


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
