"""The gateway's file: models, keys, tenants.

    [models.fast]
    chain = ["anthropic:claude-haiku-4-5", "openai:gpt-6-luna"]

    [keys.alice]
    sha256 = "…"                  # `bridle gateway --new-key alice` prints the key and this line
    tenant = "acme"
    budget = { usd = 50 }

    [tenants.acme]
    budget = { usd = 500 }

A key is only ever stored as its SHA-256; it is random, so nothing can be guessed from that.
"""

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal

from bridle.config.toml_file import convert_table, read_toml_file
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.usage import Limits

KEY_PREFIX = "bridle-"
KEY_BYTES = 32
DIGEST_LENGTH = 64
OWN_TENANT_PREFIX = "key:"
"""Begins the tenant of a key that names none; no other tenant may have such a name."""


class GatewayModel(Value, kw_only=True, forbid_unknown_fields=True):
    """A model that clients may name: `[models.NAME]`."""

    chain: tuple[str, ...]
    """Model strings in order of preference; the next is used if one fails."""
    max_tokens: int | None = None
    """Maximum tokens of a reply for clients that set none."""


class GatewayKey(Value, kw_only=True, forbid_unknown_fields=True):
    """A key that clients send in place of a provider's: `[keys.NAME]`."""

    sha256: str
    """SHA-256 of the key, in hex."""
    tenant: str = ""
    """Tenant that its sessions belong to; without one, a tenant of this key alone."""
    models: tuple[str, ...] = ()
    """Models that it may use; all if empty."""
    budget: Limits = Limits()
    """Limits of all its calls together, in a period if there is one."""
    period: Literal["", "day", "month"] = ""
    """Time after which the budget begins again, by the calendar in UTC; empty for one that never does."""


class GatewayTenant(Value, kw_only=True, forbid_unknown_fields=True):
    """A tenant: `[tenants.NAME]`."""

    budget: Limits | tuple[Limits, ...] = Limits()
    """Limits of all calls of its keys together; several if they have periods."""


class GatewaySettings(Value, kw_only=True, forbid_unknown_fields=True):
    """The keys of the gateway's file."""

    models: dict[str, GatewayModel] = {}  # noqa: RUF012 - a frozen value
    keys: dict[str, GatewayKey] = {}  # noqa: RUF012
    tenants: dict[str, GatewayTenant] = {}  # noqa: RUF012
    hooks: tuple[str, ...] = ()
    """Hooks of every call: `module:name` or `FILE.py:name`, such as one that redacts personal data."""
    strict: bool = False
    """Refuse a request of which something cannot be carried to the provider."""
    keep_raw: bool = False
    """Keep the bytes of requests and replies for `bridle show --as raw`."""

    def find_key(self, given: str) -> tuple[str, GatewayKey] | None:
        """The name and entry of a key; every entry is compared, in constant time."""
        digest, found = digest_key(given), None
        for name, key in self.keys.items():
            # guard: gateway-key-compare
            if hmac.compare_digest(key.sha256, digest):
                found = name, key
        return found


def digest_key(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def make_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)


def read_gateway_file(path: Path) -> GatewaySettings:
    """Read the file; raises `MisuseError` with the line of a mistake. `check_settings` checks the rest."""
    file = read_toml_file(path)
    if file is None:
        raise MisuseError(f"{path} is empty; docs/gateway.md has an example")
    return convert_table(file, GatewaySettings)


def check_settings(settings: GatewaySettings) -> GatewaySettings:
    if not settings.models:
        raise MisuseError("the gateway has no model: add [models.NAME] with chain = [...], or give --model")
    for name, model in settings.models.items():
        if not model.chain:
            raise MisuseError(f"[models.{name}]: the chain is empty; name at least one model")
    for name in (*settings.tenants, *(key.tenant for key in settings.keys.values())):
        if name.startswith(OWN_TENANT_PREFIX):
            raise MisuseError(
                f"a tenant cannot be named {name!r}: {OWN_TENANT_PREFIX} is for keys without one"
            )
    digests: dict[str, str] = {}
    for name, key in settings.keys.items():
        if len(key.sha256) != DIGEST_LENGTH or not set(key.sha256) <= set("0123456789abcdef"):
            raise MisuseError(
                f"[keys.{name}]: sha256 must be 64 hex digits; `bridle gateway --new-key {name}` makes one"
            )
        if other := digests.setdefault(key.sha256, name) != name and digests[key.sha256]:
            raise MisuseError(f"[keys.{name}] and [keys.{other}] are the same key; make a new one for each")
        if key.period and not key.budget.kinds:
            raise MisuseError(f"[keys.{name}]: a period needs a budget, such as budget = {{ usd = 50 }}")
        if key.period and key.budget.period is not None:
            raise MisuseError(
                f"[keys.{name}]: the budget has a period of its own; remove `period` of the key"
            )
        _check_known(f"[keys.{name}]: models", key.models, settings.models)
        _check_known(f"[keys.{name}]: tenant", (key.tenant,) if key.tenant else (), settings.tenants)
    return settings


def _check_known(place: str, given: tuple[str, ...], known: Mapping[str, object]) -> None:
    for name in given:
        if known and name not in known:
            raise MisuseError(
                f"{place} names {name!r}, which the file does not have; it has: {', '.join(known)}"
            )
