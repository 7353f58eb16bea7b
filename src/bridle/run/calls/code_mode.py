"""Options of code mode: the model writes Python programs that call the agent's tools as functions.

    Agent(model, tools=[search, book, mail], code_mode=CodeMode())

run/calls/code_tool.py makes the tool; it is loaded only for an agent that uses it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bridle.ports.sandbox import MEBIBYTE, OUTPUT_BYTES_MAX, Sandbox
from bridle.ports.tool import Tool
from bridle.tools.names import check_tool_name
from bridle.values.errors import BadTool, MisuseError

if TYPE_CHECKING:
    from bridle.run.agent_settings import AgentInputs
    from bridle.run.context.resources import RunResources

    from .code_tool import CodeTool

CODE_TOOL_NAME = "run_code"
SECONDS_DEFAULT = 60.0
CALLS_DEFAULT = 200
MEMORY_DEFAULT = 512 * MEBIBYTE


@dataclass(frozen=True, kw_only=True)
class CodeMode:
    """Lets the model write Python programs that call tools; raises `MisuseError` if no sandbox works here."""

    tools: Sequence[str] | None = None
    """Names of the tools that programs may call; None for all of the agent's tools."""
    direct: bool = False
    """True if the model may also call these tools itself, without a program."""
    name: str = CODE_TOOL_NAME
    """Name of the tool that runs programs."""
    sandbox: Sandbox | Literal["auto"] | None = "auto"
    """`auto` runs each program isolated in an empty folder, or refuses; None runs it with all your rights."""
    seconds: float = SECONDS_DEFAULT
    """Time of a program, without the time of its tool calls."""
    calls_max: int = CALLS_DEFAULT
    """Tool calls of one program."""
    output_bytes_max: int = OUTPUT_BYTES_MAX
    """Printed text that is kept: its start and its end."""
    memory_bytes: int = MEMORY_DEFAULT
    """Memory of a program in the sandbox that `auto` finds."""

    def __post_init__(self) -> None:
        check_tool_name(self.name)
        if isinstance(self.tools, str):
            raise MisuseError(
                f"CodeMode(tools={self.tools!r}) must be a list of names; write [{self.tools!r}]"
            )
        for option in ("seconds", "calls_max", "output_bytes_max", "memory_bytes"):
            given: object = getattr(self, option)
            kinds, kind = ((int, float), "number") if option == "seconds" else ((int,), "whole number")
            if isinstance(given, bool) or not isinstance(given, kinds) or not 0 < given < math.inf:
                raise MisuseError(f"CodeMode({option}={given!r}) must be a {kind} above 0")
        if isinstance(self.sandbox, str):
            if self.sandbox != "auto":
                raise MisuseError(
                    f'CodeMode(sandbox={self.sandbox!r}) is invalid; use "auto", a sandbox or None'
                )
            # guard: program-needs-sandbox
            import_module("bridle.sandbox.local").find_sandbox(None)


class BoundCodeMode(NamedTuple):
    """Code mode of one agent."""

    mode: CodeMode
    resources: "Callable[[], RunResources]"
    """The resources of the agent's runs, which programs use too."""

    def add_tool(
        self, known: Mapping[str, Tool], tools: Mapping[str, Tool], inputs: "AgentInputs[Any]"
    ) -> dict[str, Tool]:
        """The known tools that the model sees, and the one that runs programs, which call some of these `tools`."""
        if not isinstance(self.mode, CodeMode):
            raise MisuseError(f"`code_mode` must be a CodeMode(…), not {self.mode!r}")
        if self.mode.name in known or self.mode.name in tools:
            raise BadTool(
                f"tool `{self.mode.name}`: code mode has a tool with that name; use CodeMode(name=…)"
            )
        made: CodeTool = import_module("bridle.run.calls.code_tool").CodeTool(self, tools, inputs)
        return made.replace_tools(known)


def is_code_tool(tool: object) -> bool:
    """True for the tool that runs programs, which the harness makes again for other tools."""
    return getattr(tool, "runs_programs", False) is True
