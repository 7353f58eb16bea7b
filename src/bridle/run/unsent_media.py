"""Finds the media of a conversation that a wire cannot carry; each message is looked at once while it grows."""

from bridle.run.model_connection import ModelConnection
from bridle.values.message import Message


class UnsentMedia:
    def __init__(self, connection: ModelConnection) -> None:
        self._codec, self._model = connection.codec, connection.model
        self._read: tuple[Message, ...] = ()
        self._found: dict[str, None] = {}

    def list_notes(self, messages: tuple[Message, ...]) -> tuple[str, ...]:
        """A sentence about each media in these messages in whose place a text is sent."""
        count = len(self._read)
        if messages[:count] != self._read:  # the view of the conversation has changed
            count, self._found = 0, {}
        if new := messages[count:]:
            self._found |= dict.fromkeys(self._codec.list_unsent_media(new, self._model))
        self._read = messages
        return tuple(self._found)
