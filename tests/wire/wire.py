"""Recorded traffic for tests: read from $BRIDLE_WIRE, or from `shared/wire` beside the project.

The recordings are not part of the project. Where they are missing, tests of decoders and encoders use exchanges with the
simulator, and the run says so at its end. Only tests about what a provider itself said, charged or refused are skipped.
"""

import os
from pathlib import Path

import pytest

from bridle.testing.wire.check_recording import TrafficRecord, read_recordings

PLACE = Path(os.environ.get("BRIDLE_WIRE") or Path(__file__).parents[3] / "shared" / "wire")
FAMILIES = ("anthropic", "openai-responses", "openai-chat", "gemini", "bedrock-converse")


def find_recordings(family: str) -> Path | None:
    """The file of a family, whose name is written with hyphens."""
    path = PLACE / f"{family}.jsonl.gz"
    return path if path.exists() else None


UNRECORDED = [family for family in FAMILIES if find_recordings(family) is None]
FALLBACK = (
    f"There is no recorded traffic of {', '.join(UNRECORDED)} in {PLACE}: decoders were fuzzed and compared with replies of the"
    " simulator instead. Set BRIDLE_WIRE to a folder that has recordings."
)
needs_recordings = pytest.mark.skipif(
    bool(UNRECORDED), reason=f"about what providers said, and {PLACE} has no recordings: set BRIDLE_WIRE"
)


def corpus(family: str) -> list[TrafficRecord]:
    """The recordings of a wire family, or exchanges with the simulator if there are none."""
    if (path := find_recordings(family)) is not None:
        return list(read_recordings(path))
    from tests.wire.simulated_traffic import simulate_traffic  # it runs agents: only where it is needed

    return list(simulate_traffic(family.replace("-", "_")))


def at_least(family: str, recorded: int, simulated: int) -> int:
    """How many cases a test must find: fewer if it has only those of the simulator."""
    return recorded if find_recordings(family) is not None else simulated
