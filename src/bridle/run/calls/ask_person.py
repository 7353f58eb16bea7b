"""Puts a question to the approver of a run, unless another process answers it first.

    Agent(…, approver=wait_for_answers)     do not ask here: wait until another process answers

A question has one answer. Whichever answer comes first claims the question; the other one is not used.
"""

import asyncio
from inspect import isawaitable
from typing import Final, Literal

from bridle.run.clock import SessionClock
from bridle.run.validate_input import check_chosen
from bridle.values.calls import ApprovalVerdict, PendingApproval
from bridle.values.errors import MisuseError

from .approval import Approver

EXPIRED: Final = "late"
ANSWERED: Final = "answered elsewhere"
Answer = ApprovalVerdict | Literal["late", "answered elsewhere"] | None


async def wait_for_answers(question: PendingApproval) -> ApprovalVerdict | None:
    """Approver that waits for an answer of another process (`bridle approve`), or until the question expires."""
    await asyncio.get_running_loop().create_future()
    return None


class PersonQuestions:
    """The open questions of one driver."""

    def __init__(self, approver: Approver | None, clock: SessionClock) -> None:
        self._approver, self._clock = approver, clock
        self.takes_answers = False
        """True while answers of other processes arrive."""
        self._claimed: set[str] = set()
        self._answered: dict[str, asyncio.Event] = {}

    def claim(self, binding: str) -> bool:
        """Claim a question for an answer; False if another answer has it."""
        if binding in self._claimed:
            return False
        self._claimed.add(binding)
        return True

    def release(self, binding: str) -> None:
        """Give a claim back: the answer was not accepted."""
        self._claimed.discard(binding)

    def notify(self, binding: str) -> None:
        """Wake the question: another process's answer is recorded."""
        self._answered.setdefault(binding, asyncio.Event()).set()

    async def ask(self, question: PendingApproval) -> Answer:
        """The approver's verdict, or how the question was settled; None leaves it open and ends the run."""
        if self._approver is None or (self._approver is wait_for_answers and not self.takes_answers):
            return None
        try:
            async with asyncio.timeout(self._clock.seconds_left(question.expires_at)) as time:
                verdict = await self._race(self._approver, question)
        except TimeoutError:
            if not time.expired():
                raise  # raised by the approver itself
            return EXPIRED
        if verdict == ANSWERED:
            return ANSWERED
        if self._clock.seconds_left(question.expires_at) == 0:
            return EXPIRED
        if verdict is not None and not self.claim(question.binding):
            await self._answered.setdefault(question.binding, asyncio.Event()).wait()
            return ANSWERED
        return verdict

    async def _race(self, approver: Approver, question: PendingApproval) -> Answer:
        if not self.takes_answers:
            return await _call_approver(approver, question)
        answered = self._answered.setdefault(question.binding, asyncio.Event())
        asked = asyncio.create_task(_call_approver(approver, question))
        elsewhere = asyncio.create_task(answered.wait())
        try:
            await asyncio.wait((asked, elsewhere), return_when=asyncio.FIRST_COMPLETED)
            return ANSWERED if answered.is_set() else asked.result()
        finally:
            for task in (asked, elsewhere):
                task.cancel()
            await asyncio.gather(asked, elsewhere, return_exceptions=True)


async def _call_approver(approver: Approver, question: PendingApproval) -> ApprovalVerdict | None:
    answer: object = approver(question)
    if not isawaitable(answer):
        raise MisuseError(f"the function approver=… must be async; it returned {answer!r}")
    return check_chosen("approver", await answer, ApprovalVerdict)
