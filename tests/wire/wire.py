"""Recorded traffic for tests: read from $BRIDLE_WIRE, or from `shared/wire` beside the project."""

import os
from pathlib import Path

import pytest

from bridle.testing.wire.check_recording import TrafficRecord, read_recordings

PLACE = Path(os.environ.get("BRIDLE_WIRE") or Path(__file__).parents[3] / "shared" / "wire")


def corpus(family: str) -> list[TrafficRecord]:
    """The recordings of a wire family; the test that asks is skipped, in words, when there are none."""
    path = PLACE / f"{family}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"no recorded traffic at {path}: set BRIDLE_WIRE to the folder that holds it")
    return list(read_recordings(path))
