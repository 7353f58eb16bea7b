"""Takes settings from a log that may come from another machine, without giving the log any access.

Only the names of a model are read from the log (vendor, wire, model).  Its address, its key variable and the
code imported for it come from the tables and environment of this machine.  An address that the tables do not
contain is used only if the caller names its host.

Policy rules that deny or ask apply as logged.  Rules that allow are ignored until the caller names the policy
again.  Extras are request fields; those that contain an address, a credential or hidden values are left out.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from bridle.providers.catalogue import find_model, missing_address
from bridle.run.context.instructions import TurnInstruction, per_turn
from bridle.tools.schema.output_type import OutputType
from bridle.values.calls import Policy
from bridle.values.errors import MisuseError
from bridle.values.memory import FilledPrompt
from bridle.values.model import Model
from bridle.values.request import Extra
from bridle.values.settings import Settings
from bridle.values.text import parse_json


class ForeignEndpoint(MisuseError):
    """A log names an endpoint that is not the one the tables here give for its vendor."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


def take_logged_output(logged: Settings) -> OutputType[object] | None:
    """The output type by its logged schema, with answers as JSON; None without one, or if functions make the answer."""
    spec = logged.output
    if spec is None or not spec.name:
        return None
    return OutputType(spec.parameters, spec.name, spec.description, lambda answer: answer)


def resolve_logged_model(logged: Model, environ: Mapping[str, str], trusted_host: str = "") -> Model:
    """Find a logged model in the tables of this machine.

    Raises `ForeignEndpoint` with the host and the key variable if the logged address differs from the
    tables and is not `trusted_host`.
    """
    # guard: logged-endpoint-replaced
    endpoint = logged.endpoint
    found = list(_find_in_tables(logged, environ))
    for model in found:
        if (model.endpoint.base_url, model.endpoint.app) == (endpoint.base_url, endpoint.app):
            return model
    if missing_address(logged):
        # The model was skipped where the log was written, so the log has no address: use the tables.
        for model in _find_in_tables(logged, environ, needs_address=False):
            return model
    host = urlsplit(endpoint.base_url).netloc.rpartition("@")[2]
    if not endpoint.base_url:
        raise MisuseError(
            f"the log names {logged.name}, which is not in the model tables, and code to import for it;"
            " logs cannot import code: name a model with --model"
        )
    there = list(_find_in_tables(logged, environ, f"@{endpoint.base_url}"))
    if not there:
        raise MisuseError(
            f"the log names {logged.name} at {host}, whose vendor is not in the tables;"
            " name a model with --model"
        )
    # guard: logged-host-trusted
    if trusted_host and trusted_host == host:
        return there[0]
    keys = there[0].endpoint.key_env or there[0].endpoint.signing_env
    auth = f"with the key in {' or '.join(keys)}" if keys else "without a key"
    raise ForeignEndpoint(
        f"the log names {logged.name} at {host}, {auth}, but the tables give another address;"
        f" to use it: --trust-endpoint {host}; to use another model: --model VENDOR:MODEL",
        host,
    )


def _find_in_tables(
    logged: Model, environ: Mapping[str, str], address: str = "", *, needs_address: bool = True
) -> Iterator[Model]:
    vendor, roles = logged.endpoint.name, [""]
    if logged.endpoint.simulated:
        roles += [f"{logged.endpoint.family}/", *(f"{role}/" for _, role in logged.endpoint.headers)]
    for role in roles:
        for exact in ("", "="):
            try:
                model = find_model(
                    f"{vendor}:{exact}{role}{logged.id}{address}",
                    environ=environ,
                    needs_address=needs_address,
                )
            except MisuseError:
                continue  # this spelling is not in the tables
            if model.endpoint.family == logged.endpoint.family:
                yield model


_ADDRESS_NAME = re.compile(r"(^|_)(url|uri|host|hostname|endpoint|address|webhook|server)s?$")
_CREDENTIAL_NAME = re.compile(
    r"(^|_)(authori[sz]ation|token|secret|password|credential|cookie|header)s?$|api_?key|^token_"
)
_TOKEN_COUNT_NAME = re.compile(r"(^|_)tokens$|^token_count$")
_CAMEL_CASE_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class _MissingFunction:
    """Stands in for a function that writes instructions and whose code is not here."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> str:
        raise LookupError("its code is not here; continue the session with the agent that has it")


def take_logged_instructions(logged: Settings) -> list[str | Callable[[], str] | TurnInstruction[object]]:
    """The logged instructions.  What functions wrote for the session is used; calling one of them fails."""
    text: str = logged.instructions
    if len(logged.templates) == 1:
        text = FilledPrompt(text, logged.templates[0])
    found: list[str | Callable[[], str] | TurnInstruction[object]] = [text] if text else []
    for function in logged.instruction_functions:
        missing = _MissingFunction(function.name)
        found.append(missing if function.scope == "session" else per_turn(missing))
    return found


def take_logged_policy(logged: Policy) -> Policy:
    """The logged policy with its allowing rules disabled."""
    # guard: logged-allow-rules
    return replace(logged, allow_rules_hold=False)


def take_logged_extras(logged: Sequence[Extra]) -> tuple[tuple[Extra, ...], tuple[str, ...]]:
    """The safe extras, and one sentence about each that was left out."""
    kept: list[Extra] = []
    left_out: list[str] = []
    for extra in logged:
        fault = _find_extra_fault(extra)
        # guard: logged-extras-checked
        if fault:
            left_out.append(f"the logged extra {extra.name!r} {fault} and is not sent")
        else:
            kept.append(extra)
    return tuple(kept), tuple(left_out)


def _find_extra_fault(extra: Extra) -> str:
    if extra.digest:
        return "has values that the log does not hold"
    try:
        value = parse_json(extra.json)
    except ValueError:
        return "is not valid JSON"
    for name, leaf in _iterate_members(extra.name, value):
        words = _CAMEL_CASE_BREAK.sub("_", name).replace("-", "_").lower()
        if _CREDENTIAL_NAME.search(words) and not _TOKEN_COUNT_NAME.search(words):
            return f"contains a credential ({name})"
        if _ADDRESS_NAME.search(words) or (isinstance(leaf, str) and "://" in leaf):
            return f"contains an address ({name})"
    return ""


def _iterate_members(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield every nested value with the name of its nearest enclosing member."""
    waiting = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        yield name, value
        if isinstance(value, dict):
            waiting.extend((str(inner), each) for inner, each in value.items())
        elif isinstance(value, list):
            waiting.extend((name, each) for each in value)
