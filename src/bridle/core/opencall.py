"""A call that the model asked for, from the reply it came with to its result.

A state holds the calls of the latest batch; whatever is known about one of them is here, and nothing
about when it may run (dispatch.py) or whether (permission.py).
"""

from ..values.event import ApprovalAnswered, ApprovalAsked
from ..values.parts import ToolCall, ToolResult
from ..values.policy import Claim
from ..values.value import Value

PLACE_DIGITS_MAX = 10
SEARCHED_MAX = 8
"""So few calls are searched faster than an id is read."""


class OpenCall(Value):
    """One call of the batch the model asked for last."""

    call: ToolCall
    problem: str = ""
    """Why it must not run, found when the reply came in; empty when it may."""
    same_as: int | None = None
    """Place in the reply of an earlier call with the same provider's id, name and arguments."""
    attempt: int = 0
    """How often it was started; 0 is never."""
    key: str = ""
    """What every attempt at it was started under."""
    same_action: str = ""
    """Id of an earlier call in doubt that is the same action (receipts.py); set while effects are decided."""
    running: bool = False
    """Started by the driver that writes this log now."""
    in_doubt: bool = False
    """Started by a driver that is gone."""
    result: ToolResult | None = None
    claim: Claim | None = None
    asked: ApprovalAsked | None = None
    """The latest question to a person about it."""
    asked_at: float = 0.0
    answer: ApprovalAnswered | None = None
    approvals_discarded: int = 0
    """Approvals of it in the log that did not count, because they were given elsewhere."""

    @property
    def open_question(self) -> ApprovalAsked | None:
        """The question that nobody has answered yet."""
        asked, answer = self.asked, self.answer
        if (
            asked is None
            or self.result is not None
            or (answer is not None and answer.binding == asked.binding)
        ):
            return None
        return asked

    @property
    def arguments(self) -> str:
        """What it runs with: the model's, unless a person wrote others."""
        edited = self.answer.arguments if self.answer is not None else None
        return self.call.arguments if edited is None else edited


def find_call(calls: tuple[OpenCall, ...], call_id: str) -> int | None:
    """The place of a call in its batch.  An id that we gave ends in it: a long batch is not searched."""
    if len(calls) > SEARCHED_MAX:
        digits = call_id.rpartition("_")[2]
        given = digits.isascii() and digits.isdigit() and len(digits) < PLACE_DIGITS_MAX
        place = int(digits) if given else -1
        if 0 <= place < len(calls) and calls[place].call.id == call_id:
            return place
    for at, item in enumerate(calls):
        if item.call.id == call_id:
            return at
    return None
