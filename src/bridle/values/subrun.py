"""A run inside a tool of another run, as the other one's log tells of it.

The inner run has a log of its own, with everything in it; here stands that it was, and what it drew.
"""

from decimal import Decimal

from .quiet import Quiet
from .usage import Usage
from .value import Value


class SubrunStarted(Quiet, tag="subrun_started"):
    """A run inside a tool is about to spend something of this run's budget."""

    call_id: str
    session: str


class SubrunCharged(Quiet, tag="subrun_charged"):
    """A call of a run inside a tool has ended: it came to this, and it is this run's too."""

    call_id: str
    session: str
    id: str
    """Of what was set aside for it."""
    usage: Usage = Usage()
    usd: Decimal | None = None
    steps: int = 0


class Subrun(Value):
    """What a run inside a tool has come to."""

    session: str
    call_id: str
    tool: str = ""
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    """None when a price is unknown."""
    steps: int = 0
