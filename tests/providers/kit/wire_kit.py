"""One wire family as the kits use it: its codec, its simulated server, and bytes given to its decoder."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import pytest

from bridle.ports.codec import Decoder
from bridle.providers import load_codec
from bridle.sim.families import find_family
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Reply
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request


class Wire:
    """A codec and a request to it."""

    def __init__(self, family: str, model: str, headers: Mapping[str, str] = {}) -> None:
        self.family = family
        self.codec = load_codec(family)
        self.server = find_family(family)
        self.asked = Request(model=Model(id=model, endpoint=Endpoint(name="here", family=family)))
        self.headers = headers
        """Headers that a reply has unless a test gives others."""

    def new_decoder(self, status=200, headers=None, request=None) -> Decoder:
        given = self.headers if headers is None else headers
        return self.codec.new_decoder(request or self.asked, status, given)

    def decode(self, body: bytes, status=200, headers=None, size=None, request=None) -> tuple[Reply, list]:
        """Return the reply and the deltas of a body that arrives in slices of `size` bytes."""
        decoder = self.new_decoder(status, headers, request)
        step = size or len(body) or 1
        deltas = [delta for at in range(0, len(body), step) for delta in decoder.feed(body[at : at + step])]
        return decoder.close(), deltas

    def decode_or_fail(self, body: bytes, status=200, headers=None, size=None) -> Reply | Failure:
        try:
            return self.decode(body, status, headers, size)[0]
        except ProviderError as error:
            return error.failure

    def fail(self, body: bytes, status=200, headers=None) -> Failure:
        """Return the failure that a body is; a body that is a reply fails the test."""
        with pytest.raises(ProviderError) as failed:
            self.decode(body, status, headers)
        return failed.value.failure


def list_rows(cases: Mapping[str, Any], table: str | Callable[[Any], Iterable]) -> list:
    """Return the rows of a table of every family, each with its family in front.

    The table is an attribute of the cases, or a function of them.
    """
    read = attrgetter(table) if isinstance(table, str) else table
    return [
        pytest.param(each, *(row if isinstance(row, tuple) else (row,)), id=f"{family}-{number}")
        for family, each in cases.items()
        for number, row in enumerate(read(each))
    ]
