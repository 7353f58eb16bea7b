"""Show what MCP servers offer: tools with their effects, resources and prompts.

The servers are those of a file (mcpServers), one at an address, or one that a command starts. They are started for
this and ended afterwards. Descriptions are the words of the servers.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from bridle.cli.format.columns import apply_style, is_color_output, screen_width, trim_line
from bridle.cli.format.printing import print_error, print_json, print_line
from bridle.tools.mcp.config_file import load_servers
from bridle.tools.mcp.offers import ResourceTemplate, ServerPrompt, ServerResource
from bridle.tools.mcp.server import McpServer, server
from bridle.tools.mcp.server_settings import McpError
from bridle.values.base import Value
from bridle.values.text import join_lines
from bridle.watchers.console import format_count

EXIT_FAILED = 1


class ServerOffer(Value, kw_only=True, omit_defaults=False):
    """The offers of one server, or the reason why it cannot be used."""

    server: str
    error: str = ""
    notes: tuple[str, ...] = ()
    tools: tuple[dict[str, str], ...] = ()
    resources: tuple[ServerResource, ...] = ()
    templates: tuple[ResourceTemplate, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("list",), help="list: show what the servers offer")
    parser.add_argument(
        "target",
        nargs="+",
        metavar="FILE|URL|COMMAND",
        help="a file with servers, an http(s) address, or a command and its arguments (after --)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list")


def execute(options: argparse.Namespace) -> int:
    offers = asyncio.run(_read_offers(_find_servers(options.target)))
    if options.json:
        print_json(offers)
    for offer in offers if not options.json else ():
        _print_offer(offer)
    return EXIT_FAILED if any(offer.error for offer in offers) else 0


def _find_servers(target: Sequence[str]) -> list[McpServer]:
    if len(target) == 1 and Path(target[0]).suffix == ".json":
        return load_servers(target[0])
    return [server(target[0] if len(target) == 1 else list(target))]


async def _read_offers(servers: Sequence[McpServer]) -> list[ServerOffer]:
    return await asyncio.gather(*(_read_offer(each) for each in servers))


async def _read_offer(source: McpServer) -> ServerOffer:
    listing = await source.list_tools()
    tools = tuple(
        {"name": tool.spec.name, "effect": tool.spec.effect, "description": tool.spec.description}
        for tool in listing.tools
    )
    offer = ServerOffer(server=source.name, error=listing.error, notes=listing.notes, tools=tools)
    if listing.error:
        return offer
    try:
        return replace(
            offer,
            resources=await source.list_resources(),
            templates=await source.list_resource_templates(),
            prompts=await source.list_prompts(),
        )
    except McpError as error:
        return replace(offer, error=str(error))
    finally:
        await source.close()


def _print_offer(offer: ServerOffer) -> None:
    if offer.error:
        print_error(offer.error)
        if not offer.tools:
            return
    counts = ", ".join(
        format_count(len(items), noun)
        for items, noun in (
            (offer.tools, "tool"),
            (offer.resources, "resource"),
            (offer.templates, "resource template"),
            (offer.prompts, "prompt"),
        )
    )
    print_line(apply_style(f"{offer.server}: {counts}", "bold", is_color_output()), styles=True)
    for note in offer.notes:
        _print_item("note", note, "")
    for tool in offer.tools:
        _print_item(f"{tool['effect']:<9}", tool["name"], tool["description"])
    for resource in offer.resources:
        _print_item("resource ", resource.uri, resource.description or resource.title)
    for template in offer.templates:
        _print_item("template ", template.uri_template, template.description or template.title)
    for prompt in offer.prompts:
        arguments = ", ".join(f"{each.name}{'' if each.required else '?'}" for each in prompt.arguments)
        _print_item("prompt   ", f"{prompt.name}({arguments})", prompt.description or prompt.title)


def _print_item(kind: str, name: str, about: str) -> None:
    words = f"  {kind} {name}  {join_lines(about)}".rstrip()
    print_line(trim_line(words, screen_width()))
