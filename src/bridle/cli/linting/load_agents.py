"""Loads one file in this process and prints the start of each agent's prompt as JSON.

    python -m bridle.cli.linting.load_agents FILE.py|module [--shift SECONDS]

load_findings.py starts it under several conditions.  The output also lists the environment variables that the
user's code read, because those get a trial with other values.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import msgspec

from bridle.config.tool_loader import list_module_tools, load_module
from bridle.core.context.assemble import prompt_head_lines
from bridle.run.agent import Agent
from bridle.tools.collect_tools import collect_tools
from bridle.values.base import Value
from bridle.values.errors import BridleError
from bridle.values.settings import Settings

from .clock_shift import shift_clock

BRIDLE_ROOT, PYTHON_ROOT, SITE_PACKAGES = Path(__file__).parents[2], Path(os.__file__).parent, "site-packages"
TOOLS_ENTRY = "tools"
"""Key for a file that creates tools but no agent."""


class LoadedPrompts(Value, kw_only=True):
    agents: dict[str, tuple[str, ...]] = {}  # noqa: RUF012 - a frozen value
    variables_read: tuple[str, ...] = ()
    """Environment variables, in the order in which the user's code read them."""
    utc_offset_seconds: int = 0
    """Offset of the local time zone in which the file was loaded."""
    hour: int = 0
    """Local hour at which the file was loaded."""
    error: str = ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--shift", type=float, default=0.0)
    options = parser.parse_args()
    out, now = sys.stdout, time.localtime()
    if options.shift:
        shift_clock(options.shift)
    asked = _watch_environment()
    try:
        with redirect_stdout(sys.stderr):
            module = load_module(options.source)
            loaded = LoadedPrompts(
                agents=_prompt_heads(module, options.source),
                variables_read=tuple(asked),
                utc_offset_seconds=now.tm_gmtoff,
                hour=now.tm_hour,
            )
    except BridleError as error:
        loaded = LoadedPrompts(error=str(error))
    out.write(msgspec.json.encode(loaded).decode())
    out.flush()
    return 0


def _prompt_heads(module: ModuleType, source: str) -> dict[str, tuple[str, ...]]:
    agents = {name: value for name, value in vars(module).items() if isinstance(value, Agent)}
    if agents:
        return {name: prompt_head_lines(agent.settings) for name, agent in agents.items()}
    specs = tuple(tool.spec for tool in collect_tools(list_module_tools(module, source)).values())
    return {TOOLS_ENTRY: prompt_head_lines(Settings(tools=specs))} if specs else {}


def _watch_environment() -> Mapping[str, None]:
    """Start recording the environment variables that the user's code reads."""
    asked: dict[str, None] = {}
    plain: Any = type(os.environ)

    class Watched(plain):  # type: ignore[misc]
        def __getitem__(self, key: Any) -> Any:
            if isinstance(key, str) and _is_user_code(sys._getframe(1)):
                asked[key] = None
            return super().__getitem__(key)

    os.environ.__class__ = Watched
    return asked


def _is_user_code(frame: FrameType | None) -> bool:
    """True if the caller is the user's code, directly or through the standard library."""
    while frame is not None:
        name = frame.f_code.co_filename
        path = Path(name)
        if path.name not in ("os.py", "_collections_abc.py") and not name.startswith("<frozen "):
            return (
                not any(place in path.parents for place in (BRIDLE_ROOT, PYTHON_ROOT))
                and SITE_PACKAGES not in path.parts
            )
        frame = frame.f_back
    return False


if __name__ == "__main__":
    raise SystemExit(main())
