"""Runs trials in a process of its own, for an evaluation of another version of Bridle.

The suite is read once. Each call `run_trial` runs and scores one trial; its log, its budget and its judge are in the
store of the other process. The end of the pipe ends the process, also in the middle of a trial.
"""

import asyncio
import os
import sys
from collections.abc import Mapping

import msgspec

from bridle.evals.attempt import attempt_trial, make_pool
from bridle.evals.suite_files import Suite, load_suite
from bridle.values.base import Value
from bridle.values.errors import BridleError, MisuseError
from bridle.values.evals import TrialScored
from bridle.values.text import describe_error

from . import peer
from .piped_store import PipedStore

PROTOCOL = peer.PROTOCOL


class WantedTrial(Value, kw_only=True):
    """The trial to run, as the evaluation names it."""

    task: str
    number: int
    session: str
    cell: dict[str, str | int | float | bool] = {}  # noqa: RUF012 - a frozen value
    run: str = ""
    usd: str | None = None
    """Limit of the whole evaluation in US dollars."""


def check_suite(path: str) -> str:
    """Reason why this version cannot read the suite; empty if it can."""
    try:
        load_suite(path)
    except BridleError as error:
        return f"it cannot read the suite: {describe_error(error)}"
    return ""


class TrialRunner:
    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._tasks = {each.name: each for each in suite.tasks}
        self.peer = peer.Peer({"run_trial": self._run_trial})
        self._store = PipedStore(self.peer)

    async def _run_trial(self, given: Mapping[str, object]) -> object:
        wanted = msgspec.convert(given, WantedTrial)
        loaded = self._tasks.get(wanted.task)
        if loaded is None:
            raise MisuseError(f"the suite has no task {wanted.task!r} in this version")
        scored = await attempt_trial(
            loaded,
            wanted.cell,
            TrialScored(task=wanted.task, number=wanted.number, session=wanted.session),
            rubric=self._suite.settings.judge,
            store=self._store,
            pool=make_pool(wanted.run, wanted.usd),
        )
        return msgspec.to_builtins(scored)


def serve_trials(path: str) -> None:
    """Run trials until the other side closes the pipe. Standard input and output are kept for it alone."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what tools and files of the suite print is not part of the protocol

    async def serve() -> None:
        runner = TrialRunner(load_suite(path))
        await runner.peer.connect(incoming, outgoing)
        await runner.peer.serve()
        sys.stdout.flush()
        os._exit(0)  # a tool that still runs in a thread does not keep the process

    asyncio.run(serve())
