"""Finds the settings in force: `bridle.toml`, then `pyproject.toml`, then the environment; later ones win.

The nearest folder with settings is used, searched upwards from the working folder:

    inside a repository     up to its root, the folder with `.git`
    inside the home folder  up to the home folder
    elsewhere               the working folder only

A settings file may name code to import and an address that prompts are sent to, so it is trusted like a program.
The search therefore never leaves the user's own folders, and a file of another user is refused unless it is
named with --config.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from bridle.values.base import Value
from bridle.values.errors import MisuseError

from .settings import SETTINGS, Setting, SettingValue, explain_bad_value, parse_variable
from .toml_file import TomlFile, explain_unknown_name, read_toml_file, show_path

SETTINGS_FILE, PROJECT_FILE, PROJECT_TABLE = "bridle.toml", "pyproject.toml", ("tool", "bridle")
CONFIG_VARIABLE = "BRIDLE_CONFIG"

SourceKind = Literal["default", "file", "environment", "flag"]


class SettingSource(Value, kw_only=True):
    """Origin of a value."""

    kind: SourceKind = "default"
    name: str = ""
    """The file, the variable or the flag."""
    line: int = 0

    @property
    def label(self) -> str:
        if self.kind == "file":
            return f"{self.name}:{self.line}" if self.line else self.name
        return f"${self.name}" if self.kind == "environment" else self.name or self.kind


class SettingInForce(Value, kw_only=True):
    setting: Setting
    value: SettingValue | None = None
    """None if only the default applies."""
    source: SettingSource = SettingSource()
    overridden: tuple[SettingSource, ...] = ()
    """Earlier sources that also have a value."""


class Configuration(Value, kw_only=True):
    """All settings with their origin, and the files that were read."""

    settings: tuple[SettingInForce, ...] = ()
    files: tuple[str, ...] = ()

    def get(self, name: str) -> SettingValue | None:
        """The value that a file or the environment gives; None for the default."""
        return next((each.value for each in self.settings if each.setting.name == name), None)

    def get_text(self, name: str) -> str:
        value = self.get(name)
        return value if isinstance(value, str) else ""

    def get_texts(self, name: str) -> tuple[str, ...]:
        value = self.get(name)
        return value if isinstance(value, tuple) else ()

    def source_of(self, name: str) -> SettingSource:
        return next(each.source for each in self.settings if each.setting.name == name)


def load_configuration(
    environ: Mapping[str, str], *, config: str | None = None, use_files: bool = True
) -> Configuration:
    """Read all sources; raises `MisuseError` with the file and the line, or the variable, of a mistake.

    `config` or $BRIDLE_CONFIG names a file, which replaces the search.
    """
    named = config or environ.get(CONFIG_VARIABLE, "").strip()
    files = [] if not use_files else [_read_named(named)] if named else _read_found(Path.cwd())
    for file in files:
        _check_file(file)
    return Configuration(
        settings=tuple(_settle(setting, files, environ) for setting in SETTINGS),
        files=tuple(show_path(file.path) for file in files),
    )


def find_settings_folders(start: Path, home: Path) -> Iterator[Path]:
    """Folders to search, nearest first: up to the repository or the home folder, else `start` alone."""
    folders = [start, *start.parents]
    root = next((folder for folder in folders if (folder / ".git").exists()), None)
    # guard: settings-search-end
    last = root or (home if home in folders else start)
    return iter(folders[: folders.index(last) + 1])


def _read_found(start: Path) -> list[TomlFile]:
    """The settings files of the nearest folder that has any."""
    for folder in find_settings_folders(start, Path.home()):
        found = [
            file
            for name, root in ((SETTINGS_FILE, ()), (PROJECT_FILE, PROJECT_TABLE))
            if (folder / name).is_file() and (file := read_toml_file(folder / name, root)) is not None
        ]
        for file in found:
            _check_owner(file)
        if found:
            return found
    return []


def _read_named(name: str) -> TomlFile:
    path = Path(name)
    root = PROJECT_TABLE if path.name == PROJECT_FILE else ()
    file = read_toml_file(path, root)
    if file is None:
        raise MisuseError(f"{name} has no table [{'.'.join(PROJECT_TABLE)}]")
    return file


def _check_owner(file: TomlFile) -> None:
    """Refuse a file that another user could have placed there."""
    if not hasattr(os, "getuid"):
        return
    owner = file.path.stat().st_uid
    # guard: settings-file-owner
    if owner not in (os.getuid(), 0):
        shown = show_path(file.path)
        raise MisuseError(
            f"{shown} belongs to another user, and a settings file can run code:"
            f" pass --config {shown} to use it, or --no-config to ignore it"
        )


def _check_file(file: TomlFile) -> None:
    """Raise `MisuseError` for a key that is no setting or has a value of the wrong kind."""
    known = {setting.key: setting for setting in SETTINGS}
    tables = {key[0] for key in known if len(key) > 1}
    pairs: list[tuple[tuple[str, ...], object]]
    for name, value in file.table.items():
        if name in tables:
            if not isinstance(value, dict):
                raise file.fail((name,), f"{name} must be a table: [{name}]")
            pairs = [((name, inner), inner_value) for inner, inner_value in value.items()]
        else:
            pairs = [((name,), value)]
        for key, found in pairs:
            if key not in known:
                names = [other[-1] for other in known if other[:-1] == key[:-1]]
                names += tables if len(key) == 1 else ()
                raise file.fail(key, explain_unknown_name(key[-1], names, key[:-1]))
            if problem := explain_bad_value(known[key], found):
                raise file.fail(key, problem)


def _settle(setting: Setting, files: list[TomlFile], environ: Mapping[str, str]) -> SettingInForce:
    """The value of one setting: the last source that has one."""
    given: list[tuple[SettingValue, SettingSource]] = []
    for file in files:
        value: object = file.table
        for step in setting.key:
            value = value.get(step) if isinstance(value, dict) else None
        if value is not None:
            source = SettingSource(kind="file", name=show_path(file.path), line=file.line_of(setting.key))
            given.append((_resolve_value(setting, value, file), source))
    if setting.variable and (text := environ.get(setting.variable, "")).strip():
        parsed = parse_variable(setting, text)
        if problem := explain_bad_value(setting, parsed):
            raise MisuseError(f"${setting.variable}: {problem.partition('; write')[0]}")
        source = SettingSource(kind="environment", name=setting.variable)
        given.append((_resolve_value(setting, parsed, None), source))
    if not given:
        return SettingInForce(setting=setting)
    *earlier, (value, source) = given
    return SettingInForce(
        setting=setting, value=value, source=source, overridden=tuple(other for _, other in earlier)
    )


def _resolve_value(setting: Setting, value: object, file: TomlFile | None) -> SettingValue:
    """The value with paths of a file made absolute; those of a variable start at the working folder."""
    if isinstance(value, list):
        return tuple(_resolve_item(setting, item, file) for item in value)
    is_url = isinstance(value, str) and ("://" in value or value == ":memory:")
    if file is not None and isinstance(value, str) and setting.kind in ("path", "store") and not is_url:
        return str(file.resolve_path(value))
    assert isinstance(value, str | int | float | bool)
    return value


def _resolve_item(setting: Setting, item: str, file: TomlFile | None) -> str:
    if file is None or setting.kind == "texts":
        return item
    return resolve_reference(file, item) if setting.kind == "references" else str(file.resolve_path(item))


def resolve_reference(file: TomlFile, reference: str) -> str:
    """A reference to code in a file: a path starts at the file's folder, a module name stays as it is."""
    path, colon, name = reference.partition(":")
    is_path = path.endswith(".py") or "/" in path
    return f"{file.resolve_path(path)}{colon}{name}" if is_path else reference
