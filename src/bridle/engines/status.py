"""The values that an engine carries between the parts of a run: references to the log and never its content.

They are plain dataclasses of JSON types, because engines store them with converters of their own. Stored runs outlive a
release, so a field is only ever added, with a default.
"""

from dataclasses import dataclass, field
from typing import Literal

RunState = Literal["running", "waiting", "paused", "busy", "ended"]
"""`waiting`: for a person or for results of the caller. `busy`: another process holds the session now, or
all places of a limited tool."""
PartKind = Literal["", "model", "tools", "look", "resume"]


@dataclass(frozen=True)
class Part:
    """The work of one activity: one model call, or the calls of one reply that run in one place."""

    kind: PartKind = ""
    """Empty: neither a model call nor a tool call. `look`: continue a run that waits, if there is an answer."""
    name: str = ""
    """Name of the effect, for a model call."""
    calls: tuple[str, ...] = ()
    """Names of the effects, for tool calls: those that were due when the part was planned."""
    label: str = ""
    """Text for people: the step, or the names of tools."""
    seconds: float | None = None
    """Time limit, from the settings of the tools and of the connection; None for no limit."""
    queue: str = ""
    """Queue of the workers that may perform it; empty for any worker of the agent."""
    heartbeat_seconds: float | None = None
    """Silence after which its worker counts as dead; None for the default of the engine."""


@dataclass(frozen=True)
class RunStatus:
    """The point at which a run stopped, as references to its log."""

    state: RunState = "running"
    seq: int = 0
    """Number of the last record."""
    head: str = ""
    """Its hash."""
    requests: int = 0
    """Requests of other processes that were there when the part began."""
    part: Part = field(default_factory=Part)
    """Work that is due next."""
    wake_at: float | None = None
    """Time before which the next part has nothing to do; for a run that waits, when a question expires."""
    questions: tuple[str, ...] = ()
    """Ids of the approvals that it waits for."""
    external_calls: tuple[str, ...] = ()
    """Ids of the calls whose results the caller gives."""
    stop: str = ""
    """End of the run, as in `Result.stop`."""
    steps: int = 0
    usd: float | None = None
    worker: str = ""
    """Queue of the worker that has the run in memory."""
