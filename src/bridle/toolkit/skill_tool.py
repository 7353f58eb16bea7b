"""Skills: instructions for special tasks, which the model reads when it needs them.

    skills/invoices/SKILL.md        front matter with name and description, then the text
    skills/invoices/rates.csv       files that the text refers to

The names and descriptions are part of the tool's description, so they are in the prompt from its start and never move;
the text of a skill is a tool result.  The description ends with a version, a hash of all files: if a skill changed
since a session began, the prefix of that session has changed, which is recorded (`PrefixMoved`).  A skill that
changes while an agent exists is read as it is now, and its result says so.

Files are read through the jail of workspace.py: a path or a link cannot leave the folder of its skill.  The folder of
skills is opened once; one that is put in its place later is not read.
"""

import json
import os
import re
from collections.abc import Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import NamedTuple

from bridle.ports.tool import ANY_ERROR, Tool
from bridle.tools.function.function_tool import FunctionTool
from bridle.values.errors import MisuseError
from bridle.values.text import escape_text

from .search_files import SKIPPED_FOLDERS
from .workspace import PathMissing, PathRefused, Workspace

SKILL_FILE = "SKILL.md"
NAME_CHARACTERS_MAX, DESCRIPTION_CHARACTERS_MAX = 64, 1_024
CATALOGUE_CHARACTERS_MAX = 40_000
"""About 10,000 tokens at the start of every prompt."""
TEXT_CHARACTERS_MAX = 200_000
FILES_MAX, SKILL_BYTES_MAX = 2_000, 20 * 1024 * 1024
FILES_LISTED_MAX = 100
VERSION_LENGTH = 12
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
KEY = re.compile(r"([A-Za-z][A-Za-z0-9_-]*):(?:[ \t]+(.*))?")
BLOCK = re.compile(r"([|>])[-+]?")
LEAD = (
    "Read a skill: instructions for a kind of task, and files for it. Read the skill before you start a task that its"
    " description fits."
)
CHANGED = (
    "[The files of this skill changed after the list of skills was made. This is their current content.]"
)


class SkillText(NamedTuple):
    """A SKILL.md file, parsed."""

    name: str
    description: str
    body: str


class Skill(NamedTuple):
    name: str
    description: str
    workspace: Workspace
    """The folder of the skill."""
    version: str
    """Hash of its files when the agent was made."""


class SkillReader:
    """The function that a model calls, for the skills of some folders."""

    def __init__(self, folders: Sequence[str | os.PathLike[str]], *, name_folders: bool) -> None:
        self._name_folders = name_folders
        found = [
            skill
            for folder in folders
            for skill in _find_skills(Workspace(folder, what="the folder of skills"))
        ]
        self.skills = {skill.name: skill for skill in sorted(found, key=lambda skill: skill.name)}
        for skill in found:
            other = self.skills[skill.name].workspace.root
            if other != skill.workspace.root:
                raise MisuseError(
                    f"{skill.workspace.root} and {other} are skills of the same name; rename one"
                )

    def read_skill(self, name: str, file: str = SKILL_FILE) -> str:
        """Read a skill.

        Args:
            name: Name of the skill.
            file: A file of the skill that its text refers to.
        """
        skill = self.skills.get(name)
        if skill is None:
            near = get_close_matches(name, self.skills, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(self.skills)}"
            raise ValueError(f"there is no skill {name!r}; {hint}")
        # guard: skill-change-noted
        notes = [CHANGED] if _hash_files(skill.workspace) != skill.version else []
        # guard: skill-file-inside
        text = skill.workspace.read_text(file).text
        if file != SKILL_FILE:
            return "\n\n".join((*notes, text))
        try:
            body = parse_skill_text(text, SKILL_FILE).body
        except MisuseError as error:  # it was changed
            raise ValueError(str(error)) from None
        others = [path for path in _list_files(skill.workspace, SKIPPED_FOLDERS) if path != SKILL_FILE]
        more = f" and {len(others) - FILES_LISTED_MAX} more" if len(others) > FILES_LISTED_MAX else ""
        listed = ", ".join(escape_text(path) for path in others[:FILES_LISTED_MAX])
        ends = [f"[Files of this skill: {listed}{more}]"] if others else []
        if others and self._name_folders:
            ends.append(f"[Commands find them in {skill.workspace.root}, read-only.]")
        return "\n\n".join((*notes, body, *ends))

    def describe(self) -> str:
        """The catalogue: the same text for the same files, whichever order they were found in."""
        lines = [f"- {skill.name}: {skill.description}" for skill in self.skills.values()]
        versions = "".join(skill.version for skill in self.skills.values())
        version = sha256(versions.encode()).hexdigest()[:VERSION_LENGTH]
        made = "\n".join((LEAD, *lines, f"(version {version})"))
        # guard: skill-catalogue-limit
        if len(made) > CATALOGUE_CHARACTERS_MAX:
            raise MisuseError(
                f"the descriptions of {len(lines)} skills have {len(made):,} characters, which every prompt would hold;"
                f" at most {CATALOGUE_CHARACTERS_MAX:,}: shorten them, or name fewer folders"
            )
        return made


def make_skill_tool(folders: Sequence[str | os.PathLike[str]], *, name_folders: bool) -> Tool:
    """A tool that reads the skills of these folders; `name_folders` tells the model where commands find them."""
    if not folders:
        raise MisuseError("name a folder of skills")
    reader = SkillReader(folders, name_folders=name_folders)
    return FunctionTool(
        reader.read_skill, description=reader.describe(), effect="read", always=True, errors=ANY_ERROR
    )


def parse_skill_text(text: str, shown: str) -> SkillText:
    """Read front matter and body; raises `MisuseError` with the place of a mistake.

    Front matter is the part of YAML that such files use: `key: text`, quoted texts and blocks (`>`, `|`).
    Keys other than name and description are not used.
    """
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != "---":
        raise MisuseError(f"{shown}:1: a skill starts with a line ---, then name: and description:, then ---")
    end = next((at for at, line in enumerate(lines) if at and line.rstrip() == "---"), None)
    if end is None:
        raise MisuseError(f"{shown}:1: the front matter has no end; add a line --- after the description")
    values: dict[str, str] = {}
    places: dict[str, int] = {}
    at = 1
    while at < end:
        key, stop = KEY.fullmatch(lines[at].rstrip()), at + 1
        while stop < end and (not lines[stop].strip() or lines[stop][0] in " \t-#"):
            stop += 1
        if key is not None:
            name = key[1]
            if name in places:
                raise MisuseError(f"{shown}:{at + 1}: {name} is given twice; remove one")
            values[name], places[name] = _read_value(key[2] or "", lines[at + 1 : stop]), at + 1
        elif lines[at].strip() and not lines[at].startswith("#"):
            raise MisuseError(f"{shown}:{at + 1}: write a line of the front matter as key: text")
        at = stop
    _check_values(values, places, shown)
    body = "\n".join(lines[end + 1 :]).strip()
    if not body or len(body) > TEXT_CHARACTERS_MAX:
        problem = (
            "there is no text after the front matter"
            if not body
            else f"the text has {len(body):,} characters"
        )
        raise MisuseError(f"{shown}:{end + 1}: {problem}; write 1 to {TEXT_CHARACTERS_MAX:,}")
    return SkillText(values["name"], values["description"], body)


def _read_value(first: str, rest: list[str]) -> str:
    """A text that starts after its key and may continue on indented lines."""
    more = [line.strip() for line in rest if not line.startswith("#")]
    block = BLOCK.fullmatch(first)
    if block is not None:
        return ("\n" if block[1] == "|" else " ").join(more).strip()
    whole = " ".join(filter(None, (first.strip(), *more)))
    if whole[:1] == '"' == whole[-1:] and len(whole) > 1:
        try:
            return str(json.loads(whole))
        except ValueError:
            return whole
    if whole[:1] == "'" == whole[-1:] and len(whole) > 1:
        return whole[1:-1].replace("''", "'")
    return whole.partition(" #")[0].strip()


def _check_values(values: dict[str, str], places: dict[str, int], shown: str) -> None:
    for key, most in (("name", NAME_CHARACTERS_MAX), ("description", DESCRIPTION_CHARACTERS_MAX)):
        value, place = values.get(key, ""), f"{shown}:{places.get(key, 1)}"
        if not value:
            raise MisuseError(f"{place}: the front matter has no {key}; add {key}: …")
        if len(value) > most:
            raise MisuseError(f"{place}: {key} has {len(value):,} characters; at most {most:,}")
        # guard: skill-text-visible
        if escape_text(value, prose=True) != value:
            raise MisuseError(
                f"{place}: {key} has characters that people cannot see: {escape_text(value)[:200]}"
            )
    if not NAME.fullmatch(values["name"]):
        raise MisuseError(
            f"{shown}:{places['name']}: the name {values['name']!r} is not valid; use a-z, 0-9 and single hyphens"
        )
    values["description"] = " ".join(values["description"].split())


def _find_skills(folder: Workspace) -> list[Skill]:
    found = []
    for entry in folder.list_folder(""):
        if entry.name == SKILL_FILE:
            raise MisuseError(f"{folder.root} is a skill itself; name the folder above it")
        if entry.name.startswith((".", "_")) or not (entry.is_folder or entry.special):
            continue
        found.append(_load_skill(folder, entry.name, is_link=not entry.is_folder))
    if not found:
        raise MisuseError(
            f"{folder.root} has no skills; write one: NAME/{SKILL_FILE} with name and description"
        )
    return found


def _load_skill(folder: Workspace, name: str, *, is_link: bool) -> Skill:
    shown = f"{folder.root}/{name}/{SKILL_FILE}"
    if is_link:
        raise MisuseError(
            f"{folder.root}/{name} is not a folder; copy the skill here, or name its own folder too"
        )
    try:
        workspace = folder.open_below(name)
        parsed = parse_skill_text(workspace.read_text(SKILL_FILE).text, shown)
        version = _hash_files(workspace)
    except PathMissing:
        raise MisuseError(
            f"{folder.root}/{name} has no {SKILL_FILE}; write one, or start the name with _"
        ) from None
    except PathRefused as error:
        raise MisuseError(f"{folder.root}/{name}: {error}") from None
    if parsed.name != name:
        raise MisuseError(
            f"{shown}: the skill is named {parsed.name!r}, its folder {name!r}; use the same name"
        )
    return Skill(name, parsed.description, workspace, version)


def _list_files(workspace: Workspace, skipped: frozenset[str] = frozenset()) -> list[str]:
    return [path for _, path in workspace.walk_files("", skipped)]


def _hash_files(workspace: Workspace) -> str:
    """A hash of the names and contents of all files; raises `PathRefused` if there are too many.

    Those of `.git` and `node_modules` count as well: the tool reads them, and commands run them.
    """
    whole, size = sha256(), 0
    for count, path in enumerate(_list_files(workspace), 1):
        data = workspace.read_bytes(path)
        size += len(data)
        if count > FILES_MAX or size > SKILL_BYTES_MAX:
            raise PathRefused(f"a skill has at most {FILES_MAX:,} files and {SKILL_BYTES_MAX:,} bytes")
        whole.update(sha256(os.fsencode(path)).digest() + sha256(data).digest())
    # guard: skill-version-hash
    return whole.hexdigest()
