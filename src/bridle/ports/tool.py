"""What a tool must be.

`run` gets arguments that satisfy `spec.parameters` and returns parts for the model.
It may raise anything: the caller turns an exception into an error result.  It must
not block the event loop, and should stop when it is cancelled.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ..values.parts import Media, Text
from ..values.request import ToolSpec
from ..values.value import Value

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


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
