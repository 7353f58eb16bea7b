"""`ModelConnection`: a model with its codec, transport and credentials.

`connect_model` makes one from a model.  Codecs and transports are imported on first use, so that importing
Bridle stays cheap.  Keys are read from the environment here and stored only in the headers of this object.
"""

import os
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module

from msgspec.structs import replace

from bridle.ports.clock import Clock
from bridle.ports.codec import Codec, HttpRequest
from bridle.ports.transport import OutgoingRequest, Transport
from bridle.providers import load_codec
from bridle.providers.catalogue import Signer, auth_headers, find_key, find_model, make_signer
from bridle.run.recovery.breakers import PROCESS_BREAKERS, CircuitBreakers
from bridle.transports.deadlines import Deadlines
from bridle.values.errors import Failure, MisuseError, ProviderError
from bridle.values.model import Model
from bridle.values.redaction import Redactor, find_header_secrets, hide_user_info, is_credential_name

from .private_extras import NO_PRIVATE_EXTRAS, PrivateExtras

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
        found = (find_header_secrets(name, value) for name, value in self.headers)
        return self.private_extras.credentials.union(*found)

    def redact_error(self, text: str, signed: frozenset[str] = frozenset()) -> str:
        """The text of an error, which may repeat any field of a request, without credentials and hidden texts."""
        secrets = self.secrets | self.private_extras.texts | signed
        return Redactor(secrets, KEY_PLACEHOLDER).redact_text(text)

    def with_extras(self, extras: PrivateExtras) -> "ModelConnection":
        """This connection for an agent with these extras."""
        connection = copy(self)  # `replace` would call the constructor of a subclass
        object.__setattr__(connection, "private_extras", extras)
        connection.__dict__.pop("secrets", None)
        return connection


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
