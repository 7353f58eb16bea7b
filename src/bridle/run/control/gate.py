"""A gate lets an engine perform a run in parts: it stops the driver at a boundary and keeps it for the next part."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from bridle.core.effects import Effect

if TYPE_CHECKING:
    from bridle.run.driver import Driver
    from bridle.run.session import Session


class EffectGate(Protocol):
    def admit(self, effects: Sequence[Effect]) -> Sequence[Effect]:
        """Those of the due effects that the driver may perform now; it stops when there are none."""
        ...

    def keep(self, session: "Session", driver: "Driver") -> None:
        """Take the session and the driver with which the run stopped."""
        ...
