"""Contract of a codec whose provider keeps a conversation as an object of its own; a codec may meet it."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from ..values.model import Model
from .codec import HttpRequest


@runtime_checkable
class ConversationKeeping(Protocol):
    def open_conversation(self, model: Model) -> HttpRequest:
        """Request for a new, empty conversation object."""
        ...

    def opened_conversation(self, status: int, headers: Mapping[str, str], body: bytes) -> str:
        """Name of the object that was made; raises `ProviderError` when it was refused or is no answer."""
        ...
