"""Instructions that a project keeps in a file, such as AGENTS.md.

They are read only if the user names the file: a folder that was downloaded must not instruct an agent by itself.
The text is read once per session and recorded as an instruction before it is sent.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from bridle.values.errors import MisuseError

PROJECT_BYTES_MAX = 64 * 1024
"""About 16,000 tokens at the start of every prompt."""


def make_project_instructions(files: Sequence[str | os.PathLike[str]]) -> Callable[[], str]:
    """A function for `Agent(instructions=[…])`; raises `MisuseError` for a file that cannot be read now."""
    paths = [Path(file).expanduser().absolute() for file in files]
    if not paths:
        raise MisuseError("name a file with project instructions, such as AGENTS.md")

    def project_instructions() -> str:
        texts = ((path.name, _read_instructions(path)) for path in paths)
        return "\n\n".join(f"Instructions of this project, from {name}:\n\n{text}" for name, text in texts)

    project_instructions()
    return project_instructions


def _read_instructions(path: Path) -> str:
    if not path.is_file():
        raise MisuseError(f"the project instructions {str(path)!r} are not a file")
    try:
        with path.open("rb") as file:
            data = file.read(PROJECT_BYTES_MAX + 1)
    except OSError as error:
        raise MisuseError(f"cannot read the project instructions {str(path)!r}: {error.strerror}") from None
    if len(data) > PROJECT_BYTES_MAX:
        raise MisuseError(
            f"{str(path)!r} has more than {PROJECT_BYTES_MAX:,} bytes, which every prompt would hold; shorten it"
        )
    try:
        text = data.decode().strip()
    except UnicodeDecodeError as error:
        raise MisuseError(f"{str(path)!r} is not UTF-8 text (byte {error.start:,})") from None
    if not text:
        raise MisuseError(f"{str(path)!r} is empty; write the instructions, or leave the file out")
    return text
