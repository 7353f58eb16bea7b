"""The project's root, for processes that tests start; and programs outside of the package of tests."""

import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def add_project_root() -> None:
    """Let the children of this process import the helpers of the tests by their full names."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [each for each in known if each and each != str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *others])


def name_module(path: str | Path) -> str:
    """The full name of a module of the tests."""
    return ".".join(Path(path).resolve().relative_to(ROOT.resolve()).with_suffix("").parts)


def load_program(path: str) -> ModuleType:
    """Import a file of the examples, the site or the benchmarks as the files beside it do: by its bare name."""
    file = ROOT / path
    sys.path.insert(0, str(file.parent))
    try:
        module = import_module(file.stem)
    finally:
        sys.path.remove(str(file.parent))
    assert module.__file__ and Path(module.__file__).samefile(file), f"{module.__file__} is not {file}"
    return module
