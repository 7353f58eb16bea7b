"""How far a run has come with making its conversation shorter (compaction.py decides by it)."""

from typing import Literal

from ..values.model import Origin
from ..values.parts import Opaque
from ..values.value import Value


class Squeeze(Value):
    overflow: Literal["", "context", "too_large"] = ""
    """The provider has refused the prompt as too long, whatever the estimate says."""
    said: str = ""
    """How it said so."""
    window_tokens: int | None = None
    """The window it named in saying so."""
    failed: int = 0
    """How many tries in a row did not help."""
    tried_tokens: int = 0
    """What the prompt was estimated at after the last of them."""
    fresh: bool = False
    """It was made shorter and no reply has come since."""
    asked: str = ""
    """The last message of those that a summary was asked for last."""
    seat: str = ""
    """Who was asked for it, where that is not the model of the run."""
    own: bool = False
    """The one who was to write summaries could not; the run's own model writes them from here on."""
    pieces: int = 0
    """How often even the request for a summary was refused as too long."""
    uncalled: bool = False
    """Asked for a summary, the model called tools; it is to be kept from it."""
    summary: str = ""
    """What was written and is to be put in its place."""
    native: bool = False
    """The provider was asked to do it itself."""
    plain: bool = False
    """It could not, or what it made was no use; models write summaries from here on."""
    made: tuple[Opaque, ...] = ()
    maker: Origin | None = None
    """What it made and is to be put in its place, and who it is."""
