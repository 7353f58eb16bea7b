"""Runs a campaign at any size:  python -m tests.campaigns.run_campaign NAME COUNT [FIRST_SEED] [options]

NAME is the file without `test_`, such as unbrickable, fuzz, mutated_replies, kill_writes or crowds.
"""

import runpy
import sys
from pathlib import Path

from tests.suite.paths import add_project_root

TESTS = Path(__file__).parents[1]


def main() -> None:
    found = {path.stem.removeprefix("test_"): path for path in sorted(TESTS.rglob("test_*.py"))}
    campaigns = {name: path for name, path in found.items() if '__name__ == "__main__"' in path.read_text()}
    if len(sys.argv) < 2 or sys.argv[1] not in campaigns:
        sys.exit(
            f"usage: python -m tests.campaigns.run_campaign NAME COUNT [FIRST_SEED]; NAME is one of: {', '.join(campaigns)}"
        )
    add_project_root()
    path = campaigns[sys.argv[1]]
    sys.argv = [str(path), *sys.argv[2:]]
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()
