"""Tools and types from a Python file or module that the user names.

    tools.py          everything decorated with `@tool` at the top level, in the order it stands there;
                      with a `TOOLS` list in the file, exactly what is in the list
    shop.orders       the same of a module
    shop.orders:name  one name of a file or module: a tool, a function, or a type

The file's folder, or the current one for a module, can be imported from, as when Python runs it.
"""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from difflib import get_close_matches
from importlib import import_module, util
from pathlib import Path
from types import ModuleType

from bridle.ports.tool import Tool
from bridle.tools.collect_tools import collect_tools
from bridle.values.errors import BridleError, MisuseError
from bridle.values.request import ToolSpec

PRIVATE_NAME = "bridle_tools_{}"
"""Module name of a tools file: a file called json.py must not replace the json module."""
_SHARED_FILES: ContextVar[dict[Path, ModuleType] | None] = ContextVar("_SHARED_FILES", default=None)


def load_tools(names: Sequence[str], folder: Path | None = None) -> list[Tool]:
    """The tools of these files and modules; modules are also looked for in `folder`."""
    found: list[Tool] = []
    for name in names:
        if ":" in name:
            found.extend(_load_one_tool(name, folder))
            continue
        # Output of a tools file while it is loaded must not mix with the answer.
        with redirect_stdout(sys.stderr):
            module = load_module(name, folder)
        tools = list_module_tools(module, name)
        if not tools:
            raise MisuseError(
                f"{name} has no tools: decorate a function with `@tool` (from bridle import tool)"
            )
        found.extend(tools)
    return found


def load_reference(name: str, folder: Path | None = None) -> object:
    """The object that `FILE.py:name` or `module:name` refers to; raises `MisuseError`."""
    source, colon, attribute = name.rpartition(":")
    if not colon or not source or not attribute.isidentifier():
        raise MisuseError(f"{name!r} is not a reference; write module:name or FILE.py:name")
    with redirect_stdout(sys.stderr):
        module = load_module(source, folder)
    found: object = vars(module).get(attribute)
    if found is None:
        public = [other for other in vars(module) if not other.startswith("_")]
        near = get_close_matches(attribute, public, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise MisuseError(f"{source} has no {attribute!r}{hint}")
    return found


def _load_one_tool(name: str, folder: Path | None) -> list[Tool]:
    found = load_reference(name, folder)
    if not callable(found) and not hasattr(type(found), "run"):
        raise MisuseError(f"{name} is not a tool but {type(found).__name__}")
    try:
        return list(collect_tools([found]).values())  # type: ignore[list-item]  # checked there
    except BridleError as error:
        raise MisuseError(f"{name}: {error}") from error


def list_module_tools(module: ModuleType, name: str) -> list[Tool]:
    listed = vars(module).get("TOOLS")
    if listed is not None and not isinstance(listed, list | tuple):
        raise MisuseError(f"{name}: TOOLS must be a list of tools, not {type(listed).__name__}")
    try:
        return list(collect_tools(_find_tools(module) if listed is None else listed).values())
    except BridleError as error:
        raise MisuseError(f"{name}: {error}") from error


def _find_tools(module: ModuleType) -> Iterator[Tool]:
    for candidate in vars(module).values():
        # Look at the type: an object with __getattr__ may have any attribute.
        spec = (
            vars(candidate).get("spec") if hasattr(type(candidate), "run") and _has_vars(candidate) else None
        )
        if isinstance(spec, ToolSpec):
            yield candidate


def _has_vars(candidate: object) -> bool:
    return hasattr(type(candidate), "__dict__") and hasattr(candidate, "__dict__")


def load_module(name: str, beside: Path | None = None) -> ModuleType:
    """Import a file, or a module from the path, the folder `beside` or the working folder."""
    path = Path(name)
    is_file = name.endswith(".py") or "/" in name
    if is_file and not path.is_file():
        raise MisuseError(f"no file {name!r}")
    folder = str(path.resolve().parent if is_file else beside or Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return _import_file(path) if is_file else import_module(name)
    except SyntaxError as error:
        raise MisuseError(f"{name}, line {error.lineno}: {error.msg}") from error
    except SystemExit as error:
        raise MisuseError(
            f"{name}{_error_line(error, path)}: it exits the program while it is loaded"
        ) from error
    except BridleError as error:
        raise MisuseError(f"{name}{_error_line(error, path)}: {error}") from error
    except Exception as error:
        raise MisuseError(f"{name}{_error_line(error, path)}: {type(error).__name__}: {error}") from error


@contextmanager
def share_loaded_files() -> Iterator[None]:
    """Load each file once inside this context, so that all who name it see the same classes and variables."""
    token = _SHARED_FILES.set({})
    try:
        yield
    finally:
        _SHARED_FILES.reset(token)


def _import_file(path: Path) -> ModuleType:
    shared, place = _SHARED_FILES.get(), path.resolve()
    if shared is not None and place in shared:
        return shared[place]
    name = PRIVATE_NAME.format(path.stem)
    spec = util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if shared is not None:
        shared[place] = module
    return module


def _error_line(error: BaseException, path: Path) -> str:
    """Line of the user's file in which the error occurred, if known."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == path.name]
    return f", line {frames[-1].lineno}" if frames else ""
