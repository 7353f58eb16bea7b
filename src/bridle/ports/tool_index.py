"""What finds tools by what they are for.

Asked with the first words of a session and with every `search_tools` of the model.  Whatever
it answers is written into the log, so a resumed run shows what the first one showed even if
the index has learned something since.
"""

from collections.abc import Sequence
from typing import Protocol

from bridle.values.request import ToolSpec


class ToolIndex(Protocol):
    async def find(self, query: str, tools: Sequence[ToolSpec], limit: int) -> Sequence[str]:
        """Names of at most `limit` of these tools, the best first; none that has nothing to do with it.

        `tools` is the same sequence throughout a process, so what is computed from it may be kept.
        May ask a service.  Must not block, and should give the same answer to the same question:
        what it finds becomes part of a prompt, and another order is another prompt.
        """
        ...
