"""`search_tools`: the tool with which a model finds hidden tools.

It is an ordinary read-only tool.  Its result lists the tools found, one per line, grouped by namespace; exactly
the tools listed become callable.  A short hash of the definition follows each name: the same name with another
hash is another version of the tool.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

from bridle.ports.run_context import RunContext
from bridle.ports.tool import ANY_ERROR, Json
from bridle.ports.tool_index import ToolIndex
from bridle.tools.names import split_tool_name
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

SEARCH_TOOL_NAME = "search_tools"
# not from outside: our own text, shown to a person or a model
DESCRIPTION_CHARACTERS_MAX = 160
NAMESPACES_NAMED_MAX = 40
VERSION_CHARACTERS = 8
SEARCH_PARAMETERS = (
    '{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, in a few'
    ' words, or the name of a tool."},"namespace":{"type":"string","description":"Search only there."}},'
    '"required":["query"],"additionalProperties":false}'
)
_RESULT_LINE = re.compile(r"^- (\S+) \(version [0-9a-f]+\)", re.MULTILINE)
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]+")


class SearchTools:
    """Searches the hidden `tools`."""

    declared_errors = ANY_ERROR

    def __init__(self, index: ToolIndex, tools: Sequence[ToolSpec], found_max: int) -> None:
        self._index, self._found_max = index, found_max
        self._tools = tuple(tools)
        self._by_name = {spec.name: spec for spec in self._tools}
        self._namespaces = tuple(dict.fromkeys(split_tool_name(name)[0] for name in self._by_name))
        self._tools_by_namespace: dict[str, tuple[ToolSpec, ...]] = {"": self._tools}
        self.spec = ToolSpec(
            name=SEARCH_TOOL_NAME,
            description=self._make_description(),
            parameters=SEARCH_PARAMETERS,
            effect="read",
            on_unknown="retry",
            always_visible=True,
        )

    async def find(self, query: str, limit: int, namespace: str = "") -> tuple[str, ...]:
        """Names of matching tools, best first; a tool named in the query is always found."""
        tools = self._tools_in(namespace)
        known = {spec.name for spec in tools}
        named = [name for name in _TOOL_NAME.findall(query) if name in known]
        found = await self._index.find(query, tools, limit) if tools else ()
        return tuple(name for name in dict.fromkeys((*named, *found)) if name in known)[:limit]

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> tuple[Text, ...]:
        query, namespace = str(arguments["query"]), str(arguments.get("namespace") or "")
        if namespace and namespace not in self._namespaces:
            known = ", ".join(filter(None, self._namespaces[:NAMESPACES_NAMED_MAX])) or "none"
            return (Text(text=f"There is no namespace {namespace!r}. There are: {known}."),)
        names = await self.find(query, self._found_max, namespace)
        return (Text(text=self._format_found(names) if names else self._format_nothing_found(query)),)

    def list_revealed_tools(self, parts: Sequence[Text | Media]) -> Sequence[str]:
        texts = (part.text for part in parts if isinstance(part, Text))
        return [name for text in texts for name in _RESULT_LINE.findall(text) if name in self._by_name]

    def _tools_in(self, namespace: str) -> tuple[ToolSpec, ...]:
        # The same object for the same namespace, so that an index can cache what it built.
        if namespace not in self._tools_by_namespace:
            self._tools_by_namespace[namespace] = tuple(
                spec for spec in self._tools if split_tool_name(spec.name)[0] == namespace
            )
        return self._tools_by_namespace[namespace]

    def _format_found(self, names: tuple[str, ...]) -> str:
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(split_tool_name(name)[0], []).append(self._format_tool(self._by_name[name]))
        lines = ["You can call these tools from now on:"]
        for namespace, members in groups.items():
            lines += ([f"{namespace}:"] if namespace else []) + members
        return "\n".join(lines)

    def _format_tool(self, spec: ToolSpec) -> str:
        about = " ".join(spec.description.split())
        if len(about) > DESCRIPTION_CHARACTERS_MAX:
            about = f"{about[:DESCRIPTION_CHARACTERS_MAX]}…"
        return f"- {spec.name} (version {tool_version(spec)}){f': {about}' if about else ''}"

    def _format_nothing_found(self, query: str) -> str:
        return f"No tool was found for {query!r}. Say it in other words, or do without."

    def _make_description(self) -> str:
        named = [name for name in self._namespaces if name]
        listed = f" Namespaces: {', '.join(named[:NAMESPACES_NAMED_MAX])}." if named else ""
        more = f" And {len(named) - NAMESPACES_NAMED_MAX} more." if len(named) > NAMESPACES_NAMED_MAX else ""
        return (
            f"Find tools by what they do. There are {len(self._tools)} beside those you see; what is found"
            f" you can call from then on.{listed}{more}"
        )


def tool_version(spec: ToolSpec) -> str:
    """A hash of the tool's name, description and parameters."""
    definition = "\0".join((spec.name, spec.description, spec.parameters))
    return sha256(definition.encode("utf-8", "replace")).hexdigest()[:VERSION_CHARACTERS]
