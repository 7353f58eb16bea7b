"""What every event answers to, whether it has anything to say or not."""

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
