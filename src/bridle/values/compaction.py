"""When a conversation is made shorter, and how far: an agent's wish, as data."""

from .model import Model
from .value import Value


class Compaction(Value):
    """All shares are shares of the window: what the agent says it is, else what the model has."""

    at: float = 0.8
    """The gate: nothing is done while the next prompt is estimated to be smaller."""
    to: float = 0.5
    """How far down, so that it happens rarely: each time the provider reads the conversation anew."""
    keep: float = 0.2
    """What the newest messages may fill and stay untouched; the newest turn always does."""
    pictures: int = 3
    """How many of the newest pictures from tools stay."""
    model: Model | str | None = None
    """Who writes the summary of old turns; None for whoever the run is with, who has read them already."""
    native: bool = True
    """Whether the provider makes old turns short itself where it can, and nobody else is named for it."""
    words: str = ""
    """What the summary has to take care of, besides what is asked for anyway."""

    @property
    def summariser(self) -> Model | None:
        return self.model if isinstance(self.model, Model) else None
