"""Everything a run is made of besides what was said: the agent, as data.

Settings are recorded when a session starts and again whenever they change, so
that a log tells on its own what was asked of whom and with which tools.
"""

from .model import Abilities, Endpoint, Model
from .policy import Policy
from .request import Extra, OutputSpec, Sampling, Thinking, ToolChoice, ToolSpec
from .value import Value

REPEATS_DEFAULT = 5
TOOLS_AT_ONCE_DEFAULT = 32
RESULT_CHARACTERS_DEFAULT = 30_000
"""Some ten thousand tokens: much for one answer, little beside a context."""


class Settings(Value):
    model: Model = Model(id="", endpoint=Endpoint(name="", family=""), abilities=Abilities())
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    """What is shown to the model from the beginning."""
    hidden: tuple[ToolSpec, ...] = ()
    """What may be shown to it later, by `ToolsShown`; until then it is not there for the model."""
    tool_choice: ToolChoice = ToolChoice()
    max_tokens: int | None = None
    output: OutputSpec | None = None
    thinking: Thinking | None = None
    sampling: Sampling = Sampling()
    repeats_max: int | None = REPEATS_DEFAULT
    """How often one call may bring one and the same result before the run ends; None for never."""
    policy: Policy = Policy()
    approval_seconds: float | None = None
    """How long a question to a person stays open; None for as long as it takes."""
    tools_at_once_max: int = TOOLS_AT_ONCE_DEFAULT
    result_characters: int | None = RESULT_CHARACTERS_DEFAULT
    """The most words of one tool result that are sent; None for all of them, however many."""
    chain: bool = False
    """Let the provider keep the conversation where it can, and send only what is new."""
    extras: tuple[Extra, ...] = ()

    @property
    def every_tool(self) -> tuple[ToolSpec, ...]:
        return (*self.tools, *self.hidden)
