"""Files and layouts of folders from which programs run something without being told to.

A person who opens a folder in an editor, enters it with a shell or types `git status` there runs what such files
name, outside of the sandbox and with all rights.  The names are in reported_settings.toml.  A repository of git has no
name of its own: a folder with a few entries is one, whatever it is called.

Names are compared in the form in which a file system may fold them: `.GIT` is found on a disk that ignores case.
Uses the standard library only: the launcher runs it without site-packages.
"""

import os
import tomllib
import unicodedata
from pathlib import Path

REPOSITORY_LAYOUTS = (("HEAD", "objects", "refs"), ("HEAD", "commondir"))
"""Entries that make a folder of any name a repository for git; `commondir` names the folder that has the others."""
SITE_FOLDERS = frozenset(("site-packages", "dist-packages"))
"""Folders in which Python runs the lines of `.pth` files at every start."""


def fold_name(name: str) -> str:
    """The name as a file system may compare it: without case, invisible characters, and dots and spaces at its end."""
    if name.isascii():
        folded = name.lower()
    else:
        visible = (letter for letter in name if unicodedata.category(letter) != "Cf")
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", "".join(visible)).casefold())
    return folded.partition(":")[0].rstrip(". ")


STARTUP_NAMES: dict[str, str] = {
    fold_name(name): program
    for name, program in tomllib.loads(
        Path(__file__).with_name("reported_settings.toml").read_text(encoding="utf-8")
    ).items()
}
"""Names in any folder, and the programs that run what they name."""


def find_startup_program(folder: str, name: str) -> str:
    """The program that runs what an entry of a folder names; empty if none does without being told to."""
    folded = fold_name(name)
    if folded.endswith(".pth") and fold_name(folder.rpartition("/")[2]) in SITE_FOLDERS:
        return "Python"
    return STARTUP_NAMES.get(folded, "")


def is_repository(folder: int, adding: str = "") -> bool:
    """True if git takes the open folder for a repository, or would if it had the entry `adding` too."""
    added = fold_name(adding)

    def has(entry: str) -> bool:
        return added == fold_name(entry) or _exists(folder, entry)

    return any(all(map(has, layout)) for layout in REPOSITORY_LAYOUTS)


def _exists(folder: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it cannot be looked at, and git may be able to
    return True
