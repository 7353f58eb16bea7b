"""Instructions that a project keeps in a file, such as AGENTS.md.

They are read only if the user names the file: a folder that was downloaded must not instruct an agent by itself.
The text is read once per session and recorded as an instruction before it is sent.

The folder of a file is opened once, and the file is read from there as a file of a workspace is (workspace.py): it may
be a link to another file of its folder, and never one that leaves it, to a device or to a file of /proc.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from bridle.values.errors import MisuseError

from .workspace import FileTooLarge, PathRefused, Workspace, decode_text

PROJECT_BYTES_MAX = 64 * 1024
"""About 16,000 tokens at the start of every prompt."""


def make_project_instructions(files: Sequence[str | os.PathLike[str]]) -> Callable[[], str]:
    """A function for `Agent(instructions=[…])`; raises `MisuseError` for a file that cannot be read now."""
    paths = [Path(file).expanduser().absolute() for file in files]
    if not paths:
        raise MisuseError("name a file with project instructions, such as AGENTS.md")
    folders = [_open_folder(path) for path in paths]

    def project_instructions() -> str:
        texts = (
            (path.name, _read_instructions(path, folder)) for path, folder in zip(paths, folders, strict=True)
        )
        return "\n\n".join(f"Instructions of this project, from {name}:\n\n{text}" for name, text in texts)

    project_instructions()
    return project_instructions


def _open_folder(path: Path) -> Workspace:
    try:
        return Workspace.hold_folder(path.parent, "the folder of the project instructions")
    except OSError as error:
        raise MisuseError(f"cannot read the project instructions {str(path)!r}: {error.strerror}") from None


def _read_instructions(path: Path, folder: Workspace) -> str:
    try:
        data = folder.read_bytes(path.name, PROJECT_BYTES_MAX)
    except FileTooLarge:
        raise MisuseError(
            f"{str(path)!r} has more than {PROJECT_BYTES_MAX:,} bytes, which every prompt would hold; shorten it"
        ) from None
    except PathRefused as error:
        raise MisuseError(
            f"cannot read the project instructions in {str(path.parent)!r}: {error}; name a file, or a link to one in"
            " the same folder"
        ) from None
    try:
        text = decode_text(data, str(path)).strip()
    except PathRefused as error:
        raise MisuseError(str(error)) from None
    if not text:
        raise MisuseError(f"{str(path)!r} is empty; write the instructions, or leave the file out")
    return text
