"""`ModelConnection`: a model with its codec, transport and credentials; `ModelChain`: the models of an agent, in order.

`connect_model` makes a connection from a model.  Codecs and transports are imported on first use, so that importing
Bridle stays cheap.  Keys are read from the environment here and stored only in the headers of the connection.

Each model of a chain is given by name, as a `Model`, or as a ready `ModelConnection`.  Invalid input is reported
before anything is sent.
"""

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bridle.core.budget.scopes import has_dollars
from bridle.core.recovery.fallback import choose_first_model
from bridle.ports.clock import Clock
from bridle.ports.codec import Codec, HttpRequest
from bridle.ports.transport import OutgoingRequest, Transport
from bridle.providers import load_codec
from bridle.providers.catalogue import (
    Signer,
    auth_headers,
    find_key,
    find_model,
    make_signer,
    missing_address,
)
from bridle.run.recovery.breakers import PROCESS_BREAKERS, CircuitBreakers
from bridle.transports.deadlines import Deadlines
from bridle.values.errors import Failure, FailureKind, MissingKey, MisuseError, ProviderError
from bridle.values.model import Model
from bridle.values.redaction import (
    Redactor,
    find_header_secrets,
    hide_user_info,
    is_credential_name,
    is_plain_word,
)

from .private_extras import NO_PRIVATE_EXTRAS, PrivateExtras

if TYPE_CHECKING:
    from bridle.run.budget.sources import BudgetPool
    from bridle.values.settings import Settings
    from bridle.values.usage import Budget

KEY_PLACEHOLDER = "[key]"


@dataclass(frozen=True, kw_only=True)
class ModelConnection:
    model: Model
    codec: Codec
    transport: Transport
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    sign_request: Signer | None = field(default=None, repr=False)
    """Signs each request, where the provider uses signatures instead of keys."""
    breakers: CircuitBreakers = field(default_factory=CircuitBreakers, repr=False, compare=False)
    """Shared by all users of this connection; `connect_model` uses those of the process."""
    private_extras: PrivateExtras = field(default=NO_PRIVATE_EXTRAS, repr=False)
    """Extras of the agent whose values are not in the log."""

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The credentials in the headers and extras."""
        known, private = _find_secrets(self.headers), self.private_extras.credentials
        return known | private if private else known

    @cached_property
    def reply_redactor(self) -> Redactor | None:
        """Removes the credentials from replies; None if there is none.

        A credential that is a plain word stays: it may be part of an ordinary text.
        """
        return make_redactor(self.secrets)

    def redact_error(self, text: str, signed: frozenset[str] = frozenset()) -> str:
        """The text of an error, which may repeat any field of a request, without credentials and hidden texts."""
        # guard: private-extras-are-secret
        secrets = self.secrets | self.private_extras.texts | signed
        return Redactor(secrets, KEY_PLACEHOLDER).redact_text(text)

    def with_extras(self, extras: PrivateExtras) -> "ModelConnection":
        """This connection for an agent with these extras."""
        connection = copy(self)  # `replace` would call the constructor of a subclass
        object.__setattr__(connection, "private_extras", extras)
        for name in ("secrets", "reply_redactor"):
            connection.__dict__.pop(name, None)
        return connection


@lru_cache(maxsize=64)
def _find_secrets(headers: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """The credentials in headers; each run makes new connections with the same headers."""
    return frozenset().union(*(find_header_secrets(name, value) for name, value in headers))


@lru_cache(maxsize=64)
def make_redactor(secrets: frozenset[str]) -> Redactor | None:
    """One for all runs with the same credentials: it holds patterns that are slow to compile."""
    found = [each for each in secrets if not is_plain_word(each)]
    return Redactor(found, KEY_PLACEHOLDER) if found else None


def find_model_by_name(
    model: str, environ: Mapping[str, str] | None = None, *, needs_address: bool = True
) -> Model:
    """Find the model for a string like `vendor:model`; raises `UnknownModel`.

    With `needs_address=False` the variables that hold its address may be unset.
    """
    return find_model(model, environ=os.environ if environ is None else environ, needs_address=needs_address)


def connect_model(
    model: Model,
    environ: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    deadlines: Deadlines | None = None,
) -> ModelConnection:
    """Connect to a model; raises `MissingKey`.  In-process endpoints sleep on `clock`."""
    secret = find_key(model, os.environ if environ is None else environ)
    return ModelConnection(
        model=model,
        codec=load_codec(model.endpoint.family),
        transport=_make_transport(model, clock, deadlines),
        headers=auth_headers(model.endpoint, secret),
        sign_request=make_signer(model, os.environ if environ is None else environ),
        breakers=PROCESS_BREAKERS,
    )


def _make_transport(model: Model, clock: Clock | None, deadlines: Deadlines | None) -> Transport:
    package = __package__.rpartition(".")[0]
    if model.endpoint.app:
        inprocess = import_module(f"{package}.transports.inprocess")
        local: Transport = inprocess.InProcessTransport(model.endpoint.app, clock=clock, deadlines=deadlines)
        return local
    http: Transport = import_module(f"{package}.transports.http").HttpTransport(deadlines)
    return http


def resolve_model(given: str | Model | ModelConnection, *, needs_address: bool = True) -> Model:
    """The model of a name or connection; raises `MisuseError` if its endpoint has a credential that logs would keep."""
    if isinstance(given, ModelConnection):
        given = given.model
    model = find_model_by_name(given, needs_address=needs_address) if isinstance(given, str) else given
    endpoint = model.endpoint
    if hide_user_info(endpoint.base_url) != endpoint.base_url:
        raise MisuseError(
            f"the address of endpoint {endpoint.name!r} holds a user or password, which would be written to the log;"
            " remove it, and name the variable with the key: Endpoint(key_env=…, auth=…)"
        )
    if named := next((name for name, _ in endpoint.headers if is_credential_name(name)), ""):
        raise MisuseError(
            f"header {named!r} of endpoint {endpoint.name!r} is a credential, which would be written to the log;"
            " name its variable, Endpoint(key_env=…, auth=…), or use ModelConnection(headers=…)"
        )
    return model


def suggest_fix(kind: FailureKind, model: Model) -> str:
    """Name the key variable or the model string to check; empty if neither is the cause."""
    endpoint = model.endpoint
    if kind == "unauthorized":
        names = (*endpoint.key_env, *endpoint.signing_env[:2])
        listed = " or ".join(f"${name}" for name in names)
        return f"check the key for {model.name}" + (f" in {listed}" if listed else "")
    if kind == "not_found":
        address = f" and the address {endpoint.base_url}" if endpoint.custom_address else ""
        return f"check the model string {model.name!r}{address}"
    return ""


RESPONSE_BYTES_MAX = 8 * 1024 * 1024


async def send_request(
    connection: ModelConnection, request: HttpRequest, now: float
) -> tuple[int, Mapping[str, str], bytes]:
    """Send a request that is not a model call (store a prompt, open a conversation).

    Returns status, headers and body; `now` dates the signature.  Raises `ProviderError`.
    """
    outgoing = OutgoingRequest(
        method=request.method,
        url=connection.model.endpoint.base_url.rstrip("/") + request.path,
        headers=(*request.headers, *connection.headers),
        body=request.body,
        secrets=connection.private_extras.credentials,
        private_texts=connection.private_extras.texts,
    )
    if connection.sign_request is not None:
        outgoing = replace(outgoing, headers=(*outgoing.headers, *connection.sign_request(outgoing, now)))
    async with connection.transport.open(outgoing) as answer:
        body = bytearray()
        async for chunk in answer.chunks():
            body += chunk
            if len(body) > RESPONSE_BYTES_MAX:
                message = f"the response exceeds {RESPONSE_BYTES_MAX:,} bytes and was abandoned"
                raise ProviderError(Failure(kind="garbled", message=message, should_retry=False))
        return answer.status, answer.headers, bytes(body)


ModelLike = str | Model | ModelConnection


@dataclass(frozen=True)
class ModelChain:
    models: tuple[Model, ...]
    given_connections: dict[str, ModelConnection]
    """Connections passed by the caller, by model key."""
    extra_models: tuple[Model, ...] = ()
    """Models outside the chain, such as the summarizer."""

    @property
    def chain_models(self) -> tuple[Model, ...]:
        """The models for the settings: empty if there is only one."""
        return self.models if len(self.models) > 1 else ()

    def open_connections(
        self, clock: Clock, deadlines: Deadlines | None, extras: PrivateExtras = NO_PRIVATE_EXTRAS
    ) -> dict[str, ModelConnection]:
        """Connections by model key, which restore the `extras`; `skipped_models` have none."""
        skipped = {key for key, _ in self.skipped_models}
        connections = {
            model.model_key: self.given_connections.get(model.model_key)
            or connect_model(model, clock=clock, deadlines=deadlines)
            for model in (*self.models, *self.extra_models)
            if model.model_key not in skipped
        }
        if extras is NO_PRIVATE_EXTRAS:
            return connections
        return {key: each.with_extras(extras) for key, each in connections.items()}

    @property
    def skipped_models(self) -> tuple[tuple[str, str], ...]:
        """Models of the chain without a key or an address, with the reason; raises `MissingKey` if all are."""
        found = [(model, reason) for model in self.chain_models if (reason := self._missing_setting(model))]
        if found and len(found) == len(self.models):
            listed = "; ".join(reason for _, reason in found)
            has_addresses = not any(missing_address(model) for model in self.models)
            wanted = "a key" if has_addresses else "a key and an address"
            raise MissingKey(f"no model of the chain has {wanted}: {listed}")
        return tuple((model.model_key, reason) for model, reason in found)

    def _missing_setting(self, model: Model) -> str:
        if model.model_key in self.given_connections:
            return ""
        if reason := missing_address(model):
            return reason
        try:
            find_key(model, os.environ)
        except MissingKey as error:
            return str(error)
        return ""

    def check_price(self, budget: "Budget | None", pool: "BudgetPool", now: float) -> None:
        limited = (budget is not None and has_dollars(budget)) or (pool is not None and pool.usd is not None)
        for model in (*self.models, *self.extra_models) if limited else ():
            if model.price is None or model.price.rates(0, now) is None:
                raise MisuseError(
                    f"no price is known for {model.name}, so a budget in dollars cannot be enforced;"
                    " use Budget(tokens=…) or add the price to the file named by $BRIDLE_MODELS"
                )


def make_model_chain(
    given: ModelLike | Sequence[ModelLike], deadlines: Deadlines | None, summarizer: Model | None = None
) -> ModelChain:
    each = [given] if isinstance(given, str | Model | ModelConnection) else given
    if not each:
        raise MisuseError("no model was given; name at least one, such as 'sim:'")
    if not isinstance(each, Sequence):
        raise MisuseError(f"a model is a name such as 'sim:', a Model or a ModelConnection, not {given!r}")
    # A chain skips a model without an address; a single model must have one.
    models = tuple(resolve_model(one, needs_address=len(each) == 1) for one in each)
    connections = {one.model.model_key: one for one in each if isinstance(one, ModelConnection)}
    if connections and deadlines is not None:
        raise MisuseError(
            "a ModelConnection has its own deadlines; set them on its transport, or name the model"
        )
    keys = [model.model_key for model in models]
    if repeated := [key for at, key in enumerate(keys) if key in keys[:at]]:
        raise MisuseError(f"{repeated[0]} is in the chain twice; a failed model is not tried again")
    extra = (summarizer,) if summarizer is not None else ()
    return ModelChain(models=models, given_connections=connections, extra_models=extra)


def settings_for_first_model(
    settings: "Settings", connections: dict[str, ModelConnection], now: float
) -> "Settings":
    """The settings of a new prompt: those of the first healthy model that has a key."""
    return choose_first_model(
        settings, lambda model: connections[model.model_key].breakers.is_healthy(model, now)
    )
