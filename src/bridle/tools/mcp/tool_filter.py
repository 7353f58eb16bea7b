"""Removes what the `mcp` package would refuse from lists of a server, so that one bad item does not cost all others.

Of a tool only the fields that are used remain.  Output schemas are not: results are passed on as they are.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Self

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from bridle.values.text import escape_text

from .definitions import TOOLS_MAX, show_name

LOG = logging.getLogger("bridle")
TEXT_FIELDS = ("title", "description")
LISTS = {"resources": ("uri", "name"), "resourceTemplates": ("uriTemplate", "name"), "prompts": ("name",)}
"""Required fields of the items of the lists besides that of tools; only these and texts about them are used."""
ARGUMENTS_MAX = 100
ITEMS_MAX = 2_000
"""Resources, templates or prompts that are read of one server."""
TOOL_FIELDS = ("name", *TEXT_FIELDS, "inputSchema", "annotations")
KEYWORDS: dict[str, tuple[type, type | tuple[type, ...]]] = {
    "properties": (dict, (dict, bool)),
    "required": (list, str),
    "$schema": (str, object),
}
"""Type of a keyword's value, and of the items in it."""
CONTENT_TYPES = ("text", "image", "audio", "resource_link", "resource")
# not from outside: our own text, shown to a person or a model
TYPE_CHARACTERS_MAX = 100


@asynccontextmanager
async def filter_tools(
    transport: AbstractAsyncContextManager[Any], notes: list[str]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The streams of a transport with valid lists of tools only; `notes` says what was left out."""
    async with transport as (read_stream, write_stream):
        yield FilteredStream(read_stream, notes), write_stream


class FilteredStream:
    """A stream of incoming messages in which lists of tools are checked."""

    def __init__(self, stream: Any, notes: list[str]) -> None:
        self._stream, self._notes = stream, notes

    @property
    def last_context(self) -> object:
        """Context of the sender, where the stream has one; the `mcp` package reads it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        item = await self._stream.receive()
        message = item.message if isinstance(item, SessionMessage) else None
        if isinstance(message, types.JSONRPCResponse):
            result = message.result
            if isinstance(result.get("tools"), list):
                result["tools"] = keep_valid_tools(result["tools"], self._notes)
            if isinstance(result.get("content"), list):
                result["content"] = replace_unknown_content(result["content"])
            for name, required in LISTS.items():
                if isinstance(listed := result.get(name), list):
                    listed = listed[: ITEMS_MAX + 1]
                    result[name] = kept = keep_valid_items(listed, required)
                    if len(kept) < len(listed):
                        LOG.warning(
                            "%d invalid items of the %s of an MCP server are left out",
                            len(listed) - len(kept),
                            name,
                        )
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()


def keep_valid_items(items: list[Any], required: tuple[str, ...]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not isinstance(item, dict) or not all(isinstance(item.get(name), str) for name in required):
            continue
        texts = (*required, *TEXT_FIELDS, "mimeType")
        made: dict[str, Any] = {name: item[name] for name in texts if isinstance(item.get(name), str)}
        if isinstance(item.get("arguments"), list):
            given = item["arguments"][:ARGUMENTS_MAX]
            needed = [
                each.get("name") for each in given if isinstance(each, dict) and each.get("required") is True
            ]
            arguments = keep_valid_items(given, ("name",))
            made["arguments"] = [{**each, "required": each["name"] in needed} for each in arguments]
        kept.append(made)
    return kept


def find_wrong_keyword(schema: dict[str, Any]) -> str | None:
    """The keyword of a schema that the `mcp` package would refuse, and the whole list with it."""
    for keyword, (kind, items) in KEYWORDS.items():
        value = schema.get(keyword)
        listed = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if value is not None and (
            not isinstance(value, kind) or not all(isinstance(item, items) for item in listed)
        ):
            return keyword
    return None


def replace_unknown_content(items: list[Any]) -> list[Any]:
    """Put a text in the place of content whose type this version does not know: the other parts are still of use."""
    return [
        {
            "type": "text",
            "text": f"[content of unknown type '{escape_text(item['type'][:TYPE_CHARACTERS_MAX])}']",
        }
        if isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] not in CONTENT_TYPES
        else item
        for item in items
    ]


def _needs_task(tool: dict[str, Any]) -> bool:
    execution = tool.get("execution")
    return isinstance(execution, dict) and execution.get("taskSupport") == "required"


def keep_valid_tools(tools: list[Any], notes: list[str]) -> list[Any]:
    kept: list[Any] = []
    if len(tools) > TOOLS_MAX:
        notes.append(f"only the first {TOOLS_MAX:,} of {len(tools):,} tools are used")
    for tool in tools[:TOOLS_MAX]:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            notes.append("a tool without a name is left out")
            continue
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or schema.setdefault("type", "object") != "object":
            notes.append(f"the tool {show_name(name)} is left out: its schema does not describe an object")
            continue
        if _needs_task(tool):
            notes.append(
                f"the tool {show_name(name)} is left out: it can only be called as a task, which is not supported"
            )
            continue
        for field in TEXT_FIELDS:
            if not isinstance(tool.get(field), str):
                tool.pop(field, None)
        hints = tool.get("annotations")
        tool["annotations"] = {
            key: value
            for key, value in (hints.items() if isinstance(hints, dict) else ())
            if key.endswith("Hint") and isinstance(value, bool)
        }
        if (wrong := find_wrong_keyword(schema)) is not None:
            notes.append(f"the tool {show_name(name)} is left out: {wrong!r} of its schema is invalid")
            continue
        kept.append({key: tool[key] for key in TOOL_FIELDS if key in tool})
    return kept
