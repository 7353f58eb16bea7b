"""Show the settings in force, and where each value comes from.

Settings come from bridle.toml, then pyproject.toml ([tool.bridle]), then the environment, then options; later
ones win. The nearest folder with settings counts, from the working folder up to the root of the repository, or
to the home folder.
"""

import argparse

from bridle.cli.configured_options import add_config_options
from bridle.cli.format.columns import (
    apply_style,
    display_width,
    is_color_output,
    pad_text,
    screen_width,
    wrap_text,
)
from bridle.cli.format.printing import print_json, print_line
from bridle.config.configuration import Configuration, SettingInForce
from bridle.config.settings import SETTINGS_BY_NAME, SettingValue
from bridle.config.toml_file import explain_unknown_name
from bridle.stores import name_store
from bridle.values.errors import MisuseError

VALUE_WIDTH_MIN = 20
VALUE_LINES_MAX = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("setting", nargs="?", help="only this setting, such as budget.usd")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_config_options(parser)


def execute(options: argparse.Namespace) -> int:
    configuration: Configuration = options.configuration
    shown = configuration.settings
    if options.setting:
        if options.setting not in SETTINGS_BY_NAME:
            raise MisuseError(explain_unknown_name(options.setting, SETTINGS_BY_NAME))
        shown = tuple(each for each in shown if each.setting.name == options.setting)
    if options.json:
        print_json({"files": configuration.files, "settings": [_make_row(each) for each in shown]})
        return 0
    for line in _format_settings(shown):
        print_line(line, styles=True)
    if not options.setting:
        files = ", ".join(configuration.files)
        print_line(
            f"\nread: {files}" if files else "\nno settings file found; `bridle init` writes one", prose=True
        )
    return 0


def _make_row(each: SettingInForce) -> dict[str, object]:
    return {
        "name": each.setting.name,
        "value": name_store(each.value) if isinstance(each.value, str) else each.value,
        "default": each.setting.default,
        "source": each.source.kind,
        "where": each.source.label if each.source.kind != "default" else "",
        "overridden": [source.label for source in each.overridden],
    }


def format_value(value: SettingValue | None) -> str:
    """A value as text: lists separated by commas, switches as in TOML, URLs without passwords."""
    if isinstance(value, str):
        return name_store(value)
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _format_settings(shown: tuple[SettingInForce, ...]) -> list[str]:
    """Name, value and source in columns; long values are wrapped, defaults are dim."""
    colour, lines = is_color_output(), []
    names = max(len(each.setting.name) for each in shown)
    sources = max(display_width(_format_source(each)) for each in shown)
    texts = [each.setting.default if each.value is None else format_value(each.value) for each in shown]
    room = max(VALUE_WIDTH_MIN, screen_width() - names - sources - 4)
    room = min(room, max(map(display_width, texts)))
    for each, text in zip(shown, texts, strict=True):
        is_set = each.value is not None
        first, *rest = wrap_text(text, room, VALUE_LINES_MAX)
        name = apply_style(pad_text(each.setting.name, names), "cyan" if is_set else "dim", colour)
        value = apply_style(pad_text(first, room), "bold" if is_set else "dim", colour)
        lines.append(f"{name}  {value}  {apply_style(_format_source(each), 'dim', colour)}")
        lines.extend(f"{'':<{names}}  {line}" for line in rest)
    return lines


def _format_source(each: SettingInForce) -> str:
    over = ", ".join(source.label for source in each.overridden)
    return f"{each.source.label} (over {over})" if over else each.source.label
