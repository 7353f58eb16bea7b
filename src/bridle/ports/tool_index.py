"""Contract of a search index over tools.

Queried with the first prompt of a session and with every `search_tools` call of the model. Its answers are
recorded in the log, so that a resumed run shows the same tools even if the index has changed.
"""

from collections.abc import Sequence
from typing import Protocol

from bridle.values.request import ToolSpec


class ToolIndex(Protocol):
    async def find(self, query: str, tools: Sequence[ToolSpec], limit: int) -> Sequence[str]:
        """Names of at most `limit` relevant tools, best first.

        `tools` is the same sequence throughout a process, so derived data may be cached. May call a service.
        Must not block, and should be deterministic: the result becomes part of a prompt, and another order is
        a cache miss.
        """
        ...
