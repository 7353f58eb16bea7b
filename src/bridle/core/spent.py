"""What was spent, added up: by a run, by a session, by the runs inside a tool."""

from decimal import Decimal

from ..values.usage import Usage
from ..values.value import Value


class Spent(Value):
    steps: int = 0
    usage: Usage = Usage()
    usd: Decimal | None = Decimal(0)
    """None as soon as one reply could not be priced: a sum with an unknown in it is unknown."""
    tool_calls: int = 0
