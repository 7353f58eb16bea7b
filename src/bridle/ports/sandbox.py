"""Contract of a sandbox: turns a command into one that runs with fewer rights.

A sandbox starts nothing.  It returns the command that the caller starts instead, so that output, deadlines and
the end of all processes stay in one place (tools/process).  When the process of that command ends, all it started
must have ended too; it must end if its parent dies.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from bridle.values.base import Value

if TYPE_CHECKING:
    from pathlib import Path

MEBIBYTE = 1024 * 1024
OUTPUT_BYTES_MAX = 64 * 1024
"""Bytes kept of a program's output, per stream: about 16,000 tokens, half from its start and half from its end."""


class SandboxLimits(Value, kw_only=True):
    """Limits of one command and everything it starts; the tool's `timeout` limits its time."""

    memory_bytes: int = 2048 * MEBIBYTE
    processes: int = 256
    file_bytes: int = 1024 * MEBIBYTE
    """Size of one file."""
    tmp_bytes: int = 512 * MEBIBYTE
    """Size of the private /tmp, which counts as memory."""


class SandboxedCommand(Value, kw_only=True):
    """The program that is started in place of a command."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    """The complete environment."""
    not_run: str = ""
    """Start of a line on standard error that says that the command was not started; empty if there is none."""


class Sandbox(Protocol):
    @property
    def name(self) -> str:
        """Name of the mechanism, for messages."""
        ...

    @property
    def workspace(self) -> "Path":
        """The folder that commands may write."""
        ...

    def wrap(
        self, argv: Sequence[str], *, cwd: str | None, environment: Mapping[str, str]
    ) -> SandboxedCommand:
        """The command to start instead of `argv`.  It must run nothing if it cannot be isolated as promised.

        `cwd` is the folder to run in, by default the workspace.  Raises `MisuseError` for a folder outside of it.
        """
        ...
