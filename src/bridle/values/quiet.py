"""What every event answers to, so that whoever looks on needs no list of kinds.

`once` names what must not be in a log twice; `refers`, what must be in the store before it.
"""

from .value import Value


class Quiet(Value):
    """An event that shows no words; everything a stream yields answers to `.text` and `.once`."""

    @property
    def text(self) -> str:
        return ""

    @property
    def once(self) -> str | None:
        return None

    @property
    def refers(self) -> tuple[str, ...]:
        """Hashes of what must be in the store before this is; see `Store.put_blob`."""
        return ()
