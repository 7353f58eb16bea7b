"""Those who look on: shown everything, in order, and never able to change a run."""

import logging
from collections.abc import Sequence

from ..ports.watcher import Watcher
from ..values.delta import Delta
from ..values.record import Record

LOG = logging.getLogger("bridle")


class Audience:
    def __init__(self, session: str, watchers: Sequence[Watcher]) -> None:
        self._session, self._watchers = session, list(watchers)

    def show(self, happening: Record | Delta) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher.saw(self._session, happening)
            except Exception as error:  # noqa: BLE001 - a watcher can never change a run
                self._watchers.remove(watcher)
                LOG.warning("%s raised %r and was dismissed", type(watcher).__name__, error)
