"""What was heard of a reply, for the case that it breaks off.

Most providers count what a model wrote at the end of a reply only.  One that is cancelled or cut off before
that was written all the same, and is paid for: what was heard of it is counted by our own measure, on the
dear side, and never as more than was asked for.
"""

from msgspec.structs import replace

from ..core.saying import text_tokens
from ..core.weighing import DEAR_TIMES
from ..values.delta import Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.message import Reply
from ..values.usage import Usage


class Heard:
    def __init__(self, tokens_max: int | None) -> None:
        self._tokens_max = tokens_max
        self._words: list[str] = []
        self._reply: Reply | None = None

    def take(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=words) | ReasoningDelta(reasoning=words) | ToolCallDelta(arguments=words):
                self._words.append(words)

    def whole(self, reply: Reply) -> Reply:
        """It has come to its end: nothing has to be guessed any more."""
        self._reply = reply
        return reply

    def usage(self, counted: Usage) -> Usage:
        """`counted` is what the provider has said so far."""
        if self._reply is not None:
            return self._reply.usage
        if not self._words:
            return counted
        heard = text_tokens("".join(self._words))
        if counted.output * DEAR_TIMES >= heard:
            return counted  # it counts as it goes
        return replace(counted, output=heard if self._tokens_max is None else min(heard, self._tokens_max))
