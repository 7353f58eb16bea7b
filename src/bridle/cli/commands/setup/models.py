"""List the models that Bridle knows: context window, prices and abilities.

Prices are US dollars per million tokens for short prompts at usual hours. A model that is not listed can be used
too; its price is then unknown. Each model is listed at the first endpoint that serves it, unless --all is given.
"""

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from bridle.cli.configured_options import add_config_options
from bridle.cli.format.columns import (
    apply_style,
    display_width,
    format_table,
    is_color_output,
    screen_width,
    trim_line,
)
from bridle.cli.format.printing import print_json, print_line
from bridle.cli.option_values import parse_amount
from bridle.config.toml_file import explain_unknown_name
from bridle.providers.catalogue import known_models
from bridle.providers.tables import Tables, load_tables
from bridle.values.errors import MisuseError
from bridle.values.model import Model
from bridle.values.usage import Rates
from bridle.watchers.console import format_count

ABILITY_TESTS: Mapping[str, Callable[[Model], bool]] = {
    "thinking": lambda model: bool(model.abilities.thinking),
    "images": lambda model: model.abilities.images,
    "documents": lambda model: model.abilities.documents,
    "audio": lambda model: model.abilities.audio,
    "videos": lambda model: model.abilities.videos,
    "schema": lambda model: model.abilities.structured_output == "native",
    "cache": lambda model: bool(model.abilities.cache or model.abilities.automatic_cache),
}
SORT_KEYS = ("table", "price", "context", "name")
NUMBER_COLUMNS = range(1, 6)
DROPPED_COLUMNS = (6, 4, 2)
"""Columns left out on a narrow screen, in order: abilities, cached, output."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("words", nargs="*", metavar="WORD", help="only models whose name contains every word")
    add("--vendor", metavar="V", help="only this endpoint: the word before the colon of a model string")
    add("--all", action="store_true", help="list a model at every endpoint that serves it")
    add(
        "--with",
        dest="abilities",
        action="append",
        default=[],
        choices=ABILITY_TESTS,
        metavar="ABILITY",
        help=f"only models that accept or support this: {', '.join(ABILITY_TESTS)}; repeatable",
    )
    add("--max-input", type=parse_amount, metavar="USD", help="only models whose input costs at most this")
    add("--sort", choices=SORT_KEYS, default="table", help="order: by output price, context or name")
    add("--json", action="store_true", help="print one JSON list")
    add_config_options(parser)


def execute(options: argparse.Namespace) -> int:
    found = _select_models(options)
    rows = [(model, _current_rates(model)) for model in found]
    if options.json:
        print_json([_make_row(model, rates) for model, rates in rows])
        return 0
    if not rows:
        print_line("no model matches; `bridle models` lists all")
        return 0
    for line in _format_models(rows):
        print_line(line, styles=True)
    return 0


def _select_models(options: argparse.Namespace) -> list[Model]:
    tables = load_tables(os.environ.get("BRIDLE_MODELS", ""))
    if options.vendor and options.vendor.rstrip(":") not in tables.endpoints:
        raise MisuseError(explain_unknown_name(options.vendor, tables.endpoints).replace("key", "vendor", 1))
    words = [word.lower() for word in options.words]
    first_names = _list_first_names(tables)
    found: list[Model] = []
    for model in known_models(os.environ):
        rates = _current_rates(model)
        cheap = options.max_input is None or (rates is not None and rates.input <= Decimal(options.max_input))
        wanted = not options.vendor or model.endpoint.name == options.vendor.rstrip(":")
        named = all(word in model.name.lower() for word in words)
        listed = options.all or options.vendor or model.name in first_names
        able = all(ABILITY_TESTS[each](model) for each in options.abilities)
        if wanted and named and cheap and listed and able:
            found.append(model)
    return _sort_models(found, options.sort)


def _list_first_names(tables: Tables) -> set[str]:
    """Name of each model at the first endpoint that serves its group."""
    first = {group: vendor for vendor, row in reversed(tables.endpoints.items()) for group in row.models}
    return {
        f"{vendor}:{tables.endpoints[vendor].prefixes[0]}{name}"
        for group, vendor in first.items()
        for name in tables.model_groups[group].ids
    }


def _sort_models(models: list[Model], order: str) -> list[Model]:
    if order == "name":
        return sorted(models, key=lambda model: model.name)
    if order == "context":
        return sorted(models, key=lambda model: -model.abilities.context_tokens)
    if order == "price":
        prices = {model.name: _current_rates(model) for model in models}
        return sorted(models, key=lambda model: _sort_price(prices[model.name]))
    return models


def _sort_price(rates: Rates | None) -> tuple[bool, Decimal]:
    """Unknown prices come last."""
    return (rates is None, rates.output if rates else Decimal(0))


def _current_rates(model: Model) -> Rates | None:
    return model.price.rates(0, time.time()) if model.price else None


def _list_abilities(model: Model) -> list[str]:
    return [name for name, test in ABILITY_TESTS.items() if test(model)]


def _make_row(model: Model, rates: Rates | None) -> dict[str, object]:
    return {
        "model": model.name,
        "vendor": model.endpoint.name,
        "family": model.endpoint.family,
        "context_tokens": model.abilities.context_tokens,
        "output_tokens": model.abilities.output_tokens,
        "usd_per_million": None
        if rates is None
        else {name: getattr(rates, name) for name in ("input", "cache_read", "cache_write", "output")},
        "abilities": _list_abilities(model),
        "efforts": model.abilities.efforts,
        "key_variables": model.endpoint.key_env,
    }


def _format_models(rows: Sequence[tuple[Model, Rates | None]]) -> list[str]:
    """Aligned lines below a heading; on a narrow screen some columns are left out."""
    heads = ("model", "context", "output", "in $/M", "cached", "out $/M", "abilities")
    cells = [heads, *(_make_cells(model, rates) for model, rates in rows)]
    table = format_table(cells, right=NUMBER_COLUMNS)
    for column in DROPPED_COLUMNS:
        if max(map(display_width, table)) > screen_width():
            cells = [(*row[:column], *row[column + 1 :]) for row in cells]
            table = format_table(cells, right=range(1, min(len(cells[0]), 6)))
    head, *lines = [trim_line(line, screen_width()) for line in table]
    unknown = any(rates is None for _, rates in rows)
    count = format_count(len(rows), "model") + ("; a dash means that the price is unknown" if unknown else "")
    return [
        apply_style(head, "dim", is_color_output()),
        *lines,
        apply_style(count, "dim", is_color_output()),
    ]


def _make_cells(model: Model, rates: Rates | None) -> tuple[str, ...]:
    prices = [_format_price(getattr(rates, name, None)) for name in ("input", "cache_read", "output")]
    abilities = model.abilities
    return (
        model.name,
        _format_tokens(abilities.context_tokens),
        _format_tokens(abilities.output_tokens),
        *prices,
        " ".join(_list_abilities(model)),
    )


def _format_tokens(count: int) -> str:
    if count >= 1_000_000:
        return f"{count / 1_000_000:.1f}M".replace(".0M", "M")
    return f"{count // 1000}k" if count >= 1000 else str(count)


def _format_price(price: Decimal | None) -> str:
    if price is None:
        return "-"
    return f"{price:.2f}" if price >= Decimal("0.1") or price == 0 else f"{price:.3f}"
