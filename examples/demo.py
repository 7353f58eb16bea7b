"""Three small tasks, done by an agent with real tools and a simulated model: no key, no network.

    python examples/demo.py

Each task is one `bridle run`; the log goes to a temporary folder and is shown at the end.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TASKS = (
    "What is 17 * 23 minus 100?",
    "Is it warmer in Tokyo or New York?",
    "Which file mentions the bridge, and what does it say about it?",
)


def bridle(*words: str) -> str:
    """Run the command as a person would, and show what is typed."""
    print(
        f"\n\x1b[1m$ bridle {shlex.join(words)}\x1b[0m"
        if sys.stdout.isatty()
        else f"\n$ bridle {shlex.join(words)}"
    )
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", "bridle.cli.main", *words], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    return ""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BRIDLE_STORE"] = str(Path(folder) / "log.db")
        os.environ["BRIDLE_MODEL"] = "sim:"
        for task in TASKS:
            bridle("run", task, "--tools", os.path.relpath(HERE / "demo_tools.py"))
        bridle("sessions")
    print("\nThe model was simulated; the tools, the wire format and the log were real.")
    print("Next: set a vendor's key and name one of its models with -m, or read README.md.")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
