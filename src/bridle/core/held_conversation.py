"""Values of the provider's conversation object in the state of a session; the rules are beside it."""

from ..values.value import Value


class HeldConversation(Value):
    """A conversation object as far as the log tells what is in it."""

    seat: str
    name: str = ""
    """Empty when none could be made: it is not tried again before the next prompt."""
    reply_id: str = ""
    """The newest reply in it; empty while nothing is in it."""
    in_flight: bool = False
    """A request was sent to it and what came of that is not known yet."""
    trouble: str = ""
    """Why what it holds is no longer known, or no longer what is sent."""
