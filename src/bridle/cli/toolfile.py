"""Tools from a Python file or module named on the command line.

Everything decorated with `@tool` at the top level of the file is taken, in the order
it stands there; with a `TOOLS` list in the file, exactly what is in the list.
"""

import sys
import traceback
from collections.abc import Iterator
from importlib import import_module, util
from pathlib import Path
from types import ModuleType

from ..ports.tool import Tool
from ..values.errors import BridleError, MisuseError


def load_tools(names: list[str]) -> list[Tool]:
    found: list[Tool] = []
    for name in names:
        tools = list(_tools_in(_module(name)))
        if not tools:
            raise MisuseError(
                f"{name} has no tools: decorate a function with `@tool` (from bridle import tool)"
            )
        found.extend(tools)
    return found


def _tools_in(module: ModuleType) -> Iterator[Tool]:
    listed = getattr(module, "TOOLS", None)
    for candidate in vars(module).values() if listed is None else listed:
        if hasattr(candidate, "spec") and hasattr(candidate, "run") and not isinstance(candidate, type):
            yield candidate


def _module(name: str) -> ModuleType:
    path = Path(name)
    looks_like_a_file = name.endswith(".py") or "/" in name
    try:
        if not looks_like_a_file:
            return import_module(name)
        if not path.is_file():
            raise MisuseError(f"there is no tools file {name!r}")
        spec = util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
    except BridleError as error:
        raise MisuseError(f"{name}{_line_of(error, path)}: {error}") from error
    except SyntaxError as error:
        raise MisuseError(f"{name}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        raise MisuseError(f"{name}{_line_of(error, path)}: {type(error).__name__}: {error}") from error
    return module


def _line_of(error: BaseException, path: Path) -> str:
    """Where in the user's own file it went wrong, as far as that can be told."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    return f", line {frames[-1].lineno}" if frames else ""
