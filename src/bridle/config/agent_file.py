"""Agents defined in a TOML file: `bridle run -a support.toml`, or `load_agent("support.toml")`.

    model = "anthropic:claude-sonnet-5-5"
    instructions_file = "support.md"
    tools = ["tools.py", "shop.orders:refund"]
    policy = "policy.toml"

    [budget]
    usd = 0.50

Relative paths start at the file's folder. The file names code to import, so it is trusted like a program; it is
only ever named by the caller, never taken from a session log.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from bridle.ports.clock import Clock
from bridle.ports.sandbox import Sandbox
from bridle.ports.tool import Tool
from bridle.ports.watcher import Watcher
from bridle.run.agent import Agent
from bridle.run.agent_settings import AgentOptions
from bridle.run.budget.sources import BudgetPool
from bridle.run.calls.approval import Approver
from bridle.run.calls.code_mode import CALLS_DEFAULT, SECONDS_DEFAULT, CodeMode
from bridle.run.context.resources import StoreLike
from bridle.run.hooks import Hook
from bridle.run.model_connection import ModelLike
from bridle.sandbox.local import find_sandbox
from bridle.toolkit.instruction_files import make_project_instructions
from bridle.toolkit.skill_tool import make_skill_tool
from bridle.tools.collect_tools import collect_tools
from bridle.tools.function.options import ToolOptions
from bridle.tools.hosted import declare_hosted_tool
from bridle.tools.mcp.config_file import load_servers, make_servers
from bridle.tools.mcp.server import McpServer
from bridle.tools.process.command_tool import CommandTool
from bridle.tools.process.run_process import PASSED_VARIABLES
from bridle.tools.schema.output_type import OutputType, make_output_type
from bridle.values.base import Value
from bridle.values.calls import Policy
from bridle.values.errors import BridleError, MisuseError
from bridle.values.memory import Memory
from bridle.values.request import TOOL_SECONDS_DEFAULT, OnUnknown, Sampling, Thinking, ToolEffect
from bridle.values.settings import CacheTtl, Compaction, PrefixRule
from bridle.values.usage import Budget

from .configuration import resolve_reference
from .toml_file import KeyPath, TomlFile, convert_table, read_policy_file, read_text_file, read_toml_file
from .tool_loader import load_reference, load_tools


class CommandEntry(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    """A tool made from a command line: `[[commands]]`."""

    name: str
    """Name of the tool."""
    description: str
    """Description of the tool for the model."""
    argv: tuple[str, ...]
    """The command; names in braces are replaced by arguments. There is no shell."""
    parameters: dict[str, object] | None = None
    """JSON Schema of the arguments; without one, every name in braces is a required text."""
    stdin: str = ""
    """Input of the program; may have names in braces."""
    cwd: str = ""
    """Working folder; the file's folder if empty."""
    env: dict[str, str] = {}  # noqa: RUF012 - a frozen value
    """Variables set for the program; credentials are refused here, name them in `pass_env`."""
    pass_env: tuple[str, ...] = ()
    """Names of variables that the program gets from the environment, besides PATH and the like."""
    exits: tuple[int, ...] = (0,)
    """Exit codes that mean success."""
    effect: ToolEffect | None = None
    """`read`, `write` or `exclusive`; the default is treated like `exclusive`."""
    resource: str = ""
    """Resource a call works on, such as `file:{path}`."""
    approve: bool = False
    """Ask a person before every call."""
    timeout: float | None = TOOL_SECONDS_DEFAULT
    """Seconds until the call is abandoned."""
    on_unknown: OnUnknown | None = None
    """Handling of a call that a crash interrupted: `retry`, `ask` or `report`."""


class CodeModeTable(Value, kw_only=True, forbid_unknown_fields=True):
    """Programs of the model that call tools: `[code_mode]`."""

    tools: tuple[str, ...] | None = None
    """Names of the tools that programs may call; by default all."""
    direct: bool = False
    """True if the model may also call these tools itself."""
    sandbox: bool = True
    """False runs programs with all your rights."""
    seconds: float = SECONDS_DEFAULT
    """Time of a program, without the time of its tool calls."""
    calls_max: int = CALLS_DEFAULT
    """Tool calls of one program."""


class AgentFile(Value, kw_only=True, gc=True, forbid_unknown_fields=True):
    """The keys of an agent file."""

    model: str | tuple[str, ...] = ()
    """A model string, or several in order of preference."""
    name: str = ""
    """Name of the agent in cost reports; the file's name without `.toml` if empty."""
    instructions: str = ""
    """System prompt."""
    instructions_file: str = ""
    """File with the system prompt, instead of `instructions`."""
    project_instructions: tuple[str, ...] = ()
    """Files that are added to the system prompt, such as `AGENTS.md`; read once per session."""
    skills: tuple[str, ...] = ()
    """Folders with skills that the model can read (`NAME/SKILL.md`)."""
    sandbox: bool | str = False
    """Run the programs of all tools in a sandbox; their workspace is the file's folder, or the named one."""
    tools: tuple[str, ...] = ()
    """Tools to import: `FILE.py`, `module`, or one of their names as `FILE.py:name` or `module:name`."""
    commands: tuple[CommandEntry, ...] = ()
    """Tools made from command lines."""
    hosted: tuple[str | dict[str, object], ...] = ()
    """Tools that the provider runs: `"web_search"`, or a table with its options and its name as `tool`."""
    mcp: str | dict[str, dict[str, object]] = ""
    """File with MCP servers (`mcpServers`), or the servers in this file: `[mcp.NAME]` with `command` or `url`."""
    code_mode: bool | CodeModeTable = False
    """Let the model write Python programs that call the tools; a table sets options."""
    policy: str | Policy | None = None
    """Policy file, or its rules in this file: `[[policy.rules]]`."""
    budget: Budget | None = None
    """Limits of a run; `[budget.session]`, `[budget.tenant]` and `[budget.caller]` limit all their runs together."""
    memory: bool | Memory = False
    """Show notes to the model, and let it write some; a table sets `refresh`, `tools` and `characters_max`."""
    output: str | dict[str, object] | None = None
    """Type of the answer: a JSON Schema in this file, a file with one (`answer.json`), or `module:Type`."""
    thinking: Thinking | None = None
    """Reasoning: `mode`, `effort`, `budget_tokens`."""
    sampling: Sampling | None = None
    """`temperature`, `top_p`, `top_k`, `stop_sequences`."""
    max_tokens: int | None = None
    """Maximum tokens of one reply."""
    repeats_max: int | None = None
    """Identical results of the same call after which the run ends."""
    attempts_max: int | None = None
    """Requests per reply to one model."""
    approval_seconds: float | None = None
    """Time until a pending approval expires."""
    result_characters: int | None = None
    """Longer tool results are shown as an excerpt."""
    context_tokens: int | None = None
    """Context window in tokens; overrides the model table."""
    cache_ttl: CacheTtl | None = None
    """Minimum cache lifetime, where a provider offers a choice."""
    prefix: PrefixRule | None = None
    """`strict` ends a run before it pays for a prompt whose cached prefix has changed."""
    compaction: Compaction | None = None
    """Size at which a conversation is compacted, its size afterwards, and the model that does it."""


PLAIN_OPTIONS = (
    "max_tokens", "repeats_max", "attempts_max", "approval_seconds", "result_characters", "context_tokens",
    "cache_ttl", "prefix", "compaction",
)  # fmt: skip
"""Keys that are agent options of the same name."""


@dataclass(frozen=True)
class AgentDefinition:
    """An agent file with everything that it names loaded and checked."""

    path: Path
    models: tuple[str, ...]
    instructions: str
    project_files: tuple[Path, ...]
    tools: tuple[Tool, ...]
    servers: tuple[McpServer, ...]
    policy: Policy | None
    limits: Mapping[str, object]
    """Fields of `Budget` that the file sets."""
    thinking: Thinking | None
    sampling: Sampling | None
    output: OutputType[object] | None
    code_mode: CodeMode | None
    options: AgentOptions
    sandbox: Sandbox | None


def read_agent_file(path: str | os.PathLike[str]) -> AgentDefinition:
    """Read an agent file and load what it names; raises `MisuseError` with the file and the line."""
    file = read_toml_file(Path(path))
    assert file is not None  # without a root there is always a table
    return read_agent_table(file)


def read_agent_table(file: TomlFile) -> AgentDefinition:
    """Load what a table of agent keys names; an agent without a name is called like the file."""
    read = convert_table(file, AgentFile)
    options = AgentOptions(name=read.name or file.path.stem)
    if read.memory:
        options["memory"] = read.memory if isinstance(read.memory, Memory) else Memory()
    for name in PLAIN_OPTIONS:
        if (value := getattr(read, name)) is not None:
            options[name] = value  # type: ignore[literal-required]
    budget = file.table.get("budget")
    return AgentDefinition(
        path=file.path,
        models=(read.model,) if isinstance(read.model, str) else read.model,
        instructions=_read_instructions(file, read),
        project_files=_check_project_files(file, read),
        tools=_load_all_tools(file, read),
        servers=_load_servers(file, read),
        policy=_read_policy(file, read),
        limits={name: getattr(read.budget, name) for name in budget} if isinstance(budget, dict) else {},
        thinking=read.thinking,
        sampling=read.sampling,
        output=_read_output(file, read),
        code_mode=_read_code_mode(file, read),
        options=options,
        sandbox=_find_sandbox(file, read),
    )


def load_agent(
    path: str | os.PathLike[str],
    *,
    model: ModelLike | Sequence[ModelLike] | None = None,
    store: StoreLike = None,
    approver: Approver | None = None,
    watchers: Sequence[Watcher] = (),
) -> Agent[object, object]:
    """The agent that a TOML file defines; `model` replaces the model of the file, such as in a test.

    The file is trusted like a program: it names code to import. Raises `MisuseError` with the file and the line.
    """
    definition = read_agent_file(path)
    models = definition.models if model is None else model
    if not models:
        raise MisuseError(
            f'{os.fspath(path)} names no model; add: model = "sim:", or pass load_agent(model=…)'
        )
    return build_agent(definition, models, store=store, approver=approver, watchers=watchers)


def build_agent(
    definition: AgentDefinition,
    models: ModelLike | Sequence[ModelLike],
    *,
    tools: Sequence[Tool] = (),
    store: StoreLike = None,
    approver: Approver | None = None,
    watchers: Sequence[Watcher] = (),
    hooks: Sequence[Hook[object]] = (),
    pool: BudgetPool = None,
    clock: Clock | None = None,
) -> Agent[object, object]:
    """The agent of a definition, with these models; `tools` are added to its own."""
    return Agent(
        models,
        tools=(*definition.tools, *tools, *definition.servers),
        instructions=_collect_instructions(definition),
        sandbox=definition.sandbox,
        policy=definition.policy,
        budget=Budget(**definition.limits),  # type: ignore[arg-type]
        thinking=definition.thinking,
        sampling=definition.sampling,
        output=definition.output,
        code_mode=definition.code_mode,
        store=store,
        approver=approver,
        watchers=watchers,
        hooks=hooks,
        pool=pool,
        clock=clock,
        **definition.options,
    )


def _collect_instructions(definition: AgentDefinition) -> list[str | Callable[[], str]] | None:
    parts: list[str | Callable[[], str]] = [definition.instructions] if definition.instructions else []
    if definition.project_files:
        parts.append(make_project_instructions(definition.project_files))
    return parts or None


def _check_project_files(file: TomlFile, read: AgentFile) -> tuple[Path, ...]:
    paths = tuple(file.resolve_path(name) for name in read.project_instructions)
    try:
        if paths:
            make_project_instructions(paths)
    except BridleError as error:
        raise file.fail(("project_instructions",), str(error)) from None
    return paths


def _find_sandbox(file: TomlFile, read: AgentFile) -> Sandbox | None:
    if not read.sandbox:
        return None
    try:
        return find_sandbox(file.folder if read.sandbox is True else file.resolve_path(read.sandbox))
    except BridleError as error:
        raise file.fail(("sandbox",), str(error)) from None


def _read_instructions(file: TomlFile, read: AgentFile) -> str:
    if not read.instructions_file:
        return read.instructions
    if read.instructions:
        raise file.fail(("instructions_file",), "give instructions or instructions_file, not both")
    return _read_text(file, ("instructions_file",), read.instructions_file)


def _read_text(file: TomlFile, path: KeyPath, name: str) -> str:
    try:
        return read_text_file(file.resolve_path(name))
    except OSError as error:
        raise file.fail(path, f"cannot read {name!r}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise file.fail(path, f"{name!r} is not UTF-8 text") from None


def _load_all_tools(file: TomlFile, read: AgentFile) -> tuple[Tool, ...]:
    found: list[Tool] = []
    for index, reference in enumerate(read.tools):
        try:
            found.extend(load_tools([resolve_reference(file, reference)], file.folder))
        except BridleError as error:
            raise file.fail(("tools", index), str(error)) from error
    for index, entry in enumerate(read.commands):
        try:
            found.append(_make_command_tool(file, entry))
        except BridleError as error:
            raise file.fail(("commands", index), str(error)) from error
    for index, given in enumerate(read.hosted):
        try:
            found.append(declare_hosted_tool(given, os.environ))
        except BridleError as error:
            raise file.fail(("hosted", index), str(error)) from error
    try:
        if read.skills:
            found.append(
                make_skill_tool([file.resolve_path(name) for name in read.skills], name_folders=False)
            )
    except BridleError as error:
        raise file.fail(("skills",), str(error)) from None
    try:
        return tuple(collect_tools(found).values())
    except BridleError as error:
        raise file.fail(("tools",), str(error)) from error


def _load_servers(file: TomlFile, read: AgentFile) -> tuple[McpServer, ...]:
    try:
        if isinstance(read.mcp, str):
            return tuple(load_servers(file.resolve_path(read.mcp))) if read.mcp else ()
        return tuple(make_servers(read.mcp, "[mcp]", file.folder, os.environ))
    except BridleError as error:
        raise file.fail(("mcp",), str(error)) from None


def _make_command_tool(file: TomlFile, entry: CommandEntry) -> CommandTool:
    options = ToolOptions(approve=entry.approve, timeout=entry.timeout)
    if entry.effect is not None:
        options["effect"] = entry.effect
    if entry.resource:
        options["resource"] = entry.resource
    if entry.on_unknown is not None:
        options["on_unknown"] = entry.on_unknown
    return CommandTool(
        entry.name,
        entry.description,
        entry.argv,
        parameters=entry.parameters,
        stdin=entry.stdin,
        cwd=file.resolve_path(entry.cwd),
        env=entry.env,
        pass_env=(*PASSED_VARIABLES, *entry.pass_env),
        exits=entry.exits,
        **options,
    )


def _read_code_mode(file: TomlFile, read: AgentFile) -> CodeMode | None:
    if not read.code_mode:
        return None
    given = read.code_mode if isinstance(read.code_mode, CodeModeTable) else CodeModeTable()
    try:
        return CodeMode(**{**asdict(given), "sandbox": "auto" if given.sandbox else None})
    except BridleError as error:
        raise file.fail(("code_mode",), str(error)) from None


def _read_policy(file: TomlFile, read: AgentFile) -> Policy | None:
    if not isinstance(read.policy, str):
        return read.policy
    try:
        return read_policy_file(file.resolve_path(read.policy))
    except BridleError as error:
        raise file.fail(("policy",), str(error)) from None


def _read_output(file: TomlFile, read: AgentFile) -> OutputType[object] | None:
    if read.output is None:
        return None
    try:
        wanted: object = read.output
        if isinstance(read.output, str):
            is_schema = read.output.endswith(".json")
            reference = resolve_reference(file, read.output)
            wanted = _read_schema(file, read.output) if is_schema else load_reference(reference, file.folder)
        return make_output_type(wanted)
    except BridleError as error:
        raise file.fail(("output",), str(error)) from None


def _read_schema(file: TomlFile, name: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(_read_text(file, ("output",), name), type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MisuseError(f"{name!r} is not a JSON Schema: {error}") from None
