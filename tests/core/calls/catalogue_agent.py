"""An agent with five hundred tools, and the bytes that it sends."""

from dataclasses import replace as replaced
from typing import Any

from msgspec.structs import replace

from bridle import Agent
from bridle.run.model_connection import ModelConnection, connect_model, find_model_by_name
from bridle.tools.search.lexical_index import LexicalIndex
from tests.core.calls.catalogue_tools import five_hundred

TOOLS = five_hundred()
REFUND = "billing__create_refund"


class Overheard:
    """A transport with an ear on it."""

    def __init__(self, line: ModelConnection) -> None:
        self._inner = line.transport
        self.bodies: list[bytes] = []

    def open(self, outgoing):
        self.bodies.append(outgoing.body)
        return self._inner.open(outgoing)


def open_recorded_model(
    model: str = "sim:", *, deferring: bool = True
) -> tuple[ModelConnection, list[bytes]]:
    line = connect_model(find_model_by_name(model))
    able = replace(line.model, abilities=replace(line.model.abilities, deferred_tools=deferring))
    ear = Overheard(line)
    return replaced(line, model=able, transport=ear), ear.bodies


def script(*turns: str) -> str:
    return "\n!then\n".join(turns)


class DeafToScripts:
    """The default index, which finds nothing for a prompt that is a script: it would find what is in it."""

    def __init__(self) -> None:
        self._index = LexicalIndex()

    async def find(self, query, tools, limit):
        return () if query.startswith("!") else await self._index.find(query, tools, limit)


def catalogue(line: ModelConnection, **settings: Any) -> Agent:
    return Agent(line, tools=TOOLS, tool_index=DeafToScripts(), **settings)


SEARCH = script('!call search_tools {"query": "pay money back to a customer"}', "!say Found.")
CALL = script(f'!call {REFUND} {{"fields": "20 euros"}}', "!say Paid.")
"""Two prompts, because a tool that a prompt calls by its name is shown with it."""
