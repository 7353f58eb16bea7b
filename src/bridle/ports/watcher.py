"""Contract of an observer of runs, such as a console, a file or telemetry.

A watcher must return quickly and never await. It cannot affect a run: if it raises, a warning is issued once
and it is not called again.
"""

from typing import Protocol

from bridle.values.record import Record
from bridle.values.result import Delta


class Watcher(Protocol):
    def on_event(self, session: str, happening: "Record | Delta") -> None: ...
