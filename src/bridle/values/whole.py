"""Where the whole of a result is, of which only an excerpt is sent.

The bytes are in the session's store, under their hash; whoever has the log can find them.
"""

from .value import Value

HANDLE_LENGTH = 16
"""Enough of a hash to tell apart what one session can hold; a model has to copy it without a slip."""


class Whole(Value):
    hash: str
    """SHA-256 of the text as UTF-8, in hex: what `Store.get_blob` takes."""
    characters: int

    @property
    def handle(self) -> str:
        """What it is called when speaking to a model."""
        return self.hash[:HANDLE_LENGTH]
