"""An agent's tools, laid out: what is shown from the beginning, what is to be found.

Few tools are all shown, in the order given.  Too many, or too large ones, become a catalogue:
those marked `always`, those the provider runs itself and the one whose call is forced are shown,
`search_tools` behind them, and the rest is hidden until somebody finds it.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from ..core.excerpt import READ_RESULT
from ..core.memory import FORGET, REMEMBER
from ..core.saying import tools_tokens
from ..ports.index import ToolIndex
from ..ports.tool import Tool
from ..tools.lexical import LexicalIndex
from ..tools.search import NAME, SearchTools
from ..values.errors import BadTool, MisuseError
from ..values.memory import Memory
from ..values.request import ToolChoice, ToolSpec
from ..values.settings import Catalogue

BUILT_IN = (READ_RESULT,)
"""Tools of ours that wait until they are of use."""
LOG = logging.getLogger("bridle")
FIND_SECONDS_MAX = 10.0
"""How long the first words may take to be looked up: without an answer the model still has `search_tools`."""


class Layout(NamedTuple):
    tools: Mapping[str, Tool]
    """Everything that can be run."""
    shown: tuple[ToolSpec, ...]
    hidden: tuple[ToolSpec, ...]
    catalogue: Catalogue | None = None
    search: SearchTools | None = None


def lay_out(
    tools: Mapping[str, Tool],
    limits: Catalogue,
    index: ToolIndex | None,
    forced: ToolChoice,
    answer: str = "",
    memory: Memory | None = None,
) -> Layout:
    """`answer` is the name of the answer's type, where it has one."""
    notes = (REMEMBER, FORGET) if memory is not None and memory.tools else ()
    for spec in BUILT_IN:
        if spec.name in tools:
            raise BadTool(
                f"tool `{spec.name}`: Bridle has a tool of that name, which yours would hide;"
                " give yours another name with @tool(name=…)"
            )
    ours = tuple(spec for spec in BUILT_IN if spec.name != answer)
    # Notes may be kept otherwise: the agent's own tool of the name of one of these takes its place.
    specs = (
        *(tool.spec for tool in tools.values()),
        *(spec for spec in notes if spec.name not in (*tools, answer)),
    )
    if len(specs) <= limits.shown_max and tools_tokens(specs) <= limits.tokens_max:
        return Layout(tools, specs, ours)
    if NAME in tools:
        raise MisuseError(
            f"{len(specs)} tools are too many to be shown, and {NAME!r} is what finds them;"
            f" give your tool of that name another one, or raise tools_shown_max"
        )
    always = tuple(spec for spec in specs if spec.always or spec.native or _forces(forced, spec))
    kept = {spec.name for spec in always}
    hidden = tuple(spec for spec in specs if spec.name not in kept)
    if not hidden:
        return Layout(tools, specs, ours)
    search = SearchTools(index or LexicalIndex(), hidden, limits.found_max)
    shown = (*always, search.spec)
    _check_room(shown, limits)
    return Layout({**tools, NAME: search}, shown, (*hidden, *ours), limits, search)


async def found_first(
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


def _forces(choice: ToolChoice, spec: ToolSpec) -> bool:
    return choice.mode == "tool" and choice.name == spec.name


def _check_room(shown: tuple[ToolSpec, ...], limits: Catalogue) -> None:
    tokens = tools_tokens(shown)
    if len(shown) > limits.shown_max:
        raise MisuseError(
            f"{len(shown) - 1} tools are always shown, and {limits.shown_max} may be, {NAME} among them;"
            " mark fewer of them always, or raise tools_shown_max"
        )
    if tokens > limits.tokens_max:
        raise MisuseError(
            f"the tools that are always shown take about {tokens} tokens, and {limits.tokens_max} is most;"
            " mark fewer of them always, or raise tool_tokens_max"
        )
