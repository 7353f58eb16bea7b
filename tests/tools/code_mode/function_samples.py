"""Tools of which code mode makes functions."""

import json
from dataclasses import dataclass
from typing import Literal

from bridle import tool
from bridle.values.request import ToolSpec


class Spec:
    """A tool with any schema, as a server declares it."""

    def __init__(self, name, parameters=None, description=""):
        schema = {"type": "object", "properties": parameters or {}}
        self.spec = ToolSpec(name=name, description=description, parameters=json.dumps(schema))


@dataclass
class Address:
    street: str
    number: int = 1


@tool
def send(to: Address, kind: Literal["letter", "parcel"], tags: list[str] | None = None) -> dict[str, int]:
    """Send something.

    Args:
        kind: What it is.
    """
    return {}
