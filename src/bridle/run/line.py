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

from ..ports.clock import Clock
from ..ports.codec import Codec
from ..ports.transport import Transport
from ..providers import load
from ..providers.catalogue import Signer, authorise, find, key, signer
from ..transports.deadlines import Deadlines
from ..values.model import Model
from ..values.redaction import find_header_secrets
from .breakers import SHARED, Breakers


@dataclass(frozen=True, kw_only=True)
class Line:
    model: Model
    codec: Codec
    transport: Transport
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    sign: Signer | None = field(default=None, repr=False)
    """What signs each request, where a signature stands in for a key."""
    breakers: Breakers = field(default_factory=Breakers, repr=False, compare=False)
    """Shared by all who ask over this line; lines made from a model's name share those of the process."""

    @cached_property
    def secrets(self) -> frozenset[str]:
        """The credentials in the headers."""
        return frozenset(found for name, value in self.headers for found in find_header_secrets(name, value))


def locate(model: str, environ: Mapping[str, str] | None = None, *, spoken_to: bool = True) -> Model:
    """The model meant by a string like `vendor:model`; raises `UnknownModel`.

    Unless it is to be `spoken_to`, nothing has to be set that says where it answers.
    """
    return find(model, environ=os.environ if environ is None else environ, spoken_to=spoken_to)


def connect(
    model: Model,
    environ: Mapping[str, str] | None = None,
    *,
    clock: Clock | None = None,
    deadlines: Deadlines | None = None,
) -> Line:
    """Raises `MissingKey` before anything is sent.  `clock` is slept on where no network is waited for."""
    secret = key(model, os.environ if environ is None else environ)
    return Line(
        model=model,
        codec=load(model.endpoint.family),
        transport=_transport(model, clock, deadlines),
        headers=authorise(model.endpoint, secret),
        sign=signer(model, os.environ if environ is None else environ),
        breakers=SHARED,
    )


def _transport(model: Model, clock: Clock | None, deadlines: Deadlines | None) -> Transport:
    package = __package__.rpartition(".")[0]
    if model.endpoint.app:
        inprocess = import_module(f"{package}.transports.inprocess")
        local: Transport = inprocess.InProcessTransport(model.endpoint.app, clock=clock, deadlines=deadlines)
        return local
    http: Transport = import_module(f"{package}.transports.http").HttpTransport(deadlines)
    return http


def model_of(given: str | Model | Line, *, spoken_to: bool = True) -> Model:
    if isinstance(given, Line):
        return given.model
    return locate(given, spoken_to=spoken_to) if isinstance(given, str) else given
