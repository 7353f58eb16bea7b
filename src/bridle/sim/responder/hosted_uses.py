"""Uses of a provider's own tools in a simulated reply: their items, and what they are charged by.

A tool is used only if the request declares it, and only as often as the request allows. hosted.toml has the items.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import cast

import msgspec
from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.base_codec import BaseCodec
from bridle.providers.openai_chat.usage import EXECUTED_FIELD
from bridle.values.base import Value
from bridle.values.message import Message, Opaque, Part, Reply, Text
from bridle.values.request import Request, ToolSpec
from bridle.values.usage import HostedCount, Usage

ANSWERED_BY_CLIENT = {"mcp_approval": "remote_mcp"}
"""Words for items that belong to the tool of another concept."""
SEARCH_PROMPT = re.compile(r"search (?:the web|online) for (.+?)[.!?]?\s*", re.IGNORECASE | re.DOTALL)
USES_MAX_FIELD = "max_tool_calls"
_VERSION = re.compile(r"_\d{8}$")


class HostedUse(Value, kw_only=True):
    """One use of a hosted tool."""

    concept: str
    text: str


class HostedItem(Value, kw_only=True):
    """A row of hosted.toml."""

    kind: str = ""
    native: str = ""
    count: HostedCount | None = None
    once: bool = False
    declared: str = ""
    argument: str = ""


def read_search_prompt(request: Request, prompt: str) -> HostedUse | None:
    """The search that a prompt asks for, if the request declares a hosted search."""
    found = SEARCH_PROMPT.fullmatch(prompt.strip())
    if found is None or find_declaration(request, "web_search") is None:
        return None
    return HostedUse(concept="web_search", text=found[1])


def find_declaration(request: Request, concept: str) -> ToolSpec | None:
    """The hosted tool of this concept that a request declares."""
    codec = cast("BaseCodec", load_codec(request.model.endpoint.family))
    forms = [
        _identify(msgspec.json.decode(form.json, type=dict[str, object]))
        for form in codec.hosted_forms(request.model)
        if form.concept == concept
    ]
    # Servers with one wire and tools of their own are told apart by what the request declares.
    rows = _load_items().get(request.model.endpoint.family, {}).get(concept, ())
    forms += [row.declared for row in rows if row.declared]
    for spec in request.tools:
        if spec.native and _identify(msgspec.json.decode(spec.native, type=dict[str, object])) in forms:
            return spec
    return None


def make_hosted_parts(request: Request, uses: Sequence[HostedUse], digest: str) -> list[Part]:
    """The items of these uses; a use that the request does not declare or allow is left out."""
    table = _load_items().get(request.model.endpoint.family, {})
    allowed = _allowed_uses(request, uses)
    parts: list[Part] = []
    done: set[str] = set()
    for number, use in enumerate(allowed):
        texts = [each.text for each in allowed if each.concept == use.concept]
        for row in table.get(use.concept, ()):
            if not row.kind or row.declared or (row.once and use.concept in done):
                continue
            native = row.native.replace("{id}", f"{digest[:20]}{number:02d}")
            native = native.replace("{texts}", msgspec.json.encode(texts).decode())
            native = native.replace("{text}", msgspec.json.encode(use.text).decode())
            parts.append(Opaque(kind=row.kind, native=native))
        done.add(use.concept)
    return parts


def cite_search(request: Request, parts: Sequence[Part], uses: Sequence[HostedUse]) -> list[Part]:
    """Parts whose first text cites the page of a search or lists the uses, in the form of the wire."""
    citation = _load_citations().get(request.model.endpoint.family, "")
    if listed := _list_uses(request, uses):
        citation = f'{{"message":{{"{EXECUTED_FIELD}":[{",".join(listed)}]}}}}'
    elif not count_hosted_parts(request, parts).searches:
        citation = ""
    at = next((at for at, part in enumerate(parts) if isinstance(part, Text)), None)
    if at is None or not citation:
        return list(parts)
    return [*parts[:at], replace(cast("Text", parts[at]), native=citation), *parts[at + 1 :]]


def _list_uses(request: Request, uses: Sequence[HostedUse]) -> list[str]:
    """The uses as entries of a list in the message, on a wire that has one."""
    listed: list[str] = []
    for use, row in _list_rows(request, uses):
        if row.kind == EXECUTED_FIELD:
            arguments = msgspec.json.encode({row.argument: use.text}).decode()
            native = row.native.replace("{arguments}", msgspec.json.encode(arguments).decode())
            listed.append(native.replace("{number}", str(len(listed))))
    return listed


def _list_rows(request: Request, uses: Sequence[HostedUse]) -> list[tuple[HostedUse, HostedItem]]:
    """The rows of the allowed uses for tools of the declared type."""
    table = _load_items().get(request.model.endpoint.family, {})
    found: list[tuple[HostedUse, HostedItem]] = []
    for use in _allowed_uses(request, uses):
        spec = find_declaration(request, use.concept)
        declared = _identify(msgspec.json.decode(spec.native or "{}", type=dict[str, object])) if spec else ""
        found += [(use, row) for row in table.get(use.concept, ()) if row.declared == declared]
    return found


def count_hosted_parts(request: Request, parts: Sequence[Part]) -> Usage:
    """The charge of the provider for the items of a reply."""
    counts: dict[str, int] = {}
    rows = [row for listed in _load_items().get(request.model.endpoint.family, {}).values() for row in listed]
    for part in parts:
        row = next(
            (row for row in rows if row.count and isinstance(part, Opaque) and row.kind == part.kind), None
        )
        if row is None or row.count is None or not isinstance(part, Opaque):
            continue
        if row.count == "containers":
            counts[row.count] = 0 if _has_container(request.messages, part) else 1
        elif row.once:
            found = msgspec.json.decode(part.native, type=dict[str, dict[str, list[object]]])
            counts[row.count] = len(found.get("groundingMetadata", {}).get("webSearchQueries", []))
        else:
            counts[row.count] = counts.get(row.count, 0) + 1
    return msgspec.convert(counts, Usage)


def add_hosted_usage(request: Request, reply: Reply, uses: Sequence[HostedUse]) -> Reply:
    """The reply with the charged uses; those without an item are counted by the script."""
    extra = Counter(row.count for _, row in _list_rows(request, uses) if row.count and not row.kind)
    usage = reply.usage + count_hosted_parts(request, reply.parts) + msgspec.convert(extra, Usage)
    return replace(reply, usage=replace(usage, terms=reply.usage.terms))


def _has_container(messages: Sequence[Message], made: Opaque) -> bool:
    """True if an earlier reply used the container of this one; a wire without its id starts one for each reply."""
    found = re.search(r'"container_id":"(\w+)"', made.native)
    return found is not None and any(
        isinstance(part, Opaque) and found[0] in part.native for message in messages for part in message.parts
    )


def _allowed_uses(request: Request, uses: Sequence[HostedUse]) -> list[HostedUse]:
    """Uses of declared tools, up to the limit of each tool and of the request."""
    limits: dict[str, int] = {}
    total = next((int(each.json) for each in request.extras if each.name == USES_MAX_FIELD), len(uses))
    allowed: list[HostedUse] = []
    for use in uses:
        concept = ANSWERED_BY_CLIENT.get(use.concept, use.concept)
        spec = find_declaration(request, concept)
        if spec is None:
            continue
        if concept not in limits:
            given = re.search(r'"max_uses":(\d+)', spec.native or "")
            limits[concept] = int(given[1]) if given else len(uses)
        if limits[concept] > 0 and len(allowed) < total:
            limits[concept] -= 1
            allowed.append(use)
    return allowed


def _identify(tool: dict[str, object]) -> str:
    """The type of a tool without its version or, on a wire without types, its member."""
    kind = tool.get("type")
    return _VERSION.sub("", kind) if isinstance(kind, str) else next(iter(tool), "")


@cache
def _load_items() -> dict[str, dict[str, tuple[HostedItem, ...]]]:
    rows = {
        family: {concept: each for concept, each in items.items() if concept != "citation"}
        for family, items in _load_table().items()
    }
    return msgspec.convert(rows, dict[str, dict[str, tuple[HostedItem, ...]]])


@cache
def _load_citations() -> dict[str, str]:
    return {family: str(items.get("citation", "")) for family, items in _load_table().items()}


@cache
def _load_table() -> dict[str, dict[str, object]]:
    return tomllib.loads(Path(__file__).with_name("hosted.toml").read_text(encoding="utf-8"))
