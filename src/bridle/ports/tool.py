"""Contract of a tool.

`run` gets arguments that satisfy `spec.parameters` and returns parts for the model. It may raise anything:
the caller turns an exception into an error result. It must not block the event loop, and should stop when
cancelled. When cancelled at its deadline (`is_deadline_cancel`), it may raise an exception that describes its
progress: the result is then a timeout with that message.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

from .run_context import RunContext
from .sandbox import Sandbox

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from typing_extensions import TypeVar

    # A tool of unknown context type, as the harness holds it, is `Tool` without a type.
    C_contra = TypeVar("C_contra", contravariant=True, default=Any)
else:
    from typing import TypeVar

    C_contra = TypeVar("C_contra", contravariant=True)

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


DEADLINE_CANCEL = "the tool's time is up"
"""Cancellation message for a tool that reached its deadline."""


ANY_ERROR: tuple[type[Exception], ...] = (Exception,)
"""`declared_errors` of a tool whose every exception is an answer for the model, as with the tools of Bridle."""


class NotStarted(Exception):
    """A function did not start within its time, so nothing was done: it had to wait for others."""


def is_deadline_cancel(error: "asyncio.CancelledError") -> bool:
    """True if a tool was cancelled at its deadline, not together with its run."""
    return error.args == (DEADLINE_CANCEL,)


class Tool(Protocol[C_contra]):
    """A tool; `Tool[T]` needs a run with a context of type `T`."""

    @property
    def spec(self) -> ToolSpec: ...

    async def run(
        self, arguments: Mapping[str, Json], context: RunContext[C_contra]
    ) -> Sequence[Text | Media]: ...


@runtime_checkable
class ContextTool(Tool, Protocol):
    """A tool that declares which context it needs."""

    @property
    def context_type(self) -> object:
        """Type of the context that runs must be given; None if any will do."""
        ...


@runtime_checkable
class ClaimingTool(Tool, Protocol):
    """A tool whose code describes a call before it runs (`spec.claims_resource`, `spec.approve`)."""

    def claim_resource(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """The resource of the call (None if unknown), and whether a person must approve it.

        Must not block.
        """
        ...


class DeclaringTool(Tool, Protocol):
    """A tool that names the exceptions by which it answers the model.  Any other one is taken for a bug."""

    @property
    def declared_errors(self) -> tuple[type[Exception], ...]: ...


class PreviewingTool(Tool, Protocol):
    """A tool whose code can show what a call would do.  Without a preview, the attribute is None or missing."""

    def preview_call(self, arguments: Mapping[str, Json]) -> str:
        """Text for the person who is asked about the call, such as a diff.  May block; runs in a thread."""
        ...


class UpgradableTool(Tool, Protocol):
    """A tool that takes over open calls of its earlier versions.  Otherwise the attribute is None or missing."""

    def upgrade_arguments(self, arguments: dict[str, Any]) -> Mapping[str, Json]:
        """The arguments of a call in the present form.  Pure."""
        ...


@runtime_checkable
class WorkspaceTool(Tool, Protocol):
    """A tool whose calls can write the files of a folder."""

    @property
    def workspace(self) -> "Path | None":
        """The folder, if known; the log must not be in it."""
        ...


@runtime_checkable
class ConfinableTool(WorkspaceTool, Protocol):
    """A tool that starts programs and can run them in a sandbox."""

    def with_sandbox(self, sandbox: Sandbox) -> Tool:
        """The tool in this sandbox; unchanged if it has one."""
        ...


@runtime_checkable
class HidesDefaults(Tool, Protocol):
    """A tool with fields whose defaults are computed when a call runs, and so are missing from its schema."""

    @property
    def unseen_defaults(self) -> frozenset[str]:
        """Names of those fields, at any depth. Rules that ask or deny by one of them are rejected."""
        ...


@runtime_checkable
class RevealingTool(Tool, Protocol):
    """A tool whose results reveal other tools."""

    def list_revealed_tools(self, parts: Sequence[Text | Media]) -> Sequence[str]:
        """Names of tools that the model may call after reading these parts of a result."""
        ...


@runtime_checkable
class ProbingTool(Tool, Protocol):
    """A tool that can determine the outcome of a call that started but has no result."""

    async def probe(
        self, arguments: Mapping[str, Json], context: RunContext
    ) -> Sequence[Text | Media] | None:
        """Result of the call; None only if it certainly never took effect and never will."""
        ...


class ToolListing(NamedTuple):
    """The tools of a source."""

    tools: tuple[Tool, ...]
    error: str = ""
    """Reason why the source cannot be used now; `tools` is then what it offered before, or empty."""
    notes: tuple[str, ...] = ()
    """Changes and omissions in its definitions, one sentence each."""


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools, such as an MCP server: its tools are known only while it is connected."""

    @property
    def name(self) -> str: ...

    @property
    def prefix(self) -> str:
        """Start of the names of its tools, and of no other tool."""
        ...

    @property
    def is_required(self) -> bool:
        """True if an agent must not run without it."""
        ...

    async def list_tools(self) -> ToolListing:
        """Connect if necessary, within a time limit of its own; does not raise if it cannot be used."""
        ...

    async def refresh(self) -> ToolListing:
        """The latest list, without connecting; waits for a new one only if the source has announced it."""
        ...

    def restore_tool(self, spec: ToolSpec) -> Tool:
        """A tool of this source with a definition that a session has seen, whether or not it is still offered."""
        ...


@runtime_checkable
class ConfinableSource(ToolSource, Protocol):
    """A source of tools that may be a program of this machine."""

    @property
    def is_program(self) -> bool:
        """True if it is a program of this machine, which a sandbox can confine."""
        ...

    @property
    def workspace(self) -> "Path | None":
        """The folder that it can write, if it runs in a sandbox."""
        ...

    def with_sandbox(self, sandbox: Sandbox) -> ToolSource:
        """The source in this sandbox; unchanged if it has one, or is no program of this machine."""
        ...
