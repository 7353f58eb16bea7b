"""A conversation that the provider keeps as an object of its own, as events."""

from typing import Literal

from .quiet import Quiet

StateStrategy = bool | Literal["conversation"]
"""What a provider keeps: nothing (False), replies that are referred to (True), or a conversation object.  The
session's own log is kept with each of them."""


class ConversationOpened(Quiet, tag="conversation_opened"):
    """The provider made an empty conversation object; what is sent from here on is added to it."""

    name: str
    seat: str
    """The model that it is used with (`Model.seat`)."""


class ConversationDropped(Quiet, tag="conversation_dropped"):
    """The object is used no more, or could not be made when it has no name: everything is sent again."""

    name: str
    seat: str
    why: str


ConversationEvent = ConversationOpened | ConversationDropped
