"""Keeps the values of extras and of hosted tools out of the log.

An extra is a request field in the caller's own JSON, and so is the definition of a hosted tool (`ToolSpec.native`):
any string in it may be a credential, whatever its name.  The settings of an agent are logged; they hold each extra
and each hosted tool with its strings replaced by a mark, and a digest that shows whether it is still the same.  The
original stays in the agent and returns to a request just before encoding.

Words of the wire formats (`auto`, `1h`, the service terms of a price, the types and names in a hosted tool) are not
secret and stay: budgets and cache lifetimes depend on them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from bridle.core.cache.breakpoints import TTL_SECONDS
from bridle.providers.ownership import check_extras_taken, find_field_owners, find_tool_owners
from bridle.providers.wire.extras import describe_hidden_tool, parse_extra
from bridle.values.errors import BadTool, MisuseError
from bridle.values.events import Configured
from bridle.values.redaction import find_header_secrets
from bridle.values.request import Extra, Request, ToolSpec
from bridle.values.settings import Settings
from bridle.values.usage import TERM_FIELDS

HIDDEN_MARK = "[hidden]"
DIGEST_CHARACTERS = 16
PUBLIC_WORDS = frozenset((
    "adaptive", "always", "any", "auto", "batch", "concise", "default", "detailed", "disabled", "enabled",
    "ephemeral", "fast", "flex", "high", "image", "json", "json_object", "low", "max", "medium",
    "minimal", "never", "none", "optimized", "priority", "required", "reserved", "standard", "standard_only",
    "text", "xhigh",
))  # fmt: skip
PUBLIC_FIELDS = frozenset({*TERM_FIELDS, "betas"})
"""Fields whose words choose the price of a call, or name features of a provider."""
PUBLIC_TOOL_MEMBERS = frozenset(("type", "name"))
"""Members that identify a hosted tool. Replies repeat them, so hiding them would make recordings unreadable."""


@dataclass(frozen=True)
class PrivateExtras:
    """The original extras and hosted tools of an agent whose settings show marks in place of some strings."""

    originals: Mapping[str, Extra] = field(default_factory=dict, repr=False)
    """By the digest of the mark."""
    tools: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The definitions of hosted tools, by the digest of the mark."""
    strings: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The hidden strings, each with the name of its nearest enclosing member."""

    @cached_property
    def texts(self) -> frozenset[str]:
        return frozenset(text for _, text in self.strings)

    @cached_property
    def credentials(self) -> frozenset[str]:
        """The hidden strings that look like credentials; others may be ordinary words of a conversation."""
        return frozenset(found for name, text in self.strings for found in find_header_secrets(name, text))

    def restore(self, request: Request) -> Request:
        """The request with its original values; raises `MisuseError` for a mark whose original is unknown."""
        unknown = [each for each in request.extras if each.digest and each.digest not in self.originals]
        if unknown:
            raise MisuseError(_describe_mark(unknown[0]))
        extras = (self.originals[each.digest] if each.digest else each for each in request.extras)
        request = replace(request, extras=tuple(extras))
        if not self.tools:
            return request
        tools, deferred = self._restore_tools(request.tools), self._restore_tools(request.deferred_tools)
        return replace(request, tools=tools, deferred_tools=deferred)

    def _restore_tools(self, specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        """The specs with their definitions; a mark whose original is unknown is refused when it is encoded."""
        return tuple(
            replace(spec, native=self.tools[spec.native_digest], native_digest="")
            if spec.native_digest in self.tools
            else spec
            for spec in specs
        )


NO_PRIVATE_EXTRAS = PrivateExtras()


def hide_extras(settings: Settings) -> tuple[Settings, PrivateExtras]:
    """Settings fit for the log, and the originals; raises `MisuseError` for a mark or text that is not JSON."""
    if not settings.extras and all(spec.native is None for spec in settings.all_tools):
        return settings, NO_PRIVATE_EXTRAS
    words = _list_public_words(settings)
    extras: list[Extra] = []
    originals: dict[str, Extra] = {}
    strings: list[tuple[str, str]] = []
    for extra in settings.extras:
        if extra.digest:
            raise MisuseError(_describe_mark(extra))
        found: list[tuple[str, str]] = []
        shown = _hide_strings(extra.name, parse_extra(extra), words, found, PUBLIC_FIELDS)
        if found:
            digest = _digest_text(extra.name, extra.json)
            originals[digest] = extra
            strings += found
            extras.append(replace(extra, json=msgspec.json.encode(shown).decode(), digest=digest))
        else:
            extras.append(extra)
    definitions: dict[str, str] = {}
    tools, hidden = (
        tuple(_hide_tool(spec, words, definitions, strings) for spec in specs)
        for specs in (settings.tools, settings.hidden_tools)
    )
    private = PrivateExtras(originals, definitions, tuple(strings))
    return replace(settings, extras=tuple(extras), tools=tools, hidden_tools=hidden), private


def _hide_tool(
    spec: ToolSpec, words: frozenset[str], definitions: dict[str, str], strings: list[tuple[str, str]]
) -> ToolSpec:
    """The spec fit for the log; its definition is added to `definitions`, its hidden strings to `strings`."""
    if spec.native is None:
        return spec
    if spec.native_digest:
        raise MisuseError(describe_hidden_tool(spec))
    try:
        definition = msgspec.json.decode(spec.native)
    except ValueError as error:
        message = f"the native definition of tool {spec.name!r} is not JSON ({error}): correct it"
        raise BadTool(message) from None
    found: list[tuple[str, str]] = []
    shown = _hide_strings(spec.name, definition, words, found, PUBLIC_TOOL_MEMBERS)
    if not found:
        return spec
    digest = _digest_text(spec.name, spec.native)
    definitions[digest] = spec.native
    strings += found
    # guard: hosted-definition-hidden
    return replace(spec, native=msgspec.json.encode(shown).decode(), native_digest=digest)


def label_owners(settings: Settings) -> Settings:
    """Set the wire family that owns each extra and hosted tool, so that a model chain sends it only there.

    Labels set by the caller are kept. Raises `MisuseError` for a field that no provider lists.
    """
    first, models = settings.model.endpoint, settings.models or (settings.model,)
    specs = (*settings.tools, *settings.hidden_tools)
    if not settings.extras and all(spec.native is None for spec in specs):
        return settings

    def labelled(spec: ToolSpec) -> ToolSpec:
        if spec.native is None or spec.native_to or spec.hosted is not None:
            return spec
        return replace(spec, native_to=find_tool_owners(spec.native, first))

    extras = tuple(
        extra
        if extra.owners == (owners := find_field_owners(extra, models))
        else replace(extra, owners=owners)
        for extra in settings.extras
    )
    return replace(
        settings,
        extras=extras,
        tools=tuple(map(labelled, settings.tools)),
        hidden_tools=tuple(map(labelled, settings.hidden_tools)),
    )


def check_extras(settings: Settings) -> None:
    """Raise `MisuseError` for an extra that belongs to none of the agent's models."""
    if settings.extras:
        check_extras_taken(settings.extras, settings.models or (settings.model,))


def describe_new_settings(before: Settings, settings: Settings) -> Configured:
    """The event of new settings; it names what was sent so far, is hidden in the log and was not given again.

    Raises `MisuseError` if a model is to continue the session of a program.
    """
    if before.model.endpoint.is_program and not settings.model.endpoint.is_program:
        raise MisuseError("this session is that of a program in another run; resume the run that started it")
    given = {extra.name for extra in settings.extras}
    extras = (extra.name for extra in before.extras if extra.digest)
    tools = (spec.name for spec in before.all_tools if spec.native_digest)
    # guard: omitted-values-recorded
    return Configured(
        settings=settings,
        omitted_extras=tuple(name for name in extras if name not in given),
        omitted_tools=tuple(name for name in tools if name not in settings.tool_names),
    )


def _digest_text(name: str, text: str) -> str:
    return sha256(f"{name}\0{text}".encode()).hexdigest()[:DIGEST_CHARACTERS]


def _hide_strings(
    name: str,
    value: object,
    words: frozenset[str],
    found: list[tuple[str, str]],
    public: frozenset[str] = frozenset(),
) -> object:
    """The value with its strings replaced by the mark, which are added to `found`; members in `public` stay."""
    if isinstance(value, dict):
        return {inner: _hide_strings(str(inner), each, words, found, public) for inner, each in value.items()}
    if isinstance(value, list):
        return [_hide_strings(name, each, words, found, public) for each in value]
    if not isinstance(value, str) or not value or value in words or name in public:
        return value
    found.append((name, value))
    # guard: private-extra-hidden
    return HIDDEN_MARK


def _list_public_words(settings: Settings) -> frozenset[str]:
    models = (settings.model, *settings.models)
    terms = (factor.term for model in models if model.price for factor in model.price.factors)
    return PUBLIC_WORDS.union(terms, TTL_SECONDS)


def _describe_mark(extra: Extra) -> str:
    return f"the extra {extra.name!r} comes from a log, which does not hold its values; write it out again"
