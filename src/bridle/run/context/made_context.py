"""Makes the context of a run that no caller is there to give: one that a server begins or continues.

One function serves all who do that: `router(make_context=…)`, `bridle serve --context FILE.py:NAME` and
`bridle resume --context FILE.py:NAME`. It gets the owner of the run, which is in the log.
"""

import inspect
from collections.abc import Callable
from typing import NamedTuple

from bridle.core.state import State


class Owner(NamedTuple):
    """The tenant and the caller of a run."""

    tenant: str
    caller: str


MakeContext = Callable[[Owner], object]
"""Makes the context of a run from its owner; may be a coroutine function."""


def find_owner_of(state: State) -> Owner:
    """The owner of the current run of a session."""
    return Owner(state.run.origin.tenant, state.run.origin.caller)


async def make_run_context(make: MakeContext, owner: Owner) -> object:
    made = make(owner)
    return await made if inspect.isawaitable(made) else made
