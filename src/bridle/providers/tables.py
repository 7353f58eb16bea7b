"""Loads the tables of endpoints and models, merges the user's table into them and checks them.

`endpoints.toml` and `models.toml` beside this file, and the file named by $BRIDLE_MODELS, have the same
layout; the user's fields win. They are read once, on first use. A mistake is reported with its location and
the closest valid name.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.model import ANY_EFFORT, Abilities, Auth, ReasoningPolicy
from bridle.values.usage import HostedRate, Price, PriceFactor, Rates

_FILES = ("endpoints.toml", "models.toml")
_NO_SUFFIX = "(?!)"
"""A pattern that matches nothing."""
NEUTRAL = Abilities(efforts=(ANY_EFFORT,))
"""Abilities of a model that no table describes."""
_PRICE_FIELDS = ("prices", "price_factors", "hosted_prices")
"""The fields of a model's table about prices."""

TomlTable = dict[str, object]
T = TypeVar("T", bound=Value)


class EndpointRow(Value, kw_only=True, gc=True):
    family: str = ""
    models: tuple[str, ...] = ()
    base_url: str = ""
    base_url_env: tuple[str, ...] = ()
    auth: Auth = "bearer"
    key_env: tuple[str, ...] = ()
    key_prefixes: tuple[str, ...] = ()
    key_optional: bool = False
    signing: str = ""
    signing_env: tuple[str, ...] = ()
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    reasoning: ReasoningPolicy = "may_echo"
    reasoning_elsewhere: ReasoningPolicy | None = None
    dialect: dict[str, object] = msgspec.field(default_factory=dict)
    abilities: dict[str, object] = msgspec.field(default_factory=dict)
    prefixes: tuple[str, ...] = ("",)
    others: bool = False
    efforts_refused: tuple[str, ...] = ()
    price_factor: Decimal = Decimal(1)
    list_price_prefixes: tuple[str, ...] = ()
    app: str = ""
    simulated: bool = False
    profile: str = ""
    default: str = ""
    extra_fields: tuple[str, ...] = ()
    extra_fields_elsewhere: tuple[str, ...] = ()


class ModelEntry(NamedTuple):
    abilities: Abilities
    price: Price | None


class ModelGroup(NamedTuple):
    ids: dict[str, ModelEntry]
    newest: str
    suffix: str


class Tables(NamedTuple):
    endpoints: dict[str, EndpointRow]
    model_groups: dict[str, ModelGroup]

    @property
    def example_model_name(self) -> str:
        return next(
            f"{vendor}:{next(iter(self.model_groups[row.models[0]].ids))}"
            for vendor, row in self.endpoints.items()
            if row.models
        )

    def model_ids(self, row: EndpointRow) -> list[str]:
        return [row.prefixes[0] + name for line in row.models for name in self.model_groups[line].ids]

    def find_entry(self, row: EndpointRow, name: str) -> ModelEntry | None:
        for line in (self.model_groups[line] for line in row.models):
            for prefix in row.prefixes:
                bare = name.removeprefix(prefix) if name.startswith(prefix) else ""
                for candidate in (bare, re.sub(f"(?:{line.suffix})$", "", bare)):
                    if candidate in line.ids:
                        return _apply_endpoint(row, line.ids[candidate], prefix)
        return None

    def newest_entry(self, row: EndpointRow) -> ModelEntry:
        if not row.models or row.others:
            return _apply_endpoint(row, ModelEntry(NEUTRAL, None))
        line = self.model_groups[row.models[0]]
        newest = line.ids[line.newest]
        # A newer model may have a higher output limit than any known one.
        return _apply_endpoint(
            row, newest._replace(abilities=replace(newest.abilities, output_limited=False))
        )


def _apply_endpoint(row: EndpointRow, entry: ModelEntry, prefix: str = "") -> ModelEntry:
    """Return a model's entry as one endpoint serves it: abilities, efforts and price may differ."""
    stated = msgspec.convert(row.abilities, Abilities)
    abilities = replace(entry.abilities, **{name: getattr(stated, name) for name in row.abilities})
    efforts = tuple(each for each in abilities.efforts if each not in row.efforts_refused)
    refused = abilities.hosted_refused
    hosted = tuple(each for each in abilities.hosted if each[0] not in refused)
    abilities = replace(abilities, efforts=efforts, hosted=hosted, hosted_refused=())
    factor = Decimal(1) if prefix in row.list_price_prefixes else row.price_factor
    if entry.price is None or factor == 1:
        return ModelEntry(abilities, entry.price)
    return ModelEntry(
        abilities, replace(entry.price, tiers=tuple(tier.scale(factor) for tier in entry.price.tiers))
    )


@cache
def load_tables(path: str = "") -> Tables:
    """Load the built-in tables with the file at `path` merged into them; raise `MisuseError`."""
    tree: TomlTable = {}
    for name in _FILES:
        tree = _merge_trees(tree, _read_toml(Path(__file__).with_name(name)))
    own: TomlTable = {}
    if path:
        try:
            own = _read_toml(Path(path).expanduser())
        except (OSError, ValueError) as error:
            raise MisuseError(f"$BRIDLE_MODELS names {path!r}, which cannot be read: {error}") from error
    where = path or "the built-in tables"
    try:
        return _build_tables(_apply_user_tables(tree, own))
    except (KeyError, TypeError, ValueError) as error:
        raise MisuseError(f"{where}: {error.args[0]}") from error


def _read_toml(path: Path) -> TomlTable:
    return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)


def _merge_trees(below: TomlTable, above: TomlTable) -> TomlTable:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = (
            _merge_trees(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
        )
    return merged


def _apply_user_tables(tree: TomlTable, own: TomlTable) -> TomlTable:
    """Merge the user's tables; an endpoint that gets another family does not inherit the old dialect."""
    merged = _merge_trees(tree, own)
    before, after, given = (_child_tables(each, "endpoints") for each in (tree, merged, own))
    for name in given.keys() & before.keys():
        if after[name].get("family") != before[name].get("family"):
            after[name]["dialect"] = given[name].get("dialect", {})
    return merged


def _build_tables(tree: TomlTable) -> Tables:
    _reject_unknown_keys(tree, ("endpoints", "models"), "the top level")
    lines = {
        name: _build_model_group(table, f"models.{name}")
        for name, table in _child_tables(tree, "models").items()
    }
    rows = _child_tables(tree, "endpoints")
    endpoints = {}
    for name in rows:
        where = f"endpoints.{name}"
        endpoints[name] = row = _convert_row(EndpointRow, _resolve_like(name, rows, "endpoints"), where)
        _convert_row(Abilities, row.abilities, f"{where}.abilities")
        if not row.prefixes:
            raise ValueError(f"{where}.prefixes is a list of at least one, which may be empty")
        for line in row.models:
            _require_known_name(line, lines, f"{where}.models")
        if not row.simulated and not (row.family and (row.base_url or row.app)):
            raise ValueError(f"{where} needs a family and a base_url")
    return Tables(endpoints, lines)


def _build_model_group(table: TomlTable, where: str) -> ModelGroup:
    _reject_unknown_keys(table, ("ids", "shared", "newest", "suffix"), where)
    ids, shared = _child_tables(table, "ids"), table.get("shared", {})
    if not ids or not isinstance(shared, dict):
        raise ValueError(f"{where} needs at least one table in ids, and shared is a table")
    suffix = str(table.get("suffix", _NO_SUFFIX))
    try:
        re.compile(suffix)
    except re.error as error:
        raise ValueError(f"{where}.suffix is not a pattern: {error}") from error
    return ModelGroup(
        ids={
            name: _build_model_entry({**shared, **_resolve_like(name, ids, where)}, f"{where}.ids.{name}")
            for name in ids
        },
        newest=_require_known_name(str(table.get("newest", next(iter(ids)))), ids, f"{where}.newest"),
        suffix=suffix,
    )


def _build_model_entry(row: TomlTable, where: str) -> ModelEntry:
    facts = {name: value for name, value in row.items() if name not in _PRICE_FIELDS}
    facts.setdefault("output_limited", "output_tokens" in facts)
    tiers = tuple(
        _convert_row(Rates, _complete_price_tier(tier), f"{where}.prices")
        for tier in _require_list(row, "prices", where)
    )
    factors = tuple(
        _convert_row(PriceFactor, each, f"{where}.price_factors")
        for each in _require_list(row, "price_factors", where)
    )
    for each in factors:
        if bool(each.term) == bool(each.hours) or (each.days and not each.hours):
            raise ValueError(f"{where}.price_factors: each is for a term, or for hours, which may have days")
    hosted = tuple(
        _convert_row(HostedRate, _date_row(each), f"{where}.hosted_prices")
        for each in _require_list(row, "hosted_prices", where)
    )
    price = Price(tiers=tiers, factors=factors, hosted=hosted)
    return ModelEntry(_convert_row(Abilities, facts, where), price if tiers else None)


def _require_list(row: TomlTable, name: str, where: str) -> list[object]:
    given = row.get(name, [])
    if not isinstance(given, list):
        raise TypeError(f"{where}.{name} is a list of tables")
    return given


def _complete_price_tier(tier: object) -> object:
    """Complete the cache prices of a tier.

    Without a price for cache writes, they are billed as input. With one, but without a price for long-lived
    entries, that price is unknown.
    """
    if not isinstance(tier, dict) or "input" not in tier:
        return tier
    long_lived = None if "cache_write" in tier else tier["input"]
    return _date_row({"cache_write": tier["input"], "cache_write_1h": long_lived, **tier})


def _date_row(row: object) -> object:
    """The row of a price with its days as timestamps; anything but a table unchanged, for the later check."""
    if not isinstance(row, dict):
        return row
    days = {name: _midnight_timestamp(row[name]) for name in ("valid_from", "valid_until") if name in row}
    return {**row, **days}


def _midnight_timestamp(day: object) -> object:
    """Return the timestamp at which a day begins in UTC; other values unchanged, for the later check."""
    if type(day) is not date:
        return day
    return datetime.combine(day, time(), tzinfo=UTC).timestamp()


def _resolve_like(
    name: str, rows: Mapping[str, TomlTable], where: str, heirs: tuple[str, ...] = ()
) -> TomlTable:
    row = dict(rows[name])
    like = row.pop("like", None)
    if like is None:
        return row
    if like == name or like in heirs:
        raise ValueError(f"{where}.{name} refers to itself with `like`")
    parent = _require_known_name(str(like), rows, f"{where}.{name}.like")
    return {**_resolve_like(parent, rows, where, (*heirs, name)), **row}


def _convert_row(kind: type[T], row: object, where: str) -> T:
    if isinstance(row, dict):
        _reject_unknown_keys(row, kind.__struct_fields__, where)
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}") from None


def _child_tables(tree: TomlTable, name: str) -> dict[str, TomlTable]:
    children = tree.get(name, {})
    if not isinstance(children, dict) or not all(isinstance(child, dict) for child in children.values()):
        raise TypeError(f"{name} must hold tables only")
    return children


def _reject_unknown_keys(row: Mapping[str, object], names: Sequence[str], where: str) -> None:
    for name in row:
        _require_known_name(name, names, where)


def _require_known_name(name: str, names: Sequence[str] | Mapping[str, object], where: str) -> str:
    if name in names:
        return name
    near = get_close_matches(name, list(names), n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(names)}"
    raise ValueError(f"{where} has {name!r}, which is unknown; {hint}")
