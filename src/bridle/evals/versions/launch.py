"""Started as a file by another Python: describes the Bridle that it has, or runs trials with it.

    PYTHON launch.py describe SUITE [FOLDER]    print one line of JSON (`Description` of columns.py)
    PYTHON launch.py run SUITE [FOLDER]         run trials for the process at the other end of the pipes

FOLDER has the package `bridle`; without it, the Python has one. Nothing of Bridle is imported before that is settled,
and only the standard library is needed to say why a version cannot be used.
"""

import json
import os
import sys
from hashlib import sha256
from importlib import import_module
from pathlib import Path

WORKER = "bridle.evals.versions.worker"


def choose_bridle(folder: str) -> None:
    """Import from this folder first, else from what is installed; never from beside this file or from $PYTHONPATH."""
    here = str(Path(__file__).parent)
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [each for each in given if each and (Path(each) / "bridle").is_dir()]
    sys.path[:] = [each for each in sys.path if each != here and each not in own]
    if folder:
        sys.path.insert(0, folder)


def digest_package(folder: Path) -> str:
    """Digest of all files of the package; compiled files do not count."""
    total = sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            total.update(f"\0{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return total.hexdigest()[:12]


def describe(suite: str) -> dict[str, object]:
    found: dict[str, object] = {"python": ".".join(map(str, sys.version_info[:3]))}
    try:
        bridle = import_module("bridle")
    except Exception as error:  # noqa: BLE001 - any failure to import is reported
        return {**found, "missing": f"{type(error).__name__}: {error}"}
    folder = Path(str(bridle.__file__)).parent
    found |= {
        "version": str(getattr(bridle, "__version__", "")),
        "source": digest_package(folder),
        "folder": str(folder),
    }
    try:
        worker = import_module(WORKER)
    except Exception as error:  # noqa: BLE001 - any failure to import is reported
        hint = "save a baseline with it, and compare with that"
        return {**found, "problem": f"it cannot run trials for another version ({error}); {hint}"}
    return {**found, "protocol": worker.PROTOCOL, "problem": worker.check_suite(suite)}


def main(action: str, suite: str, folder: str = "") -> None:
    choose_bridle(folder)
    if action == "describe":
        printed = sys.stdout
        sys.stdout = sys.stderr  # files of the suite may print
        printed.write(json.dumps(describe(suite)) + "\n")
        return
    import_module(WORKER).serve_trials(suite)


if __name__ == "__main__":
    main(*sys.argv[1:])
