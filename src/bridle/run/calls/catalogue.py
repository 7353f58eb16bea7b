"""An agent's tools, laid out: what is shown from the beginning, what is to be found.

Few tools are all shown, in the order given.  Too many, or too large ones, become a catalogue:
those marked `always`, those the provider runs itself and the one whose call is forced are shown,
`search_tools` behind them, and the rest is hidden until somebody finds it.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from bridle.core.context.excerpt import READ_RESULT
from bridle.core.context.token_estimate import estimate_tool_tokens
from bridle.core.memory import FORGET_TOOL, REMEMBER_TOOL
from bridle.ports.tool import Tool
from bridle.ports.tool_index import ToolIndex
from bridle.tools.search.lexical_index import LexicalIndex
from bridle.tools.search.search_tools import SEARCH_TOOL_NAME, SearchTools
from bridle.values.errors import BadTool, MisuseError
from bridle.values.memory import Memory
from bridle.values.request import ToolChoice, ToolSpec
from bridle.values.settings import ToolCatalogue

BUILT_IN_TOOLS = (READ_RESULT,)
"""Tools of ours that wait until they are of use."""
LOG = logging.getLogger("bridle")
FIND_SECONDS_MAX = 10.0
"""How long the first words may take to be looked up: without an answer the model still has `search_tools`."""


class ToolLayout(NamedTuple):
    tools: Mapping[str, Tool]
    """Everything that can be run."""
    visible: tuple[ToolSpec, ...]
    hidden_tools: tuple[ToolSpec, ...]
    catalogue: ToolCatalogue | None = None
    search: SearchTools | None = None


def make_tool_layout(
    tools: Mapping[str, Tool],
    limits: ToolCatalogue,
    index: ToolIndex | None,
    forced: ToolChoice,
    answer: str = "",
    memory: Memory | None = None,
) -> ToolLayout:
    """`answer` is the name of the answer's type, where it has one."""
    notes = (REMEMBER_TOOL, FORGET_TOOL) if memory is not None and memory.tools else ()
    for spec in BUILT_IN_TOOLS:
        if spec.name in tools:
            raise BadTool(
                f"tool `{spec.name}`: Bridle has a tool of that name, which yours would hide;"
                " give yours another name with @tool(name=…)"
            )
    ours = tuple(spec for spec in BUILT_IN_TOOLS if spec.name != answer)
    # Notes may be kept otherwise: the agent's own tool of the name of one of these takes its place.
    specs = (
        *(tool.spec for tool in tools.values()),
        *(spec for spec in notes if spec.name not in (*tools, answer)),
    )
    if len(specs) <= limits.shown_max and estimate_tool_tokens(specs) <= limits.tokens_max:
        return ToolLayout(tools, specs, ours)
    if SEARCH_TOOL_NAME in tools:
        raise MisuseError(
            f"{len(specs)} tools are too many to be shown, and {SEARCH_TOOL_NAME!r} is what finds them;"
            f" give your tool of that name another one, or raise tools_shown_max"
        )
    always = tuple(spec for spec in specs if spec.always_visible or spec.native or _is_forced(forced, spec))
    kept = {spec.name for spec in always}
    hidden = tuple(spec for spec in specs if spec.name not in kept)
    if not hidden:
        return ToolLayout(tools, specs, ours)
    search = SearchTools(index or LexicalIndex(), hidden, limits.found_max)
    shown = (*always, search.spec)
    _check_visible_limits(shown, limits)
    return ToolLayout({**tools, SEARCH_TOOL_NAME: search}, shown, (*hidden, *ours), limits, search)


async def find_initial_tools(
    search: SearchTools | None, query: str, limit: int, seconds: float | None
) -> tuple[tuple[str, ...], str]:
    """What the first words of a session are about, and what went wrong on the way."""
    if search is None or limit == 0:
        return (), ""
    try:
        async with asyncio.timeout(FIND_SECONDS_MAX if seconds is None else min(seconds, FIND_SECONDS_MAX)):
            return await search.find(query, limit), ""
    except Exception as error:  # noqa: BLE001 - an index is foreign code, and a guess is not worth a run
        LOG.warning("the index of tools raised %r; nothing is shown for the first words", error)
        return (), f"the index failed with {type(error).__name__}"


def _is_forced(choice: ToolChoice, spec: ToolSpec) -> bool:
    return choice.mode == "tool" and choice.name == spec.name


def _check_visible_limits(shown: tuple[ToolSpec, ...], limits: ToolCatalogue) -> None:
    tokens = estimate_tool_tokens(shown)
    if len(shown) > limits.shown_max:
        raise MisuseError(
            f"{len(shown) - 1} tools are always shown, and {limits.shown_max} may be, {SEARCH_TOOL_NAME} among them;"
            " mark fewer of them always, or raise tools_shown_max"
        )
    if tokens > limits.tokens_max:
        raise MisuseError(
            f"the tools that are always shown take about {tokens} tokens, and {limits.tokens_max} is most;"
            " mark fewer of them always, or raise tool_tokens_max"
        )
