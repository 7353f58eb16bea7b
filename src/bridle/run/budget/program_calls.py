"""Counts the tool calls of a program as calls of the run that started it, if that run limits its tool calls."""

from decimal import Decimal
from typing import TYPE_CHECKING

from bridle.core.budget.limits import tool_calls_left
from bridle.core.state import State
from bridle.values.budget import SubrunCharged

if TYPE_CHECKING:
    from .nested import NestedRun

NO_USD = Decimal(0)


class ProgramCalls:
    def __init__(self, nested_run: "NestedRun", session: str) -> None:
        self._nested_run, self.session = nested_run, session
        self._charged = 0
        """Calls that were charged and have not started: before a crash, or refused elsewhere."""

    def note_started(self, state: State) -> None:
        """Note which calls had started according to the program's own log."""
        known = self._nested_run.find_subrun(self.session)
        self._charged = (
            max(0, known.tool_calls - state.run.budget.spent.tool_calls) if known is not None else 0
        )

    async def charge(self, call: str) -> str:
        """Record a call that is about to run; returns the reason if it may not run."""
        run = self._nested_run.parent_budget.run
        left = tool_calls_left(run.state)
        if left is None:
            return ""
        if self._charged:
            self._charged -= 1
        elif left[0] <= 0:
            return left[1]
        else:
            own = self._nested_run.call_id
            await run.record(
                SubrunCharged(call_id=own, session=self.session, id=call, usd=NO_USD, tool_calls=1)
            )
        return ""

    def release(self) -> None:
        """Keep the charge of a call that does not run for the next one."""
        self._charged += 1
