"""Resources and prompts of a server as values, and the tools with which a model reads resources.

All texts are from outside: invisible characters in them are written as escapes, and long ones are cut.  Addresses and
names of prompts are kept exactly, because the server is asked with them.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

import msgspec

from bridle.ports.run_context import RunContext
from bridle.ports.tool import ANY_ERROR, Json
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.message import Media, Message, Text
from bridle.values.request import ToolSpec
from bridle.values.result import History
from bridle.values.text import escape_text

from .names import make_tool_name
from .unsent_calls import RESOURCE_CALL

LIST_TOOL, READ_TOOL = "list_resources", "read_resource"
LIST_DESCRIPTION = "Lists the resources of the MCP server {server}: addresses and address templates to read."
READ_DESCRIPTION = "Reads a resource of the MCP server {server} by its address."
READ_PARAMETERS = msgspec.json.encode(
    {
        "type": "object",
        "properties": {
            "uri": {
                "type": "string",
                "description": f"An address from {LIST_TOOL}, or a template with its variables filled in.",
            }
        },
        "required": ["uri"],
        "additionalProperties": False,
    }
).decode()
NO_RESOURCES = "The server has no resources."

Parts = tuple[Text | Media, ...]


class ServerResource(Value, kw_only=True):
    """A resource that a server lists; `McpServer.read_resource(uri)` reads it."""

    uri: str
    name: str
    title: str = ""
    description: str = ""
    media_type: str = ""


class ResourceTemplate(Value, kw_only=True):
    """A pattern of addresses, such as `log://{day}`; fill in its variables to read a resource."""

    uri_template: str
    name: str
    title: str = ""
    description: str = ""
    media_type: str = ""


class PromptArgument(Value, kw_only=True):
    name: str
    description: str = ""
    required: bool = False


class ServerPrompt(Value, kw_only=True):
    """A prompt that a server lists; `McpServer.get_prompt(name, arguments)` fills it in."""

    name: str
    title: str = ""
    description: str = ""
    arguments: tuple[PromptArgument, ...] = ()


class PromptMessages(Value, kw_only=True):
    """A prompt of a server with its arguments filled in: `agent.run(found.prompt, history=found.history)`.

    The text is the server's.  The agent treats it as the words of its user, so read it before you run it.
    """

    messages: tuple[Message, ...]
    """Messages of the user and the assistant in turn."""
    description: str = ""

    @property
    def prompt(self) -> Parts:
        """The last message; raises `MisuseError` if it is not from the user."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "user":
            raise MisuseError("the prompt of the server does not end with a message of the user")
        return tuple(part for part in last.parts if isinstance(part, Text | Media))

    @property
    def history(self) -> History | None:
        """The messages before the last one, for a new session; None if there are none."""
        return History(messages=self.messages[:-1]) if len(self.messages) > 1 else None


def join_messages(spoken: Sequence[tuple[str, Text | Media]]) -> tuple[Message, ...]:
    """Messages in turn: contents of one role that follow one another become one message."""
    found: list[Message] = []
    for role, part in spoken:
        said = part
        if role == "assistant" and isinstance(part, Media):
            said = Text(text=f"[{part.media_type}]")  # no provider accepts media of the assistant
        if found and found[-1].role == role:
            found[-1] = msgspec.structs.replace(found[-1], parts=(*found[-1].parts, said))
        else:
            found.append(Message(role="assistant" if role == "assistant" else "user", parts=(said,)))
    return tuple(found)


class ResourceReader(Protocol):
    """The server that resources are read from."""

    def list_resources(self) -> Awaitable[tuple[ServerResource, ...]]: ...

    def list_resource_templates(self) -> Awaitable[tuple[ResourceTemplate, ...]]: ...

    def read_resource(self, uri: str) -> Awaitable[Parts]: ...


def make_resource_specs(server: str, timeout_seconds: float | None) -> tuple[ToolSpec, ToolSpec]:
    """The tools that list and read resources."""

    def make(name: str, description: str, parameters: str) -> ToolSpec:
        return ToolSpec(
            name=make_tool_name(server, name),
            description=description.format(server=server),
            parameters=parameters,
            effect="read",
            on_unknown="retry",
            timeout_seconds=timeout_seconds,
        )

    return (
        make(LIST_TOOL, LIST_DESCRIPTION, ToolSpec(name="").parameters),
        make(READ_TOOL, READ_DESCRIPTION, READ_PARAMETERS),
    )


class ResourceTool:
    """A tool of Bridle that lists or reads the resources of a server."""

    declared_errors = ANY_ERROR

    def __init__(self, spec: ToolSpec, owner: ResourceReader) -> None:
        self.spec, self._owner = spec, owner

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Parts:
        RESOURCE_CALL.set(context)  # in the task of this call
        if "uri" in arguments:
            return await self._owner.read_resource(str(arguments["uri"]))
        resources = await self._owner.list_resources()
        templates = await self._owner.list_resource_templates()
        lines = [_format_line(each.uri, each) for each in resources]
        lines += [_format_line(each.uri_template, each) for each in templates]
        return (Text(text="\n".join(lines) or NO_RESOURCES),)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"


def _format_line(address: str, item: ServerResource | ResourceTemplate) -> str:
    about = "; ".join(filter(None, (item.title or item.name, item.media_type, item.description)))
    return f"{escape_text(address)}  {escape_text(about)}"
