"""Whoever looks on: a console, a file, telemetry.

A watcher must return quickly and never awaits.  It can never change a run: when it
raises, it is warned about once and not called again.
"""

from typing import Protocol

from ..values.delta import Delta
from ..values.record import Record


class Watcher(Protocol):
    def saw(self, session: str, happening: "Record | Delta") -> None: ...
