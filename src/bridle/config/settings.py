"""The table of the command's settings: the only place that names them, their variables and their flags.

docs/configuration.md and `bridle config` are made from it. A new setting is a row here; a command that takes
its flag gets the value as if the flag had been typed, except for rows with `only_for`.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, get_type_hints

from bridle.values.base import Value
from bridle.values.usage import LIMIT_KINDS, STEPS_DEFAULT, Limits

SettingKind = Literal[
    "text", "path", "store", "texts", "paths", "references", "count", "amount", "share", "switch"
]
SettingValue = str | int | float | bool | tuple[str, ...]
KIND_MEANINGS: Mapping[SettingKind, str] = {
    "text": "a text",
    "path": "the path of a file",
    "store": "the path of a file, or a URL",
    "texts": "a list of texts",
    "paths": "a list of paths",
    "references": "a list of files and modules",
    "count": "a whole number, 0 or more",
    "amount": "a number, 0 or more",
    "share": "a number above 0 and up to 1",
    "switch": "true or false",
}
_SWITCHES = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
_EXAMPLES: Mapping[SettingKind, str] = {
    "text": '"…"',
    "path": '"file.toml"',
    "store": '"log.db"',
    "texts": '["…"]',
    "paths": '["path"]',
    "references": '["tools.py"]',
    "count": "20",
    "amount": "0.5",
    "share": "0.8",
    "switch": "true",
}


class Setting(Value, kw_only=True):
    """One row: a setting of the command."""

    name: str
    """Key in the file; `budget.usd` is the key `usd` of the table `budget`."""
    kind: SettingKind
    meaning: str
    variable: str = ""
    """Environment variable; empty if there is none."""
    flag: str = ""
    """Option of `bridle run` and of every command that has it; empty if there is none."""
    default: str = ""
    """The default, in words."""
    only_for: Literal["", "new runs", "new sessions"] = ""
    """Restricts the setting: a session keeps its model and instructions, and a resumed run its limits."""

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))

    @property
    def example(self) -> str:
        return f"{self.key[-1]} = {_EXAMPLES[self.kind]}"


def _make_budget_rows() -> tuple[Setting, ...]:
    types = get_type_hints(Limits)
    return tuple(
        Setting(
            name=f"budget.{kind}",
            kind="count" if types[kind] == int | None else "amount",
            meaning=f"limit of one run in {'US dollars' if types[kind] == Decimal | None else kind.replace('_', ' ')}",
            variable=f"BRIDLE_BUDGET_{kind.upper()}",
            flag=f"--{kind.replace('_', '-')}",
            default=str(STEPS_DEFAULT) if kind == "steps" else "no limit",
            only_for="new runs",
        )
        for kind in LIMIT_KINDS
    )


SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="model",
        kind="text",
        meaning="model string of new sessions",
        variable="BRIDLE_MODEL",
        flag="--model",
        default="a vendor whose API key is set, else the simulator",
        only_for="new sessions",
    ),
    Setting(
        name="fallback",
        kind="texts",
        meaning="models to try next, in order",
        variable="BRIDLE_FALLBACK",
        flag="--fallback",
        default="none",
        only_for="new sessions",
    ),
    Setting(
        name="agent",
        kind="path",
        meaning="agent file that `bridle run` uses",
        variable="BRIDLE_AGENT",
        flag="--agent",
        default="none",
    ),
    Setting(
        name="instructions",
        kind="text",
        meaning="system prompt of new sessions",
        flag="--instructions",
        default="none",
        only_for="new sessions",
    ),
    Setting(
        name="project_instructions",
        kind="paths",
        meaning="files that are added to the system prompt of new sessions, such as AGENTS.md",
        flag="--project-instructions",
        default="none",
        only_for="new sessions",
    ),
    Setting(
        name="skills",
        kind="paths",
        meaning="folders with skills that the model can read",
        variable="BRIDLE_SKILLS",
        flag="--skills",
        default="none",
    ),
    Setting(
        name="tools",
        kind="references",
        meaning="files and modules with tools",
        variable="BRIDLE_TOOLS",
        flag="--tools",
        default="none",
    ),
    Setting(
        name="policy",
        kind="path",
        meaning="rules that allow, ask about or deny tool calls",
        variable="BRIDLE_POLICY",
        flag="--policy",
        default="none",
    ),
    Setting(
        name="memory",
        kind="switch",
        meaning="show notes to the model, and let it write some",
        variable="BRIDLE_MEMORY",
        flag="--memory",
        default="false",
        only_for="new sessions",
    ),
    Setting(
        name="store",
        kind="store",
        meaning="the log",
        variable="BRIDLE_STORE",
        flag="--store",
        default="bridle/log.db in your data folder",
    ),
    Setting(
        name="models",
        kind="path",
        meaning="your own endpoints and models, in TOML",
        variable="BRIDLE_MODELS",
        default="none",
    ),
    Setting(
        name="stream",
        kind="switch",
        meaning="show the answer while it is written",
        variable="BRIDLE_STREAM",
        flag="--no-stream",
        default="true",
    ),
    Setting(
        name="reasoning",
        kind="switch",
        meaning="show the model's reasoning",
        variable="BRIDLE_REASONING",
        flag="--reasoning",
        default="false",
    ),
    *_make_budget_rows(),
    Setting(
        name="budget.wrap_up",
        kind="share",
        meaning="share of any limit at which the model is asked to finish",
        variable="BRIDLE_BUDGET_WRAP_UP",
        flag="--wrap-up",
        default="never",
        only_for="new runs",
    ),
)
SETTINGS_BY_NAME = {setting.name: setting for setting in SETTINGS}


def explain_bad_value(setting: Setting, value: object) -> str:
    """Explain why a value does not fit its setting; empty if it does."""
    if _fits(setting.kind, value):
        return ""
    wanted = f"{setting.name} must be {KIND_MEANINGS[setting.kind]}, not {value!r}"
    return f"{wanted}; write for example: {setting.example}"


def _fits(kind: SettingKind, value: object) -> bool:
    match kind:
        case "switch":
            return isinstance(value, bool)
        case "count":
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case "amount" | "share":
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                return False
            return 0 < value <= 1 if kind == "share" else value >= 0
        case "texts" | "paths" | "references":
            return isinstance(value, list) and all(isinstance(item, str) and item.strip() for item in value)
        case _:
            return isinstance(value, str) and bool(value.strip())


def parse_variable(setting: Setting, text: str) -> object:
    """The value of an environment variable; the text itself if it cannot be read as the setting's kind."""
    match setting.kind:
        case "switch":
            return _SWITCHES.get(text.strip().lower(), text)
        case "texts" | "paths" | "references":
            return [item.strip() for item in text.split(",") if item.strip()]
        case "count" | "amount" | "share":
            try:
                return int(text) if setting.kind == "count" else float(text)
            except ValueError:
                return text
        case _:
            return text
