"""The shape an answer must have, in every form in which clients ask for it.

A codec reads the form that this library writes.  Other clients send older forms, and JSON modes without a
schema: a family finds those in `answer_shape_<family>.py`, so that the responder answers them too.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

import msgspec
from msgspec.structs import replace

from ..values.request import OutputSpec, Request

PREFIX = "answer_shape_"
ANY_OBJECT: Mapping[str, object] = {"type": "object"}
"""What a JSON mode without a schema asks for."""
Finder = Callable[[Mapping[str, object]], object]


def with_answer_shape(family: str, body: Mapping[str, object], request: Request) -> Request:
    """The request with the shape its body asks for, where the codec did not read one."""
    finder = _finder(f"{__package__}.{PREFIX}{family}")
    if request.output is not None or finder is None:
        return request
    schema = finder(body)
    if not isinstance(schema, Mapping):
        return request
    return replace(request, output=OutputSpec(name="output", parameters=msgspec.json.encode(schema).decode()))


@lru_cache(maxsize=32)
def _finder(name: str) -> Finder | None:
    if find_spec(name) is None:
        return None
    found: Finder = import_module(name).find_schema
    return found
