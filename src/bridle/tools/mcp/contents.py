"""Lists and reads the resources and prompts of a connected server."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeVar

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError

from .definitions import clean_description
from .offers import (
    Parts,
    PromptArgument,
    PromptMessages,
    ResourceTemplate,
    ServerPrompt,
    ServerResource,
    join_messages,
)
from .results import make_prompt_parts, make_resource_parts
from .tool_filter import ITEMS_MAX

PAGES_MAX = 100

T = TypeVar("T")


class Page(Protocol):
    """A page of a list."""

    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)


async def read_pages(
    read: Callable[[str | None], Awaitable[P]], take: Callable[[P], list[T]], items_max: int = ITEMS_MAX
) -> list[T]:
    """The items of all pages, up to a limit; none if the server does not know the list."""
    found: list[T] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        try:
            page = await read(cursor)
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND:
                break
            raise
        found += take(page)
        cursor = page.next_cursor
        if not cursor or len(found) >= items_max:
            break
    return found[:items_max]


async def list_resources(client: Client) -> tuple[ServerResource, ...]:
    if client.server_capabilities.resources is None:
        return ()
    found = await read_pages(lambda cursor: client.list_resources(cursor=cursor), lambda page: page.resources)
    return tuple(
        ServerResource(
            uri=str(each.uri),
            name=clean(each.name),
            title=clean(each.title),
            description=clean(each.description),
            media_type=clean(each.mime_type),
        )
        for each in found
    )


async def list_resource_templates(client: Client) -> tuple[ResourceTemplate, ...]:
    if client.server_capabilities.resources is None:
        return ()
    found = await read_pages(
        lambda cursor: client.list_resource_templates(cursor=cursor), lambda page: page.resource_templates
    )
    return tuple(
        ResourceTemplate(
            uri_template=each.uri_template,
            name=clean(each.name),
            title=clean(each.title),
            description=clean(each.description),
            media_type=clean(each.mime_type),
        )
        for each in found
    )


async def read_resource(client: Client, uri: str) -> Parts:
    return make_resource_parts((await client.read_resource(uri)).contents)


async def list_prompts(client: Client) -> tuple[ServerPrompt, ...]:
    if client.server_capabilities.prompts is None:
        return ()
    found = await read_pages(lambda cursor: client.list_prompts(cursor=cursor), lambda page: page.prompts)
    return tuple(
        ServerPrompt(
            name=each.name,
            title=clean(each.title),
            description=clean(each.description),
            arguments=tuple(
                PromptArgument(name=one.name, description=clean(one.description), required=bool(one.required))
                for one in each.arguments or ()
            ),
        )
        for each in found
    )


async def get_prompt(client: Client, name: str, arguments: Mapping[str, str]) -> PromptMessages:
    found = await client.get_prompt(name, dict(arguments))
    spoken = make_prompt_parts(found.messages)
    return PromptMessages(messages=join_messages(spoken), description=clean(found.description))


def clean(text: str | None) -> str:
    """A text of the server, with visible characters only and of limited length."""
    # guard: resource-text-escaped
    return clean_description(text or "")[0]
