"""Makes the helper modules of the tests importable outside pytest, and in processes that tests start.

pytest reads the same list of folders from pyproject.toml (`pythonpath`).
"""

import os
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def list_helper_folders() -> list[str]:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    return [str(ROOT / folder) for folder in options["pythonpath"]]


def add_helper_folders() -> None:
    """Add the folders to this process and to the environment of its children."""
    folders = list_helper_folders()
    sys.path[:0] = [folder for folder in folders if folder not in sys.path]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*folders, *(each for each in known if each and each not in folders)]
    )
