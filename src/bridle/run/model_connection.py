"""A line to a model: who answers, in which language, over what.

`connect` turns a model string into one.  Edges are loaded by name when they are first
needed, so that importing Bridle stays cheap; keys are read from the environment here
and live only in the headers of this object.
"""

import os
from collections.abc import Mapping
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
from bridle.values.errors import Failure, ProviderError
from bridle.values.model import Model
from bridle.values.redaction import find_header_secrets


@dataclass(frozen=True, kw_only=True)
class ModelConnection:
    model: Model
    codec: Codec
    transport: Transport
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    sign_request: Signer | None = field(default=None, repr=False)
    """What signs each request, where a signature stands in for a key."""
    breakers: CircuitBreakers = field(default_factory=CircuitBreakers, repr=False, compare=False)
    """Shared by all who ask over this line; lines made from a model's name share those of the process."""

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The credentials in the headers."""
        return frozenset(found for name, value in self.headers for found in find_header_secrets(name, value))


def find_model_by_name(
    model: str, environ: Mapping[str, str] | None = None, *, spoken_to: bool = True
) -> Model:
    """The model meant by a string like `vendor:model`; raises `UnknownModel`.

    Unless it is to be `spoken_to`, nothing has to be set that says where it answers.
    """
    return find_model(model, environ=os.environ if environ is None else environ, spoken_to=spoken_to)


def connect_model(
    model: Model,
    environ: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    deadlines: Deadlines | None = None,
) -> ModelConnection:
    """Raises `MissingKey` before anything is sent.  `clock` is slept on where no network is waited for."""
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


def resolve_model(given: str | Model | ModelConnection, *, spoken_to: bool = True) -> Model:
    if isinstance(given, ModelConnection):
        return given.model
    return find_model_by_name(given, spoken_to=spoken_to) if isinstance(given, str) else given


# Sends one small request beside the model calls (keep a prompt, make a conversation).


RESPONSE_BYTES_MAX = 8 * 1024 * 1024


async def send_request(
    line: ModelConnection, wanted: HttpRequest, now: float
) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of the answer; `now` dates a signature.  Raises `ProviderError`."""
    outgoing = OutgoingRequest(
        method=wanted.method,
        url=line.model.endpoint.base_url.rstrip("/") + wanted.path,
        headers=(*wanted.headers, *line.headers),
        body=wanted.body,
    )
    if line.sign_request is not None:
        outgoing = replace(outgoing, headers=(*outgoing.headers, *line.sign_request(outgoing, now)))
    async with line.transport.open(outgoing) as answer:
        body = bytearray()
        async for chunk in answer.chunks():
            body += chunk
            if len(body) > RESPONSE_BYTES_MAX:
                message = f"the answer is longer than {RESPONSE_BYTES_MAX:,} bytes and was given up"
                raise ProviderError(Failure(kind="garbled", message=message, should_retry=False))
        return answer.status, answer.headers, bytes(body)
