"""Has the provider make a conversation object, and says what came of it.

It may not break a run.  What the provider refuses is recorded with its reason, and everything is sent.
"""

from ..ports.conversations import ConversationKeeping
from ..values.conversation_object import ConversationDropped, ConversationOpened
from ..values.errors import ProviderError
from .line import Line
from .sending import send

UNABLE = "this wire has no conversation objects"


async def open_conversation(line: Line, now: float) -> ConversationOpened | ConversationDropped:
    codec, seat = line.codec, line.model.seat
    if not isinstance(codec, ConversationKeeping):
        return ConversationDropped(name="", seat=seat, why=UNABLE)
    try:
        name = codec.opened_conversation(*await send(line, codec.open_conversation(line.model), now))
    except ProviderError as error:
        return ConversationDropped(name="", seat=seat, why=error.failure.message)
    return ConversationOpened(name=name, seat=seat)
