"""What Bridle weighs: packages, megabytes, import time and the time of `bridle --help`.

    python bench/footprint.py            the table, beside a peer (installed on demand, minimal)
    python bench/footprint.py --check    only what the build fails on: packages and megabytes
    python bench/footprint.py --wheel    build the wheel, install it in an empty environment, run it

Sizes are taken from a fresh environment that has the built wheel and nothing else.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
WORK = HERE / ".work" / "footprint"
PACKAGES_MAX, MEGABYTES_MAX = 18, 40.0
IMPORT_SHARE_MAX, HELP_MILLISECONDS_MAX = 0.1, 200
OURS = "from bridle import Agent, Budget, tool"
PEER = ("pydantic-ai-slim[anthropic]", "from pydantic_ai import Agent")
ROUNDS = 9


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--wheel", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours = install(Path(folder) / "ours", str(build(Path(folder))))
        weight = weigh(ours)
        say(options, {"bridle": weight})
        if options.wheel:
            try_out(ours)
        failed = weight["packages"] > PACKAGES_MAX or weight["megabytes"] > MEGABYTES_MAX
        if not (options.check or options.wheel):
            failed |= compare(options, ours)
    if failed:
        sys.exit(
            f"too heavy: at most {PACKAGES_MAX} packages, {MEGABYTES_MAX:g} MB, a tenth of the peer's import"
        )


def build(folder):
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-deps",
            "--no-build-isolation",
            "-w",
            folder,
            PROJECT,
        ]
    )
    (wheel,) = Path(folder).glob("bridle-*.whl")
    return wheel


def install(venv, requirement):
    run([sys.executable, "-m", "venv", "--without-pip", venv])
    python = venv / "bin" / "python"
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "-q",
            "--disable-pip-version-check",
            requirement,
        ]
    )
    return python


def weigh(python):
    (packages,) = python.parent.parent.glob("lib/python3*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {
        "packages": len(list(packages.glob("*.dist-info"))),
        "megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
    }


def compare(options, ours):
    peer = WORK / "peer" / "bin" / "python"
    if not peer.exists():
        print(f"installing {PEER[0]} (once) ...", file=sys.stderr)
        WORK.mkdir(parents=True, exist_ok=True)
        install(WORK / "peer", PEER[0])
    commands = {
        "python": [ours, "-c", "pass"],
        "import bridle": [ours, "-c", "import bridle"],
        OURS: [ours, "-c", OURS],
        "import pydantic_ai": [peer, "-c", "import pydantic_ai"],
        PEER[1]: [peer, "-c", PEER[1]],
        "bridle --help": [ours.parent / "bridle", "--help"],
    }
    milliseconds = cpu(commands)
    bare = milliseconds["python"]
    peers = milliseconds["import pydantic_ai"] - bare
    share = (milliseconds["import bridle"] - bare) / peers
    first_use = (milliseconds[OURS] - bare) / peers
    say(options, {"peer": weigh(peer), "cpu_milliseconds": milliseconds})
    say(options, {"import_share": round(share, 3), "first_use_share": round(first_use, 3)})
    return share > IMPORT_SHARE_MAX or milliseconds["bridle --help"] > HELP_MILLISECONDS_MAX


def cpu(commands):
    """The least CPU time of each over interleaved rounds: noise only ever adds."""
    best = dict.fromkeys(commands, float("inf"))
    for _ in range(ROUNDS):
        for name, command in commands.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            run(command)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best[name] = min(best[name], spent * 1000)
    return {name: round(value, 1) for name, value in best.items()}


def try_out(python):
    environment = {"PATH": os.environ["PATH"], "HOME": tempfile.mkdtemp()}
    command = [python.parent / "bridle", "run", "What is 17 * 23 minus 100?", "--json"]
    told = json.loads(run(command, env=environment))
    assert told["stop"] == "done" and "291" in told["text"], told
    print(f"installed alone, it answers: {told['text']}")
    shutil.rmtree(environment["HOME"])


def say(options, figures):
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(
            f"{name}: "
            + (", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value))
        )


def run(command, **settings):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **settings)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:4]))} failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


if __name__ == "__main__":
    main()
