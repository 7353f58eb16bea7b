"""Find the models that a log names in the tables of this machine.

A log may come from elsewhere, so it is data.  Of a model in it only the names are read (vendor, wire, model).
Its address, the variable its key is in and what is imported for it come from the tables and the environment
here.  An address that the tables do not give is used only when the caller names its host.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from bridle.providers.catalogue import find_model, missing_address
from bridle.values.calls import Policy
from bridle.values.errors import MisuseError
from bridle.values.model import Model
from bridle.values.request import Extra
from bridle.values.text import parse_json


class ForeignEndpoint(MisuseError):
    """A log names an endpoint that is not the one the tables here give for its vendor."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


def resolve_logged_model(logged: Model, environ: Mapping[str, str], trusted_host: str = "") -> Model:
    """The model of a log as the tables here know it.

    Raises `ForeignEndpoint`, which names the host and the variable of the key, when the log says another
    address; `trusted_host` is a host that the caller lets it go to all the same.
    """
    endpoint = logged.endpoint
    found = list(_find_in_tables(logged, environ))
    for model in found:
        if (model.endpoint.base_url, model.endpoint.app) == (endpoint.base_url, endpoint.app):
            return model
    if missing_address(logged):
        # It was skipped where the log was written, so the log has no address: the tables here have the word.
        for model in _find_in_tables(logged, environ, spoken_to=False):
            return model
    host = urlsplit(endpoint.base_url).netloc.rpartition("@")[2]
    if not endpoint.base_url:
        raise MisuseError(
            f"the log names {logged.name}, which the tables here do not know, and code to import for it;"
            " nothing is imported because of a log: name a model with --model"
        )
    there = list(_find_in_tables(logged, environ, f"@{endpoint.base_url}"))
    if not there:
        raise MisuseError(
            f"the log names {logged.name} at {host}, and the tables here do not know its vendor;"
            " name a model with --model"
        )
    if trusted_host and trusted_host == host:
        return there[0]
    keys = there[0].endpoint.key_env or there[0].endpoint.signing_env
    sent = f"with the key in {' or '.join(keys)}" if keys else "without a key"
    raise ForeignEndpoint(
        f"the log asks for {logged.name} at {host}, {sent}, and the tables here say another address;"
        f" to go there: --trust-endpoint {host}; to go on elsewhere: --model VENDOR:MODEL",
        host,
    )


def _find_in_tables(
    logged: Model, environ: Mapping[str, str], address: str = "", *, spoken_to: bool = True
) -> Iterator[Model]:
    vendor, roles = logged.endpoint.name, [""]
    if logged.endpoint.simulated:
        roles += [f"{logged.endpoint.family}/", *(f"{role}/" for _, role in logged.endpoint.headers)]
    for role in roles:
        for exact in ("", "="):
            try:
                model = find_model(
                    f"{vendor}:{exact}{role}{logged.id}{address}", environ=environ, spoken_to=spoken_to
                )
            except MisuseError:
                continue  # not a name of the tables, spelt like this
            if model.endpoint.family == logged.endpoint.family:
                yield model


# Take settings from a log that may come from elsewhere, without giving it more access than the caller gave.
#
# Rules that deny or ask hold as they are.  Rules that allow stay in the log and do not count until the caller
# names the policy again.  Extras are fields of a request; those with an address or a credential are left out.


_ADDRESS_NAME = re.compile(r"(^|_)(url|uri|host|hostname|endpoint|address|webhook|server)s?$")
_CREDENTIAL_NAME = re.compile(
    r"(^|_)(authori[sz]ation|token|secret|password|credential|cookie|header)s?$|api_?key|^token_"
)
_TOKEN_COUNT_NAME = re.compile(r"(^|_)tokens$|^token_count$")
"""Counts of tokens."""
_CAMEL_CASE_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def take_logged_policy(logged: Policy) -> Policy:
    """The policy of a log, in which only the rules that deny or ask count."""
    return replace(logged, allow_rules_hold=False)


def take_logged_extras(logged: Sequence[Extra]) -> tuple[tuple[Extra, ...], tuple[str, ...]]:
    """The extras that are taken, and one sentence about each that is not."""
    kept: list[Extra] = []
    left_out: list[str] = []
    for extra in logged:
        fault = _find_extra_fault(extra)
        if fault:
            left_out.append(f"the log's extra {extra.name!r} {fault} and is not sent")
        else:
            kept.append(extra)
    return tuple(kept), tuple(left_out)


def _find_extra_fault(extra: Extra) -> str:
    try:
        value = parse_json(extra.json)
    except ValueError:
        return "holds no JSON"
    for name, leaf in _iterate_members(extra.name, value):
        words = _CAMEL_CASE_BREAK.sub("_", name).replace("-", "_").lower()
        if _CREDENTIAL_NAME.search(words) and not _TOKEN_COUNT_NAME.search(words):
            return f"holds a credential ({name})"
        if _ADDRESS_NAME.search(words) or (isinstance(leaf, str) and "://" in leaf):
            return f"holds an address ({name})"
    return ""


def _iterate_members(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Each member and each value, under the name nearest to it."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        yield name, value
        if isinstance(value, dict):
            waiting.extend((str(inner), each) for inner, each in value.items())
        elif isinstance(value, list):
            waiting.extend((name, each) for each in value)
