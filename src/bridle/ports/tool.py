"""What a tool must be.

`run` gets arguments that satisfy `spec.parameters` and returns parts for the model.
It may raise anything: the caller turns an exception into an error result.  It must
not block the event loop, and should stop when it is cancelled.

When it is cancelled because its time is up (`time_is_up`), it may raise what it knows
of how far it came: the result is a timeout, with these words.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from bridle.values.base import Value
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


DEADLINE_CANCEL = "the tool's time is up"
"""What a tool is cancelled with at its deadline."""


def is_deadline_cancel(error: asyncio.CancelledError) -> bool:
    """Whether a tool was cancelled because of its deadline, and not with its run."""
    return error.args == (DEADLINE_CANCEL,)


class CallContext(Value):
    """What a running tool may know of the call it serves."""

    session: str
    call_id: str
    key: str
    """Equal for every attempt at this call: pass it on as an idempotency key."""
    attempt: int = 1


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> Sequence[Text | Media]: ...


@runtime_checkable
class ClaimingTool(Tool, Protocol):
    """A tool whose code has something to say about a call before it runs (`spec.keyed`, `spec.approve`)."""

    def claim_resource(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """What the call works on, None for who knows what; and whether a person must be asked.

        Must not block.
        """
        ...


@runtime_checkable
class HidesDefaults(Tool, Protocol):
    """A tool with fields whose defaults are made by code when a call runs, so that its schema lacks them."""

    @property
    def unseen_defaults(self) -> frozenset[str]:
        """Names of those fields, at any depth.  A rule that asks or denies by one of them is refused."""
        ...


@runtime_checkable
class RevealingTool(Tool, Protocol):
    """A tool whose results bring other tools to light."""

    def list_revealed_tools(self, parts: Sequence[Text | Media]) -> Sequence[str]:
        """The names of the tools that the model may call after it has read these parts of a result."""
        ...


@runtime_checkable
class ProbingTool(Tool, Protocol):
    """A tool that can find out what became of a call that was started and never finished."""

    async def probe(
        self, arguments: Mapping[str, Json], context: CallContext
    ) -> Sequence[Text | Media] | None:
        """What it brought; None only when it surely never took effect and never will."""
        ...
