"""Build the wheel and the source archive, check them, and try them with every Python found. Nothing is published.

    python bench/release.py             what `make release` does; the changelog must have a dated section of the version
    python bench/release.py --draft     the same for a version that is not released yet, also with uncommitted changes

Files go to dist/, with their SHA-256. Exit code 1 and one line say what is wrong.
"""

import argparse
import email.parser
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

TAR_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11 before 3.11.4 has none."""
ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MINORS = (11, 12, 13)
"""Versions that the classifiers may name: those that this program tries."""
PLACEHOLDER = "example.com"
PROGRAM = """
from bridle import Agent, Budget, tool

@tool(effect="read")
def get_weather(city: str) -> str:
    "Current weather for a city."
    return {"Tokyo": "24 °C, clear", "New York": "17 °C, rain"}[city]

agent = Agent("sim:", tools=[get_weather], budget=Budget(usd=0.50))
result = agent.run_sync("Is it warmer in Tokyo or New York?")
assert result.done and "Tokyo" in result.text, result
print(result.text)
"""
TYPED = "import bridle\nresult = bridle.Agent('sim:').run_sync('Hello!')\nreveal_type(result.text)\nresult.no_such_name\n"


class Unfit(Exception):
    """A reason not to release."""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draft", action="store_true", help="allow an undated changelog and uncommitted changes"
    )
    draft = parser.parse_args().draft
    try:
        version = check_version((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), draft=draft)
        if not draft:
            check_committed()
            check_addresses((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        wheel, archive = build(ROOT, DIST)
        check_wheel(wheel, version)
        check_archive(archive, wheel, list_tracked(ROOT))
        check_types(wheel)
        tried = [try_python(python, wheel) for python in find_pythons()]
    except Unfit as reason:
        sys.exit(f"not fit for release: {reason}")
    for path in (wheel, archive):
        print(
            f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}  {path.stat().st_size:,} bytes"
        )
    print(
        f"bridle {version}: built twice with equal bytes, types visible, tried with Python {', '.join(tried)}"
    )
    print("Nothing was published.")


def check_version(changelog, *, draft):
    """The version, which the package, its metadata and the changelog must agree on."""
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    source = (ROOT / "src" / "bridle" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    if not found or found[1] != stated:
        raise Unfit(f"pyproject.toml says {stated}, bridle.__version__ {found and found[1]}; make them equal")
    heading = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    dated = heading and re.fullmatch(rf"{re.escape(stated)} \(\d{{4}}-\d\d-\d\d\)", heading[1])
    if not dated and not (draft and heading and heading[1] == f"Unreleased ({stated})"):
        raise Unfit(
            f"the first section of CHANGELOG.md must be '## {stated} (YYYY-MM-DD)', not '## {heading and heading[1]}'"
        )
    return stated


def check_addresses(project):
    """The addresses of the project are real ones."""
    addresses = tomllib.loads(project)["project"]["urls"]
    if made_up := [name for name, address in addresses.items() if PLACEHOLDER in address]:
        raise Unfit(
            f"[project.urls] of pyproject.toml has placeholders: {', '.join(made_up)}; put in the real addresses"
        )


def check_committed():
    if changed := run(["git", "status", "--porcelain"], cwd=ROOT):
        raise Unfit(f"uncommitted changes: {changed.splitlines()[0].strip()} …; commit them, or use --draft")


def build(source, folder):
    """Build twice, with equal bytes; returns the wheel and the source archive."""
    with tempfile.TemporaryDirectory() as second:
        made = []
        for place in (folder, Path(second)):
            shutil.rmtree(place, ignore_errors=True)
            run([sys.executable, "-m", "hatchling", "build", "-d", str(place)], cwd=source)
            (wheel,), (archive,) = place.glob("*.whl"), place.glob("*.tar.gz")
            made.append((wheel, archive))
        for first, again in zip(*made, strict=True):
            if first.read_bytes() != again.read_bytes():
                raise Unfit(f"{first.name} has other bytes when it is built again")
    return made[0]


def check_wheel(wheel, version):
    """The wheel has every file of the package and its metadata, and nothing else."""
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        fields = email.parser.Parser().parsestr(file.read(metadata).decode())
    package = ROOT / "src" / "bridle"
    wanted = {
        f"bridle/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    if difference := names ^ wanted:
        raise Unfit(f"{wheel.name} and src/bridle differ: {', '.join(sorted(difference)[:5])}")
    if "bridle/py.typed" not in names:
        raise Unfit("py.typed is missing")
    if fields["Version"] != version or not fields.get_payload().startswith("# Bridle"):
        raise Unfit("the metadata lacks the version or the README")
    minors = [
        int(each.rpartition(".")[2]) for each in fields.get_all("Classifier", []) if "Python :: 3." in each
    ]
    if tuple(minors) != MINORS:
        raise Unfit(f"the classifiers name Python 3.{minors}, this program tries 3.{list(MINORS)}")


def list_tracked(folder):
    """The files of the repository; those of the folder's source if it is no repository, such as an unpacked archive."""
    if (folder / ".git").exists():
        return run(["git", "ls-files", "-z"], cwd=folder).strip("\0").split("\0")
    found = (path for part in ("src", "tests", "docs", "bench") for path in (folder / part).rglob("*.py"))
    return [str(path.relative_to(folder)) for path in found if ".work" not in path.parts]


def check_archive(archive, wheel, tracked):
    """The source archive has every file of the repository, and a wheel made from it is the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as file:
            file.extractall(folder, **TAR_FILTER)
        (source,) = Path(folder).iterdir()
        if missing := [name for name in tracked if not (source / name).is_file()]:
            raise Unfit(f"{archive.name} lacks {', '.join(missing[:5])}; see pyproject.toml and .gitignore")
        run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(Path(folder) / "out")],
            cwd=source,
        )
        (again,) = (Path(folder) / "out").glob("*.whl")
        with zipfile.ZipFile(wheel) as ours, zipfile.ZipFile(again) as theirs:
            if {i.filename: i.CRC for i in ours.infolist()} != {i.filename: i.CRC for i in theirs.infolist()}:
                raise Unfit(f"{archive.name} makes another wheel")


def check_types(wheel):
    """A type checker sees the types of the installed package, and an attribute that is none."""
    with tempfile.TemporaryDirectory() as folder:
        python = install(Path(sys.executable), Path(folder) / "venv", wheel)
        (Path(folder) / "program.py").write_text(TYPED, encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(python), "program.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if 'Revealed type is "str"' not in done.stdout or '"no_such_name"' not in done.stdout:
            raise Unfit(f"a type checker does not see the types of the wheel:\n{done.stdout}{done.stderr}")


def find_pythons():
    """One Python of each supported version that this machine has."""
    for minor in MINORS:
        versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
        candidates = [shutil.which(f"python3.{minor}"), *sorted(versions.glob(f"3.{minor}.*/bin/python"))]
        works = (
            Path(each)
            for each in candidates
            if each
            and not subprocess.run([each, "-c", "import venv"], capture_output=True, check=False).returncode
        )
        if (python := next(works, None)) is None:
            print(f"Python 3.{minor} is not installed: not tried", file=sys.stderr)
        else:
            yield python


def try_python(python, wheel):
    """Run the first program of the README with the wheel and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        ours = install(python, Path(folder) / "venv", wheel)
        bare = {"HOME": folder, "PATH": os.environ["PATH"]}
        version = run(
            [str(ours), "-c", "import platform; print(platform.python_version())"], env=bare
        ).strip()
        run([str(ours), "-W", "error", "-c", PROGRAM], cwd=folder, env=bare)
        run([str(ours.parent / "bridle"), "run", "What is 17 * 23?", "--json"], cwd=folder, env=bare)
        return version


def install(python, venv, wheel):
    run([str(python), "-m", "venv", "--without-pip", str(venv)])
    made = venv / "bin" / "python"
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(made),
            "install",
            "-q",
            "--disable-pip-version-check",
            str(wheel),
        ]
    )
    return made


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise Unfit(
            f"{' '.join(command[:4])} … ended with exit code {done.returncode}:\n{done.stderr}{done.stdout}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
