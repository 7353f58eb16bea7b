"""Keeps the values of extras out of the log.

An extra is a request field in the caller's own JSON, so any string in it may be a credential, whatever its name.  The
settings of an agent are logged; they hold each extra with its strings replaced by a mark, and a digest that shows
whether the extra is still the same.  The original stays in the agent and returns to a request just before encoding.

Words of the wire formats (`auto`, `1h`, the service terms of a price) are not secret and stay: budgets and cache
lifetimes depend on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from bridle.core.cache.breakpoints import TTL_SECONDS
from bridle.providers.wire.extras import parse_extra
from bridle.values.errors import MisuseError
from bridle.values.redaction import find_header_secrets
from bridle.values.request import Extra, Request
from bridle.values.settings import Settings

HIDDEN_MARK = "[hidden]"
DIGEST_CHARACTERS = 16
PUBLIC_WORDS = frozenset((
    "adaptive", "any", "auto", "batch", "concise", "default", "detailed", "disabled", "enabled",
    "ephemeral", "fast", "flex", "high", "image", "json", "json_object", "low", "max", "medium",
    "minimal", "none", "optimized", "priority", "required", "reserved", "standard", "standard_only",
    "text", "xhigh",
))  # fmt: skip


@dataclass(frozen=True)
class PrivateExtras:
    """The original extras of an agent whose settings show marks in place of some strings."""

    originals: Mapping[str, Extra] = field(default_factory=dict, repr=False)
    """By the digest of the mark."""
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
        """The request with its original extras; raises `MisuseError` for a mark whose original is unknown."""
        unknown = [each for each in request.extras if each.digest and each.digest not in self.originals]
        if unknown:
            raise MisuseError(_describe_mark(unknown[0]))
        extras = (self.originals[each.digest] if each.digest else each for each in request.extras)
        return replace(request, extras=tuple(extras))


NO_PRIVATE_EXTRAS = PrivateExtras()


def hide_extras(settings: Settings) -> tuple[Settings, PrivateExtras]:
    """Settings fit for the log, and the originals; raises `MisuseError` for a mark or text that is not JSON."""
    if not settings.extras:
        return settings, NO_PRIVATE_EXTRAS
    words = _list_public_words(settings)
    extras: list[Extra] = []
    originals: dict[str, Extra] = {}
    strings: list[tuple[str, str]] = []
    for extra in settings.extras:
        if extra.digest:
            raise MisuseError(_describe_mark(extra))
        found: list[tuple[str, str]] = []
        shown = _hide_strings(extra.name, parse_extra(extra), words, found)
        if found:
            digest = sha256(f"{extra.name}\0{extra.json}".encode()).hexdigest()[:DIGEST_CHARACTERS]
            originals[digest] = extra
            strings += found
            extras.append(replace(extra, json=msgspec.json.encode(shown).decode(), digest=digest))
        else:
            extras.append(extra)
    private = PrivateExtras(originals, tuple(strings))
    return replace(settings, extras=tuple(extras)), private


def _hide_strings(name: str, value: object, words: frozenset[str], found: list[tuple[str, str]]) -> object:
    """The value with its strings replaced by the mark, which are added to `found`."""
    if isinstance(value, dict):
        return {inner: _hide_strings(str(inner), each, words, found) for inner, each in value.items()}
    if isinstance(value, list):
        return [_hide_strings(name, each, words, found) for each in value]
    if not isinstance(value, str) or not value or value in words:
        return value
    found.append((name, value))
    return HIDDEN_MARK


def _list_public_words(settings: Settings) -> frozenset[str]:
    models = (settings.model, *settings.models)
    terms = (factor.term for model in models if model.price for factor in model.price.factors)
    return PUBLIC_WORDS.union(terms, TTL_SECONDS)


def _describe_mark(extra: Extra) -> str:
    return f"the extra {extra.name!r} comes from a log, which does not hold its values; write it out again"
