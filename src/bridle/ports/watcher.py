"""Whoever looks on: a console, a file, telemetry.

A watcher must return quickly and never awaits.  It can never change a run: when it
raises, it is warned about once and not called again.
"""

from typing import Protocol

from bridle.values.record import Record
from bridle.values.result import Delta


class Watcher(Protocol):
    def on_event(self, session: str, happening: "Record | Delta") -> None: ...
