"""Tables of the reference pages, made from signatures, argument parsers and the sentences in meanings.toml."""

import argparse
import ast
import inspect
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import get_args

import msgspec

import bridle
from bridle.cli.chat.slash_commands import CHAT_COMMANDS
from bridle.cli.command_table import describe_command, list_command_names
from bridle.cli.help_texts import load_help
from bridle.cli.main import make_parser
from bridle.config import agent_file
from bridle.config.settings import KIND_MEANINGS, SETTINGS
from bridle.core.loop import TRANSITIONS
from bridle.core.state import Phase
from bridle.evals import task
from bridle.providers.tables import load_tables
from bridle.run import agent as agent_module
from bridle.run import agent_settings
from bridle.run.agent import Agent
from bridle.run.agent_settings import AgentOptions
from bridle.run.context import run_options
from bridle.run.memory import retrieval
from bridle.transports import deadlines
from bridle.values import memory, request, settings, usage
from bridle.values.events import Event
from bridle.values.settings import Settings

SOURCE = Path(bridle.__file__).parent
MEANINGS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    (Path(__file__).parent / "meanings.toml").read_text(encoding="utf-8")
)
METHODS = ("run", "stream", "resume")
VALUE_TYPES = {
    "Budget": usage,
    "Limits": usage,
    "Compaction": settings,
    "Memory": memory,
    "Retrieval": retrieval,
    "Sampling": request,
    "Thinking": request,
    "Deadlines": deadlines,
}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def meanings_for(section: str, names: Sequence[str]) -> Mapping[str, str]:
    """The sentences of one section, which must be about exactly these names."""
    found = MEANINGS[section]
    if {*found} != {*names}:
        missing, unknown = sorted({*names} - {*found}), sorted({*found} - {*names})
        raise SystemExit(f"docs/meanings.toml [{section}]: missing {missing}, unknown {unknown}")
    return found


def agent_parameters() -> str:
    """Every parameter of `Agent`, the options in `AgentOptions` included."""
    types = _parameter_types(agent_module, "Agent", "__init__") | _field_types(agent_settings, "AgentOptions")
    signature = inspect.signature(Agent.__init__).parameters
    own = [name for name in signature if name not in ("self", "options")]
    options = [*AgentOptions.__annotations__]
    meanings = meanings_for("agent", [*own, *options])
    default = {name: signature[name].default for name in own} | {
        name: getattr(Settings(), name) for name in options
    }
    return table(
        ["parameter", "type", "default", "meaning"],
        [[f"`{name}`", _code(types[name]), _default(default[name]), meanings[name]] for name in meanings],
    )


def run_parameters() -> str:
    """Every parameter of the methods that start or continue a run."""
    methods = {method: inspect.signature(getattr(Agent, method)).parameters for method in METHODS}
    takers: dict[str, list[str]] = {}
    for method, parameters in methods.items():
        for name in parameters:
            if name not in ("self", "options"):
                takers.setdefault(name, []).append(method)
    options = _field_types(run_options, "RunSettings") | _field_types(run_options, "RunOptions")
    meanings = meanings_for("run", [*takers, *options])
    rows = []
    for name, used_by in takers.items():
        types = _parameter_types(agent_module, "Agent", used_by[0])
        default = methods[used_by[0]][name].default
        rows.append([f"`{name}`", _code(types[name]), _default(default), _names(used_by), meanings[name]])
    takes_options = [method for method, parameters in methods.items() if "options" in parameters]
    for name, kind in options.items():
        rows.append([f"`{name}`", _code(kind), "the agent's", _names(takes_options), meanings[name]])
    return table(["parameter", "type", "default", "methods", "meaning"], rows)


def value_types() -> str:
    """Every field of the values that parameters take."""
    parts = []
    for name, module in VALUE_TYPES.items():
        made = getattr(module, name)
        parameters = inspect.signature(made).parameters
        types = _field_types(module, name)
        for base in made.__mro__[1:-1]:
            types = _field_types(module, base.__name__) | types
        meanings = meanings_for(name, [*parameters])
        rows = [
            [f"`{field}`", _code(types[field]), _default(parameters[field].default), meanings[field]]
            for field in parameters
        ]
        parts.append(f"### {name}\n\n{table(['field', 'type', 'default', 'meaning'], rows)}")
    return "\n".join(parts)


def events() -> str:
    """Every event, its meaning and when it may occur."""
    kinds = get_args(Event)
    meanings = meanings_for("events", [kind.__name__ for kind in kinds])
    phases = {kind: [str(phase) for phase, of in TRANSITIONS if of is kind] for kind in kinds}
    rows = [
        [
            f"`{kind.__name__}`",
            meanings[kind.__name__],
            _names(kind.__struct_fields__),
            "any phase"
            if len(phases[kind]) == len(Phase)
            else ", ".join(phases[kind]) or "(log of a shared budget)",
        ]
        for kind in kinds
    ]
    return table(["event", "meaning", "fields", "phases"], rows)


def phases() -> str:
    meanings = meanings_for("phases", [str(phase) for phase in Phase])
    return table(["phase", "meaning"], [[str(phase), meanings[str(phase)]] for phase in Phase])


def commands() -> str:
    """Every command with its arguments and options."""
    parts = []
    for name in list_command_names():
        parser = make_parser(name)
        rows = [_argument_row(action) for action in _arguments(parser)]
        parts.append(
            f"## bridle {name}\n\n{_as_markdown(parser.description or describe_command(name))}\n\n"
            f"```\n{_list_examples(name)}\n```\n\n"
            f"{table(['argument', 'meaning'], rows)}"
        )
    return "\n".join(parts)


def _list_examples(command: str) -> str:
    rows = load_help().examples[command]
    width = max(len(line) for line, _ in rows)
    return "\n".join(f"{line:<{width}}  # {what}" for line, what in rows)


def exit_codes() -> str:
    """Meaning of each exit code, in general and where a command uses it in a sense of its own."""
    shared, own = load_help().exit_codes, load_help().exit_codes_of
    rows = []
    for code, meaning in shared.items():
        having: dict[str, list[str]] = {}
        for name, codes in own.items():
            if code in codes:
                having.setdefault(codes[code], []).append(f"`{name}`")
        rows.append([code, "all others" if having else "all", meaning])
        rows += [[code, ", ".join(names), what] for what, names in having.items()]
    return table(["code", "commands", "meaning"], rows)


def chat_commands() -> str:
    """The /commands of `bridle chat`."""
    rows = [[f"`{f'/{row.name} {row.arguments}'.strip()}`", row.meaning] for row in CHAT_COMMANDS]
    return table(["command", "meaning"], rows)


def variables() -> str:
    settings = [(each.variable, each.meaning) for each in SETTINGS if each.variable]
    names = {
        *re.findall(r'"(BRIDLE_[A-Z_]+)"', _all_source()),
        *re.findall(r'environ\.get\("([A-Z_]+)"\)', _all_source()),
    }
    others = meanings_for("environment", sorted(names - {variable for variable, _ in settings}))
    rows = [*settings, *others.items()]
    return table(["variable", "meaning"], [[f"`{name}`", meaning] for name, meaning in rows])


def configured() -> str:
    """Every setting of bridle.toml with its variable, flag and default."""
    rows = [
        [
            f"`{each.name}`",
            KIND_MEANINGS[each.kind],
            each.default,
            f"`{each.variable}`" if each.variable else "none",
            f"`{each.flag}`" if each.flag else "none",
            each.meaning + (f" ({each.only_for} only)" if each.only_for else ""),
        ]
        for each in SETTINGS
    ]
    return table(["setting", "type", "default", "variable", "option", "meaning"], rows)


def agent_file_keys() -> str:
    """Every key of an agent file, and of its `[[commands]]`."""
    return _key_tables(
        agent_file, {"Keys": agent_file.AgentFile, "Keys of `[[commands]]`": agent_file.CommandEntry}
    )


def task_file_keys() -> str:
    """Every key of a task file and of suite.toml."""
    titles = {
        "Keys of a task": task.Task,
        "Keys of `[expect]`": task.Expect,
        "Keys of `[[expect.calls]]`": task.ExpectedCall,
        "Keys of `[expect.files.NAME]`": task.ExpectedFile,
        "Keys of `[expect.judge]`": task.JudgeRubric,
        "Keys of `[tool_faults.NAME]`": task.ToolFault,
        "Keys of `suite.toml`": task.SuiteFile,
    }
    return _key_tables(task, titles)


def _key_tables(module: ModuleType, kinds: Mapping[str, type[msgspec.Struct]]) -> str:
    parts = []
    for title, kind in kinds.items():
        types, meanings = _field_types(module, kind.__name__), _field_docstrings(kind)
        rows = [
            [f"`{name}`", _code(types[name]), _escaped(meanings[name])] for name in kind.__struct_fields__
        ]
        parts.append(f"### {title}\n\n{table(['key', 'type', 'meaning'], rows)}")
    return "\n".join(parts)


def _field_docstrings(kind: type) -> dict[str, str]:
    """The text below each field of a class; the name of the field if there is none."""
    body = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = after.value if isinstance(after, ast.Expr) else None
            words = text.value if isinstance(text, ast.Constant) else field.target.id
            found[field.target.id] = " ".join(str(words).split())
    return found


def vendor_variables() -> str:
    rows = [
        [f"`{name}:`", _names(row.key_env), _names(row.base_url_env)]
        for name, row in load_tables().endpoints.items()
        if not row.simulated
    ]
    return table(["vendor", "API key", "base URL"], rows)


def _all_source() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))


def _arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]


def _argument_row(action: argparse.Action) -> list[str]:
    metavar = action.metavar if isinstance(action.metavar, str) else None
    if action.choices and metavar is None:
        metavar = "{" + ",".join(map(str, action.choices)) + "}"
    value = metavar or action.dest.upper()
    if not action.option_strings:
        shown = f"[{metavar or action.dest}]" if action.nargs in ("?", "*") else metavar or action.dest
    elif action.nargs == 0:
        shown = ", ".join(action.option_strings)
    else:
        shown = ", ".join(f"{option} {value}" for option in action.option_strings)
    meaning = (action.help or "") % {"default": action.default, "prog": ""}
    return [f"`{shown}`".replace("|", "\\|"), _escaped(meaning)]


def _as_markdown(description: str) -> str:
    """Indented blocks as code; paragraphs on one line each."""
    blocks = description.strip("\n").split("\n\n")
    return "\n\n".join(
        f"```\n{inspect.cleandoc(block)}\n```" if block.startswith(" ") else " ".join(block.split())
        for block in blocks
    )


def _class_node(module: object, name: str) -> ast.ClassDef | None:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _parameter_types(module: object, class_name: str, method: str) -> dict[str, str]:
    """Types as the source spells them: aliases are shorter than what they stand for."""
    node = _class_node(module, class_name)
    assert node is not None
    *_, function = [
        item
        for item in node.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == method
    ]
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return {item.arg: ast.unparse(item.annotation) for item in arguments if item.annotation}


def _field_types(module: object, class_name: str) -> dict[str, str]:
    node = _class_node(module, class_name)
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)] if node else []
    return {ast.unparse(item.target): ast.unparse(item.annotation) for item in fields}


def _default(value: object) -> str:
    if value is inspect.Parameter.empty:
        return "required"
    if callable(value) and hasattr(value, "__name__"):
        return f"`{value.__name__}`"
    if hasattr(value, "__struct_fields__"):
        return f"`{type(value).__name__}()`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{value!r}`"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|").replace("'", '"')


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
