"""Reads a TOML file of the user and reports mistakes with the file, the line and the nearest valid name.

tomllib does not report the line of a valid value, so `find_key_lines` reads the text once more, one statement at
a time; only errors and `bridle config` need that.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import inspect

from bridle.config.key_check import explain_credential
from bridle.values.calls import Policy
from bridle.values.errors import BridleError, MisuseError

KeyPath = tuple[str | int, ...]
T = TypeVar("T", bound=msgspec.Struct)

FILE_BYTES_MAX = 1_000_000
PARENTS_SHOWN_MAX = 2
_MSGSPEC_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_PATH_STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]")


@dataclass(frozen=True)
class TomlFile:
    """A parsed file, and the table in it that holds our settings."""

    path: Path
    text: str
    table: Mapping[str, object]
    root: KeyPath = ()
    """Path of `table` in the file, such as `tool.bridle`."""

    @property
    def folder(self) -> Path:
        """Folder that relative paths in the file refer to."""
        return self.path.resolve().parent

    @cached_property
    def _lines(self) -> dict[KeyPath, int]:
        return find_key_lines(self.text)

    def line_of(self, path: KeyPath) -> int:
        """Line of a key of the table, or of the nearest table around it; 0 if there is none."""
        whole = (*self.root, *path)
        steps = (whole[:length] for length in range(len(whole), 0, -1))
        return next((self._lines[step] for step in steps if step in self._lines), 0)

    def locate(self, path: KeyPath) -> str:
        """The file and the line of a key, as errors name them."""
        line = self.line_of(path)
        return f"{show_path(self.path)}, line {line}" if line else show_path(self.path)

    def fail(self, path: KeyPath, problem: str) -> MisuseError:
        return MisuseError(f"{self.locate(path)}: {problem}")

    def resolve_path(self, given: str) -> Path:
        """A path in the file: `~/` is the home folder, other relative paths start at the file's folder."""
        return self.folder / (Path(given).expanduser() if given.startswith("~/") else given)


def show_path(path: Path) -> str:
    """A path relative to the working folder if it is inside it or at most two folders above it."""
    relative = os.path.relpath(path)
    return relative if relative.count("..") <= PARENTS_SHOWN_MAX else str(path)


def read_text_file(path: Path) -> str:
    """The text of a file that a person writes; raises `MisuseError` for one that is too large to be that.

    Raises `OSError` and `UnicodeDecodeError` too. A device has no size, so no more than the limit is read.
    """
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise MisuseError(
            f"{show_path(path)} is larger than {FILE_BYTES_MAX:,} bytes; it cannot be a settings file"
        )
    return data.decode().replace("\r\n", "\n")


def read_toml_file(path: Path, root: tuple[str, ...] = ()) -> TomlFile | None:
    """Read a file; None if it has no table `root`. Raises `MisuseError` for unreadable files and credentials."""
    shown = show_path(path)
    try:
        text = read_text_file(path).removeprefix("\ufeff")
        table: object = tomllib.loads(text)
    except OSError as error:
        raise MisuseError(f"cannot read {shown}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise MisuseError(f"{shown} is not UTF-8 text; save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise MisuseError(_explain_syntax_error(shown, str(error))) from None
    for name in root:
        table = table.get(name) if isinstance(table, dict) else None
    if table is None:
        return None
    file = TomlFile(path, text, table if isinstance(table, dict) else {}, root)
    if not isinstance(table, dict):
        raise file.fail((), f"{'.'.join(root)} must be a table")
    for place, value in _walk_texts(table):
        name = next(str(step) for step in reversed(place) if isinstance(step, str))
        if problem := explain_credential(name, value):
            raise file.fail(place, problem)
    return file


def _explain_syntax_error(shown: str, message: str) -> str:
    place = re.search(r" \(at (?P<place>line \d+, column \d+|end of document)\)$", message)
    if place is None:
        return f"{shown}: {message}"
    return f"{shown}, {place['place']}: {message[: place.start()]}"


def _walk_texts(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk_texts(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _walk_texts(inner, (*path, index))


def find_key_lines(text: str) -> dict[KeyPath, int]:
    """Line of every table and key of a valid TOML text."""
    lines, lines_by_path = text.replace("\r\n", "\n").split("\n"), dict[KeyPath, int]()
    table: KeyPath = ()
    last_index: dict[KeyPath, int] = {}
    at = 0
    while at < len(lines):
        end, statement = _read_statement(lines, at)
        if lines[at].lstrip().startswith("["):
            table = _enter_table(statement, last_index)
            for length in range(1, len(table) + 1):
                lines_by_path.setdefault(table[:length], at + 1)
        else:
            for path in _walk_keys(statement, table):
                lines_by_path.setdefault(path, at + 1)
        at = end
    return lines_by_path


def _read_statement(lines: list[str], at: int) -> tuple[int, dict[str, object]]:
    """The statement that starts at a line, and the line after it; a value may span several lines."""
    for end in range(at + 1, len(lines) + 1):
        try:
            return end, tomllib.loads("\n".join(lines[at:end]))
        except tomllib.TOMLDecodeError:
            continue
    return len(lines), {}


def _enter_table(header: dict[str, object], last_index: dict[KeyPath, int]) -> KeyPath:
    """Path of the table that a header opens; in a list of tables, with the index."""
    path: KeyPath = ()
    inner: object = header
    while isinstance(inner, dict) and inner:
        ((name, inner),) = inner.items()
        path = (*path, name)
        if isinstance(inner, list):
            last_index[path] = last_index.get(path, -1) + 1
        if path in last_index:
            path = (*path, last_index[path])
    return path


def _walk_keys(value: object, path: KeyPath) -> Iterator[KeyPath]:
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, inner in items:
        yield (*path, name)
        yield from _walk_keys(inner, (*path, name))


def convert_table(file: TomlFile, kind: type[T]) -> T:
    """The table as a value; raises `MisuseError` for unknown names and wrong types."""
    _check_names(file, inspect.type_info(kind), file.table, ())
    try:
        return msgspec.convert(file.table, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        found = _MSGSPEC_PATH.search(message)
        path = _parse_path(found["path"]) if found else ()
        problem = message[: found.start()] if found else message
        if choices := _list_choices(inspect.type_info(kind), path):
            problem = f"{problem}; choose one of: {', '.join(choices)}"
        name = ".".join(str(step) for step in path if isinstance(step, str))
        raise file.fail(path, f"{name}: {lower_first(problem)}" if name else lower_first(problem)) from None
    except BridleError as error:
        raise file.fail(_guess_path(str(error), file.table), str(error)) from None


def read_policy_file(path: str | os.PathLike[str]) -> Policy:
    """Read a policy from a TOML file; raises `MisuseError` with the line and the nearest valid name."""
    file = read_toml_file(Path(path))
    assert file is not None  # without a root there is always a table
    return convert_table(file, Policy)


def _check_names(file: TomlFile, kind: inspect.Type, value: object, path: KeyPath) -> None:
    """Raise `MisuseError` for a name that the type does not have, in this table or one inside it."""
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            if not isinstance(each, inspect.UnionType):
                _check_names(file, each, value, path)
    elif isinstance(kind, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
        for index, item in enumerate(value):
            _check_names(file, kind.item_type, item, (*path, index))
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for name, inner in value.items():
            if name not in fields:
                raise file.fail((*path, name), explain_unknown_name(name, fields, path))
            _check_names(file, fields[name], inner, (*path, name))


def _list_choices(kind: inspect.Type, path: KeyPath) -> list[str]:
    """The values that a key with fixed values takes; empty for other keys."""
    if isinstance(kind, inspect.UnionType):
        return [choice for each in kind.types for choice in _list_choices(each, path)]
    if not path:
        return [str(value) for value in kind.values] if isinstance(kind, inspect.LiteralType) else []
    if isinstance(kind, inspect.StructType):
        return [
            choice
            for field in kind.fields
            if field.encode_name == path[0]
            for choice in _list_choices(field.type, path[1:])
        ]
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return _list_choices(kind.item_type, path[1:])
    return _list_choices(kind.value_type, path[1:]) if isinstance(kind, inspect.DictType) else []


def explain_unknown_name(name: str, known: Iterable[str], path: KeyPath = ()) -> str:
    """The message about an unknown key: the nearest known one, or all of them."""
    names = [*known]
    table = ".".join(str(step) for step in path if isinstance(step, str))
    where = f" in [{table}]" if table else ""
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of: {', '.join(names)}"
    return f"unknown key {name!r}{where}; {hint}"


def lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _parse_path(text: str) -> KeyPath:
    return tuple(int(step["index"]) if step["index"] else step["name"] for step in _PATH_STEP.finditer(text))


def _guess_path(message: str, table: Mapping[str, object]) -> KeyPath:
    """The key that a message is about: the first word of it that is a key of the table or of a table in it."""
    words = re.findall(r"\w+", message)
    for path in _walk_keys(dict(table), ()):
        if path[-1] in words:
            return path
    return ()
