"""What was heard of a reply, for the case that it breaks off.

Most providers count what a model wrote at the end of a reply only.  One that is cancelled or cut off before
that was written all the same, and is paid for: what was heard of it is counted by our own measure, on the
dear side, and never as more than was asked for.
"""

from msgspec.structs import replace

from ..core.dispatch import call_id
from ..core.saying import text_tokens
from ..core.weighing import DEAR_TIMES
from ..values.delta import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from ..values.message import Reply
from ..values.usage import Usage


class CallIds:
    """Gives the deltas of a reply the ids that its calls will have, so that a viewer can match them."""

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._number_of: dict[int, int] = {}
        """Which call a part of the reply is, by the part's place."""
        self._ready: set[int] = set()

    def identify(self, delta: Delta) -> Delta:
        match delta:
            case ToolCallDelta(index=place):
                return replace(delta, call_id=call_id(self._turn, self._number(place)))
            case CallReady(index=number, call=call):
                self._ready.add(number)
                return replace(delta, call=replace(call, id=call_id(self._turn, number)))
        return delta

    def _number(self, place: int) -> int:
        """Calls arrive in their order; one without arguments may arrive without a delta."""
        if place not in self._number_of:
            known = self._ready.union(self._number_of.values())
            self._number_of[place] = max(known, default=-1) + 1
        return self._number_of[place]


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
