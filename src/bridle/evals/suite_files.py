"""Reads a suite: a folder with `suite.toml`, `eval_*.toml` and `eval_*.py`, or one such file.

Mistakes are refused before anything runs, with the file and the line. Files of a suite are trusted like programs:
they name code to import.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import jsonschema_rs
import msgspec

from bridle import __version__
from bridle.config.agent_file import read_agent_table
from bridle.config.configuration import resolve_reference
from bridle.config.toml_file import TomlFile, convert_table, read_toml_file, show_path
from bridle.config.tool_loader import load_module, load_reference, load_tools, share_loaded_files
from bridle.values.errors import BridleError, MisuseError
from bridle.values.media import read_at_most
from bridle.values.schema_limits import CHARACTERS_MAX, check_schema_limits

from .task import SuiteFile, Task, as_texts, describe_task

SUITE_FILE, TASK_PREFIX = "suite.toml", "eval_"
MERGED_KEYS = ("expect", "settings", "files")
"""Tables of a task that are merged with those of `[defaults]`."""
DIGESTED_SUFFIXES = {".toml", ".py", ".md", ".json", ".txt", ".csv"}


@dataclass(frozen=True)
class LoadedTask:
    """A task with the place it was read from."""

    task: Task
    file: TomlFile
    """Its table; for a task of a Python module, an empty table at the module's path."""
    name: str

    @property
    def folder(self) -> Path:
        return self.file.folder

    def fail(self, key: str, problem: str) -> MisuseError:
        return self.file.fail((key,), f"{self.name}: {problem}")

    def load_function(self, key: str, reference: str) -> object:
        """The object that a reference of the task names; raises `MisuseError` with the file and the line."""
        try:
            found = load_reference(resolve_reference(self.file, reference), self.folder)
        except BridleError as error:
            raise self.fail(key, str(error)) from None
        if not callable(found):
            raise self.fail(key, f"{reference} is not a function but {type(found).__name__}")
        return found

    def list_files(self) -> Iterator[Path]:
        """Files that the task names, apart from its agent: code, schema, fixtures."""
        task, schema = self.task, self.task.expect.schema
        named = [*task.tools, task.world, task.drive, task.responder, *as_texts(task.expect.check)]
        paths = [resolve_reference(self.file, each).partition(":")[0] for each in named]
        yield from (Path(each) for each in paths if each.endswith(".py"))
        if isinstance(schema, str):
            yield self.file.resolve_path(schema)
        if task.fixtures:
            yield from self.file.resolve_path(task.fixtures).rglob("*")

    @property
    def has_function_agent(self) -> bool:
        return isinstance(self.task.agent, str) and ":" in self.task.agent

    def read_agent_table(self, changes: Mapping[str, object]) -> TomlFile:
        """The table of the agent with the settings of the task and these changes."""
        agent = self.task.agent
        if isinstance(agent, str) and agent:
            read = read_toml_file(self.file.resolve_path(agent))
            assert read is not None  # without a root there is always a table
            found = read
        else:
            found = replace(self.file, table=agent or {}, root=(*self.file.root, "agent"))
        table = dict(found.table)
        for key, value in (*self.task.settings.items(), *changes.items()):
            table = set_key(table, key.split("."), value)
        return replace(found, table=table)


@dataclass(frozen=True)
class Suite:
    """Tasks that are run together."""

    path: Path
    name: str
    tasks: tuple[LoadedTask, ...]
    settings: SuiteFile = field(default_factory=SuiteFile)

    def digest(self, cells: Iterable[Mapping[str, str]], versions: Sequence[str] = ()) -> str:
        """Digest of everything that decides what a trial does: files, agents, matrix and versions."""
        cell_keys = sorted(map(sorted, (cell.items() for cell in cells)))
        total = sha256(f"{__version__} {cell_keys}{''.join(versions)}".encode())
        for loaded in self.tasks:
            total.update(describe_task(loaded.task))
        for path in sorted(self._list_files()):
            total.update(f"\0{os.path.relpath(path, self.folder)}\0".encode() + path.read_bytes())
        return total.hexdigest()[:16]

    @property
    def folder(self) -> Path:
        return (self.path if self.path.is_dir() else self.path.parent).resolve()

    def _list_files(self) -> set[Path]:
        agents = (each.task.agent for each in self.tasks)
        named = {
            each.file.resolve_path(agent.partition(":")[0]).resolve()
            for each, agent in zip(self.tasks, agents, strict=True)
            if isinstance(agent, str) and agent
        }
        own = {each.resolve() for each in self.folder.iterdir() if each.suffix in DIGESTED_SUFFIXES}
        own |= {path.resolve() for each in self.tasks for path in each.list_files()}
        beside = {each for agent in named for each in agent.parent.iterdir() if each.suffix in (".py", ".md")}
        return {each for each in own | named | beside if each.is_file()}


def set_key(table: Mapping[str, object], steps: list[str], value: object) -> dict[str, object]:
    """The table with one key replaced, which may be inside of tables in it."""
    first, *rest = steps
    inner = table.get(first)
    if rest:
        value = set_key(inner if isinstance(inner, dict) else {}, rest, value)
    return {**table, first: value}


def load_suite(path: str | os.PathLike[str]) -> Suite:
    """Read a suite and check everything that it names; raises `MisuseError` with the file and the line."""
    place = Path(path)
    if not place.exists():
        raise MisuseError(
            f"there is no suite {show_path(place)}; write one with: bridle eval new {show_path(place)}"
        )
    folder = place if place.is_dir() else place.parent
    own = folder / SUITE_FILE if place.is_dir() else place
    settings = SuiteFile()
    tasks: list[LoadedTask] = []
    if own.is_file() and own.name == SUITE_FILE:
        file = _read_file(own)
        settings = convert_table(file, SuiteFile)
        for key in MERGED_KEYS:
            if not isinstance(settings.defaults.get(key, {}), dict):
                raise file.fail(("defaults", key), f"defaults.{key} must be a table")
        tasks += _read_listed(file, settings)
    names = sorted(folder.glob(f"{TASK_PREFIX}*")) if place.is_dir() or own.name == SUITE_FILE else [place]
    for each in names:
        if each.suffix == ".toml":
            tasks += _read_task_file(_read_file(each), settings)
        elif each.suffix == ".py":
            tasks += _read_task_module(each, settings)
    if not tasks:
        raise MisuseError(
            f"{show_path(place)} has no tasks; add a file {TASK_PREFIX}NAME.toml, or [[tasks]] to {SUITE_FILE}"
        )
    _check_names(tasks)
    with share_loaded_files():
        for loaded in tasks:
            check_task(loaded, settings)
    name = settings.name or (
        folder.resolve().name if own.name == SUITE_FILE or place.is_dir() else place.stem
    )
    return Suite(place, name, tuple(tasks), settings)


def _read_file(path: Path) -> TomlFile:
    file = read_toml_file(path)
    assert file is not None  # without a root there is always a table
    return file


def _read_listed(file: TomlFile, settings: SuiteFile) -> Iterator[LoadedTask]:
    for index, table in enumerate(settings.tasks):
        inner = replace(file, table=table, root=("tasks", index))
        yield _make_task(inner, settings, f"{index + 1}")


def _read_task_file(file: TomlFile, settings: SuiteFile) -> Iterator[LoadedTask]:
    stem = file.path.stem.removeprefix(TASK_PREFIX)
    listed = file.table.get("tasks")
    if listed is None:
        yield _make_task(file, settings, stem)
        return
    if not isinstance(listed, list) or set(file.table) != {"tasks"}:
        raise file.fail(("tasks",), "a file has one task, or [[tasks]] and nothing else")
    for index, table in enumerate(listed):
        if not isinstance(table, dict):
            raise file.fail(("tasks",), f"each of the tasks must be a table, not {table!r}")
        yield _make_task(replace(file, table=table, root=("tasks", index)), settings, f"{stem}-{index + 1}")


def _make_task(file: TomlFile, settings: SuiteFile, default_name: str) -> LoadedTask:
    defaults = settings.defaults
    merged = {**defaults, **file.table}
    for key in MERGED_KEYS:
        ours, given = defaults.get(key), file.table.get(key)
        if isinstance(ours, dict) and isinstance(given, dict):
            merged[key] = {**ours, **given}
    task = convert_table(replace(file, table=merged), Task)
    return LoadedTask(task, file, task.name or default_name)


def _read_task_module(path: Path, settings: SuiteFile) -> Iterator[LoadedTask]:
    module = load_module(str(path))
    listed: object = vars(module).get("TASKS")
    if not isinstance(listed, list | tuple) or not all(isinstance(each, Task) for each in listed):
        raise MisuseError(f"{show_path(path)} needs a list of tasks: TASKS = [Task(…)]")
    stem = path.stem.removeprefix(TASK_PREFIX)
    for index, task in enumerate(listed):
        given = msgspec.json.decode(msgspec.json.encode(task), type=dict[str, object])
        yield _make_task(TomlFile(path, "", given), settings, f"{stem}-{index + 1}")


def _check_names(tasks: Iterable[LoadedTask]) -> None:
    seen: dict[str, LoadedTask] = {}
    for loaded in tasks:
        if loaded.name in seen:
            other = seen[loaded.name].file.locate(("name",))
            raise loaded.fail("name", f"this name is taken by a task of {other}; give it another")
        seen[loaded.name] = loaded


def check_task(loaded: LoadedTask, settings: SuiteFile) -> None:
    """Check everything that a task names: agent, tools, functions, fixtures, schema."""
    task, file = loaded.task, loaded.file
    for key, reference in (("world", task.world), ("drive", task.drive), ("responder", task.responder)):
        if reference:
            loaded.load_function(key, reference)
    for reference in as_texts(task.expect.check):
        loaded.load_function("expect", reference)
    if loaded.has_function_agent:
        loaded.load_function("agent", str(task.agent))
    else:
        read_agent_table(loaded.read_agent_table({}))
    try:
        load_tools([resolve_reference(file, each) for each in task.tools], loaded.folder)
    except BridleError as error:
        raise loaded.fail("tools", str(error)) from None
    if task.fixtures and not file.resolve_path(task.fixtures).is_dir():
        raise loaded.fail("fixtures", f"there is no folder {task.fixtures!r}")
    for name in (*task.files, *task.expect.files):
        if Path(name).is_absolute() or ".." in Path(name).parts or not Path(name).parts:
            raise loaded.fail("files", f"{name!r} must be a path inside of the work folder")
    read_schema(loaded)
    judge, default = task.expect.judge, settings.judge
    if judge is not None and not (judge.rubric or default.rubric):
        raise loaded.fail("expect", 'the judge has no criteria; add rubric = "…" to [expect.judge]')
    if judge is not None and not (judge.model or default.model):
        raise loaded.fail("expect", 'the judge has no model; add [judge] with model = "…" to suite.toml')


def read_schema(loaded: LoadedTask) -> dict[str, object] | None:
    """The JSON Schema that the answer has to fit."""
    given = loaded.task.expect.schema
    try:
        if isinstance(given, str):
            given = msgspec.json.decode(
                read_at_most(loaded.file.resolve_path(given), CHARACTERS_MAX), type=dict[str, object]
            )
        if given is not None:
            check_schema_limits(given)
            jsonschema_rs.validator_for(given)
    except (OSError, MisuseError, msgspec.MsgspecError, ValueError, jsonschema_rs.ReferencingError) as error:
        raise loaded.fail("expect", f"schema: {str(error).splitlines()[0]}") from None
    return given
