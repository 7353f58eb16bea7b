"""Tools that run commands and Python programs of the model, in a sandbox.

Each call is a new process in the workspace: folders, variables and programs of one call are gone in the next, files of
the workspace stay.  Any exit code is a result that the model reads.
"""

import shutil
import sys
from pathlib import Path

from bridle.ports.sandbox import Sandbox
from bridle.sandbox.local import LocalSandbox
from bridle.tools.process.command_tool import CommandTool

SECONDS_DEFAULT = 120.0
EXIT_CODES = tuple(range(256))
SHELLS = ("bash", "sh")
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Python considers cached bytecode current if its source has the same size and second, as after a quick edit."""
CODE_SCHEMA = {
    "type": "object",
    "properties": {"code": {"type": "string", "description": "The program; print what you want to see."}},
    "required": ["code"],
    "additionalProperties": False,
}
COMMAND_SCHEMA = {
    "type": "object",
    "properties": {"command": {"type": "string", "description": "The command, in the syntax of the shell."}},
    "required": ["command"],
    "additionalProperties": False,
}


def make_shell_tool(root: Path, sandbox: Sandbox | None, seconds: float) -> CommandTool:
    is_ours = sandbox is None or isinstance(sandbox, LocalSandbox)  # another one may not have our programs
    shell = next((name for name in SHELLS if is_ours and shutil.which(name)), SHELLS[-1])
    return CommandTool(
        "shell",
        f"Run a command with {shell} in the workspace. {_describe_place(sandbox, seconds)}",
        [shell, "-c", "--", "{command}"],
        parameters=COMMAND_SCHEMA,
        cwd=root,
        env=NO_BYTECODE,
        exits=EXIT_CODES,
        sandbox=sandbox,
        effect="exclusive",
        timeout=seconds,
    )


def make_python_tool(root: Path, sandbox: Sandbox | None, seconds: float) -> CommandTool:
    is_ours = sandbox is None or isinstance(sandbox, LocalSandbox)
    version = f" {sys.version_info.major}.{sys.version_info.minor}" if is_ours else ""
    return CommandTool(
        "python",
        f"Run a Python{version} program in the workspace. {_describe_place(sandbox, seconds)}",
        [sys.executable if is_ours else "python3", "-"],
        parameters=CODE_SCHEMA,
        stdin="{code}",
        cwd=root,
        env=NO_BYTECODE,
        exits=EXIT_CODES,
        sandbox=sandbox,
        effect="exclusive",
        timeout=seconds,
    )


def _describe_place(sandbox: Sandbox | None, seconds: float) -> str:
    limits = f"Each call is a new process and ends after {seconds:g} s at the latest."
    if sandbox is None:
        return limits
    hosts = sandbox.hosts if isinstance(sandbox, LocalSandbox) else ()
    network = f" The network reaches only {', '.join(hosts)}, through HTTP_PROXY." if hosts else ""
    return f"Only the workspace and /tmp can be written, and /tmp is empty in each call.{network} {limits}"
