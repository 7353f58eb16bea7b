"""Environment variables that point the clients of other libraries to the simulator, from a table."""

import tomllib
from functools import cache
from pathlib import Path

EXPORTS_FILE = Path(__file__).with_name("exports.toml")


def client_environment(url: str) -> dict[str, str]:
    """Return environment variables by name, for a simulator at `url`."""
    return {name: value.format(url=url) for name, value in _load_exports().items()}


@cache
def _load_exports() -> dict[str, str]:
    return {name: str(value) for name, value in tomllib.loads(EXPORTS_FILE.read_text()).items()}
