"""Hosted tools: declared here by concept, run by the provider of the model.

The same declaration serves every provider that has the concept; each wire family declares it in its own JSON. A model
without the concept is refused, and the refusal names the local tool to use instead. So is a provider that cannot
enforce a restriction, such as `allowed_domains`.

Providers run these tools without the policies and approvals of the harness. Do not let one authorise a business
action: use a tool of your own, or `remote_mcp(require_approval=True)`, whose calls a person approves here.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import msgspec

from bridle.ports.run_context import RunContext
from bridle.ports.tool import ANY_ERROR, Json, Tool
from bridle.values.base import Value
from bridle.values.errors import BadTool
from bridle.values.message import Media, Text
from bridle.values.request import HOSTED_USES_DEFAULT, HostedSpec, ToolEffect, ToolSpec

from .names import check_tool_name

ANY_OBJECT = '{"type":"object"}'
COMPUTER_CALLS, APPROVAL_CALLS = "computer", "mcp_approval"
"""Names under which calls of a computer and requests for approval reach the harness."""
APPROVED = "approve"
_DOMAIN = re.compile(r"[a-zA-Z0-9*.-]+(?:/[!-~]*)?")

ComputerFunction = Callable[[Mapping[str, Json]], Awaitable[Sequence[Text | Media]]]


class Location(Value, kw_only=True, tag="approximate"):
    """Approximate place of the user, for searches."""

    city: str = ""
    region: str = ""
    country: str = ""
    """Two letters, such as `GB`."""
    timezone: str = ""
    """Such as `Europe/London`."""


@dataclass(frozen=True)
class HostedTool:
    """A tool that the provider runs."""

    declared_errors = ANY_ERROR
    spec: ToolSpec
    answering_tools: tuple[Tool, ...] = ()
    """Tools that answer what the provider asks of the client while it uses this one."""

    def __repr__(self) -> str:
        # The options may hold a credential.
        # guard: hosted-repr-hides-settings
        return f"<hosted tool {self.spec.name!r}>"

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> NoReturn:
        raise BadTool(f"{self.spec.name!r} is run by the model's provider")


@dataclass(frozen=True)
class ComputerTool:
    """Performs the actions that a model asks for on a computer."""

    function: ComputerFunction
    spec = ToolSpec(
        name=COMPUTER_CALLS,
        description="Performs an action on the computer and returns a screenshot.",
        parameters=ANY_OBJECT,
        effect="exclusive",
        is_declared=False,
        always_visible=True,
    )

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Sequence[Text | Media]:
        return await self.function(arguments)


@dataclass(frozen=True)
class McpApproval:
    """Answers a provider that asks before it calls a remote MCP tool; it runs only if a person has approved."""

    # guard: remote-mcp-approval
    spec = ToolSpec(
        name=APPROVAL_CALLS,
        description="Approves a call of a remote MCP tool, which the model's provider then makes.",
        parameters=ANY_OBJECT,
        effect="write",
        approve="always",
        is_declared=False,
        always_visible=True,
    )

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Sequence[Text | Media]:
        return (Text(text=APPROVED),)


def web_search(
    *,
    allowed_domains: Sequence[str] = (),
    blocked_domains: Sequence[str] = (),
    max_uses: int | None = None,
    location: Location | None = None,
    context_size: Literal["low", "medium", "high"] | None = None,
) -> HostedTool:
    """Search of the web; `max_uses` limits the searches of one reply."""
    options = {
        **_check_domains("web_search", allowed_domains, blocked_domains),
        "location": location,
        "context_size": context_size,
    }
    return _declare("web_search", options, "toolkit.fetch(allow=[…])", max_uses=max_uses)


def web_fetch(
    *,
    allowed_domains: Sequence[str] = (),
    blocked_domains: Sequence[str] = (),
    max_uses: int | None = None,
    max_content_tokens: int | None = None,
    citations: bool = False,
) -> HostedTool:
    """Retrieval of pages whose addresses are in the conversation."""
    options = {
        **_check_domains("web_fetch", allowed_domains, blocked_domains),
        "max_content_tokens": _check_count("web_fetch", "max_content_tokens", max_content_tokens),
        "citations": citations or None,
    }
    return _declare("web_fetch", options, "toolkit.fetch(allow=[…])", max_uses=max_uses)


def code_execution(*, max_uses: int | None = None) -> HostedTool:
    """Python in a container of the provider."""
    return _declare("code_execution", {}, "toolkit.python()", max_uses=max_uses)


def file_search(
    *, stores: Sequence[str], max_results: int | None = None, max_uses: int | None = None
) -> HostedTool:
    """Search of documents in stores of the provider, given by id or name."""
    if isinstance(stores, str) or not stores or not all(isinstance(each, str) and each for each in stores):
        raise BadTool("hosted.file_search(stores=…) takes a list of the provider's store ids, at least one")
    options = {
        "stores": list(stores),
        "max_results": _check_count("file_search", "max_results", max_results),
    }
    return _declare("file_search", options, "Agent(retrieve=…)", max_uses=max_uses)


def image_generation(
    *,
    size: str | None = None,
    quality: Literal["low", "medium", "high"] | None = None,
    output_format: Literal["png", "jpeg", "webp"] | None = None,
    max_uses: int | None = None,
) -> HostedTool:
    """Images made while the model answers."""
    options = {"size": size, "quality": quality, "output_format": output_format}
    return _declare("image_generation", options, "a tool of your own", max_uses=max_uses)


def remote_mcp(
    url: str,
    *,
    name: str,
    allowed_tools: Sequence[str] | None = None,
    require_approval: bool = True,
    authorization: str | None = None,
    headers: Mapping[str, str] | None = None,
    max_uses: int | None = None,
) -> HostedTool:
    """Tools of an MCP server that the provider calls itself.

    With `require_approval`, the provider asks before each call, and a person is asked here (`mcp_approval`).
    `authorization` is a token without a scheme. It and the headers are sent to the provider and shown nowhere.
    """
    if not isinstance(url, str) or not url.startswith("https://"):
        raise BadTool("hosted.remote_mcp(url) takes an https:// address that the provider can reach")
    check_tool_name(name)
    if allowed_tools is not None and (isinstance(allowed_tools, str) or not allowed_tools):
        raise BadTool(
            "hosted.remote_mcp(allowed_tools=…) takes a list of tool names; leave it out to allow all"
        )
    options = {
        "url": url,
        "name": name,
        "allowed_tools": None if allowed_tools is None else list(allowed_tools),
        "authorization": authorization,
        "headers": None if headers is None else dict(headers),
        "require_approval": "always" if require_approval else "never",
    }
    restrictions = [each for each in ("allowed_tools", "authorization", "headers") if options[each]]
    return _declare(
        "remote_mcp",
        options,
        "bridle.mcp.server(URL)",
        name=name,
        max_uses=max_uses,
        effect="undeclared",
        restrictions=(*restrictions, *(("require_approval",) if require_approval else ())),
        answering_tools=(McpApproval(),) if require_approval else (),
    )


def computer_use(
    run: ComputerFunction,
    *,
    width: int,
    height: int,
    environment: Literal["browser", "linux", "mac", "windows"] = "browser",
) -> HostedTool:
    """A computer that the model operates; the provider plans the actions and `run` performs them.

    `run` takes the provider's description of the action and returns a screenshot.
    """
    if not callable(run):
        raise BadTool(f"hosted.computer_use(run) takes a function that performs an action, not {run!r}")
    options = {
        "width": _check_count("computer_use", "width", width),
        "height": _check_count("computer_use", "height", height),
        "environment": environment,
    }
    return _declare(
        "computer_use",
        options,
        "a tool of your own that takes screenshots",
        effect="exclusive",
        answering_tools=(ComputerTool(run),),
    )


def _declare(
    concept: str,
    options: Mapping[str, object],
    alternative: str,
    *,
    name: str = "",
    max_uses: int | None = None,
    effect: ToolEffect = "read",
    restrictions: tuple[str, ...] | None = None,
    answering_tools: tuple[Tool, ...] = (),
) -> HostedTool:
    given = {"max_uses": _check_count(concept, "max_uses", max_uses), **options}
    stated = {option: value for option, value in given.items() if value is not None}
    if restrictions is None:
        restrictions = tuple(each for each in ("allowed_domains", "blocked_domains") if each in stated)
    hosted = HostedSpec(
        concept=concept,
        restrictions=restrictions,
        max_uses=max_uses or HOSTED_USES_DEFAULT,
        has_max_uses=max_uses is not None,
        alternative=alternative,
    )
    spec = ToolSpec(
        name=name or concept,
        effect=effect,
        native=msgspec.json.encode({"type": concept, **stated}).decode(),
        hosted=hosted,
    )
    return HostedTool(spec, answering_tools)


def _check_domains(concept: str, allowed: Sequence[str], blocked: Sequence[str]) -> dict[str, object]:
    for given in (allowed, blocked):
        wrong = [given] if isinstance(given, str) else [each for each in given if not _is_domain(each)]
        if wrong:
            raise BadTool(
                f"hosted.{concept} takes domains such as 'example.com', without https://, not {wrong[0]!r}"
            )
    if allowed and blocked:
        raise BadTool(f"hosted.{concept} takes allowed_domains or blocked_domains, not both")
    return {"allowed_domains": list(allowed) or None, "blocked_domains": list(blocked) or None}


def _is_domain(domain: object) -> bool:
    return isinstance(domain, str) and _DOMAIN.fullmatch(domain) is not None and "." in domain


def _check_count(concept: str, option: str, count: int | None) -> int | None:
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count > 0):
        return count
    raise BadTool(f"hosted.{concept}({option}=…) takes a whole number above 0, not {count!r}")


CONCEPTS: Mapping[str, Callable[..., HostedTool]] = {
    made.__name__: made
    for made in (
        web_search,
        web_fetch,
        code_execution,
        file_search,
        image_generation,
        remote_mcp,
        computer_use,
    )
}
_IN_FILES = tuple(name for name in CONCEPTS if name != "computer_use")
"""Concepts that a file can declare; a computer needs a function."""


def declare_hosted_tool(given: str | Mapping[str, object], environ: Mapping[str, str]) -> HostedTool:
    """The tool that a configuration file declares, by name or as a table with `tool` and its options.

    `env` names the variable with the token of a remote MCP server.
    """
    options: dict[str, Any] = {"tool": given} if isinstance(given, str) else dict(given)
    concept = options.pop("tool", None)
    if not isinstance(concept, str) or concept not in _IN_FILES:
        raise BadTool(f"there is no hosted tool {concept!r}; choose one of: {', '.join(_IN_FILES)}")
    if "authorization" in options or "headers" in options:
        raise BadTool("a file holds no credentials; name the variable with the token: env")
    if variable := options.pop("env", None):
        if not (token := environ.get(str(variable))):
            raise BadTool(f"the variable {variable} that env names is not set")
        options["authorization"] = token
    try:
        if isinstance(place := options.get("location"), dict):
            options["location"] = Location(**place)
        return CONCEPTS[concept](**options)
    except TypeError as error:
        raise BadTool(f"hosted tool {concept!r}: {error}") from None
