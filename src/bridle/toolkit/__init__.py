"""Tools that make an agent useful at once: files, commands, Python, web pages, a plan, and skills of your own.

    from bridle import Agent, toolkit

    Agent("anthropic:claude-sonnet-5-5", tools=toolkit.tools("."))

Files stay in one folder (workspace.py); commands and programs run in a sandbox.  These are ordinary tools with declared
effects, resources, previews and compensations.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from bridle.ports.sandbox import Sandbox
from bridle.ports.tool import Tool
from bridle.sandbox.local import find_sandbox

from .command_tools import SECONDS_DEFAULT, make_python_tool, make_shell_tool
from .fetch_tool import make_fetch_tool
from .file_tools import make_file_tools
from .instruction_files import make_project_instructions
from .plan_tool import make_plan_tool
from .skill_tool import make_skill_tool
from .workspace import Workspace

__all__ = ["fetch", "files", "plan", "project_instructions", "python", "shell", "skills", "tools"]

Folder = str | os.PathLike[str]
SandboxChoice = Sandbox | Literal["auto"] | None
"""`auto` finds a sandbox, or refuses; None runs commands with all rights of this process."""


def files(root: Folder = ".", *, read_only: bool = False) -> list[Tool]:
    """Tools to read, search, write and edit the files of a folder, and nothing outside of it."""
    return make_file_tools(Workspace(root), read_only=read_only)


def shell(root: Folder = ".", *, sandbox: SandboxChoice = "auto", timeout: float = SECONDS_DEFAULT) -> Tool:
    """A tool that runs shell commands in a folder, isolated."""
    return make_shell_tool(Workspace(root).root, _choose_sandbox(root, sandbox), timeout)


def python(root: Folder = ".", *, sandbox: SandboxChoice = "auto", timeout: float = SECONDS_DEFAULT) -> Tool:
    """A tool that runs Python programs in a folder, isolated."""
    return make_python_tool(Workspace(root).root, _choose_sandbox(root, sandbox), timeout)


def fetch(allow: Sequence[str] = (), *, allow_private: Sequence[str] = ()) -> Tool:
    """A tool that reads web pages of these hosts; `*.example.com` allows the hosts below one, `a.org:8080` a port.

    Hosts in private networks are refused, except those that `allow_private` names.
    """
    return make_fetch_tool(tuple(allow), tuple(allow_private))


def plan() -> Tool:
    """A tool with which the model keeps a plan of a longer task."""
    return make_plan_tool()


def skills(*folders: Folder) -> Tool:
    """A tool with which the model reads the skills of these folders: `NAME/SKILL.md`, and files beside it."""
    return make_skill_tool(folders, name_folders=False)


def project_instructions(*files: Folder) -> Callable[[], str]:
    """Instructions of a project from files such as AGENTS.md, for `Agent(instructions=[…])`; read once per session."""
    return make_project_instructions(files)


def tools(
    root: Folder = ".",
    *,
    sandbox: SandboxChoice = "auto",
    allow: Sequence[str] = (),
    skills: Folder | Sequence[Folder] = (),
) -> list[Tool]:
    """All of these tools for one folder.

    Pages are fetched from the hosts in `allow`, and commands in a sandbox that `auto` finds reach the same hosts.
    `skills` are folders of skills; such commands can read them, and no tool can write them.
    """
    folders = (skills,) if isinstance(skills, str | os.PathLike) else tuple(skills)
    resolved = [Path(folder).expanduser().resolve() for folder in folders]
    # guard: skills-readable-only
    box = find_sandbox(root, allow=allow, readable=resolved) if sandbox == "auto" else sandbox
    return [
        *make_file_tools(Workspace(root, resolved), read_only=False),
        shell(root, sandbox=box),
        python(root, sandbox=box),
        fetch(allow),
        plan(),
        *([make_skill_tool(resolved, name_folders=sandbox == "auto")] if resolved else ()),
    ]


def _choose_sandbox(root: Folder, choice: SandboxChoice) -> Sandbox | None:
    return find_sandbox(root) if choice == "auto" else choice
