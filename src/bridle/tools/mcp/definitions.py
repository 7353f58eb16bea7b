"""Turns a tool that an MCP server lists into a `ToolSpec`.

Names, descriptions and schemas are text from outside.  Invisible characters are written as escapes, so that a person
and the model read the same text; long descriptions are cut.  A tool with an unusable schema is left out.  Every
change is described in a note, which is recorded.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.values.request import OnUnknown, ToolEffect, ToolSpec
from bridle.values.text import escape_text, repair_surrogates

from .names import make_tool_name

DESCRIPTION_CHARACTERS_MAX = 4_000
SCHEMA_CHARACTERS_MAX = 60_000
TOOLS_MAX = 2_000
NAME_CHARACTERS_SHOWN = 80
# not from outside: our own text, shown to a person or a model
NOTE_CHARACTERS_MAX = 500


class ListedTool(NamedTuple):
    """A tool as a server lists it."""

    name: str
    description: str
    schema: Mapping[str, object]
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None


class Definitions(NamedTuple):
    specs: tuple[ToolSpec, ...]
    server_names: Mapping[str, str]
    """The server's own name of each tool, by its name for the model."""
    notes: tuple[str, ...]
    """Changes and omissions, one sentence each."""


def make_definitions(
    server: str, listed: Sequence[ListedTool], *, trust: bool, timeout_seconds: float | None
) -> Definitions:
    specs: dict[str, ToolSpec] = {}
    server_names: dict[str, str] = {}
    notes: list[str] = []
    if len(listed) > TOOLS_MAX:
        notes.append(f"only the first {TOOLS_MAX:,} of {len(listed):,} tools are used")
    for tool in listed[:TOOLS_MAX]:
        name, shown = make_tool_name(server, tool.name), show_name(tool.name)
        # guard: duplicate-tool-name
        if name in specs:
            notes.append(f"the tool {shown} is listed twice; the first one is used")
            continue
        try:
            parameters = _parse_schema(tool.schema)
        except (ValueError, RecursionError) as error:
            notes.append(
                escape_text(f"the tool {shown} is left out: its schema {error}"[:NOTE_CHARACTERS_MAX])
            )
            continue
        description, change = clean_description(tool.description)
        if change:
            notes.append(f"the description of {shown} {change}")
        # guard: untrusted-annotations
        effect, on_unknown = read_annotations(tool) if trust else ("write", "report")
        specs[name] = ToolSpec(
            name=name,
            description=description,
            parameters=parameters,
            effect=effect,
            on_unknown=on_unknown,
            timeout_seconds=timeout_seconds,
        )
        server_names[name] = tool.name
    return Definitions(tuple(specs.values()), server_names, tuple(notes))


def show_name(name: str) -> str:
    """A name from a server, for a person."""
    return f"'{escape_text(name[:NAME_CHARACTERS_SHOWN], exact=True)}'"


def clean_description(text: str) -> tuple[str, str]:
    """The description with visible characters only, and what was changed or ""."""
    whole = repair_surrogates(text).replace("\r\n", "\n")
    # guard: description-escaped
    visible = escape_text(whole, prose=True)
    changes = ["had invisible characters, which are written as escapes"] if visible != whole else []
    # guard: description-length-limit
    if len(visible) > DESCRIPTION_CHARACTERS_MAX:
        changes.append(f"was cut from {len(visible):,} to {DESCRIPTION_CHARACTERS_MAX:,} characters")
        visible = f"{visible[:DESCRIPTION_CHARACTERS_MAX]} [cut]"
    return visible, " and ".join(changes)


def read_annotations(tool: ListedTool) -> tuple[ToolEffect, OnUnknown]:
    """The effect that a trusted server declares, and what follows an interrupted call."""
    if tool.read_only:
        return "read", "retry"
    on_unknown: OnUnknown = "retry" if tool.idempotent else "report"
    return ("exclusive" if tool.destructive else "write"), on_unknown


def _parse_schema(schema: Mapping[str, object]) -> str:
    text = parse_parameters_schema({"type": "object", **schema})
    if len(text) > SCHEMA_CHARACTERS_MAX:
        raise ValueError(f"has {len(text):,} characters, and at most {SCHEMA_CHARACTERS_MAX:,} are accepted")
    return text
