"""What other people's clients have to be told to find the simulator, from a table."""

import tomllib
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("exports.toml")


def exports(url: str) -> dict[str, str]:
    """Environment variables by name, for a simulator that answers at `url`."""
    return {name: value.format(url=url) for name, value in _table().items()}


@cache
def _table() -> dict[str, str]:
    return {name: str(value) for name, value in tomllib.loads(TABLE.read_text()).items()}
