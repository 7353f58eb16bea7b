"""Compares our table of models with the tables of two other projects, for development.

    genai-prices   prices, with tiers and dates
    litellm        windows, output limits, prices and what a model takes

Neither is a dependency. Where they are not installed, nothing is compared. A difference is either a mistake of
ours, or settled in `model_table_settled.toml` with a reason, a source and a date.
"""

import json
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

from bridle.providers.catalogue import find_model
from bridle.values.usage import MILLION, Usage

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "src" / "bridle" / "providers" / "models.toml"
SETTLED = HERE / "model_table_settled.toml"
VENDORS = {
    # line: (our vendor, genai-prices' provider, litellm's prefix)
    "claude": ("anthropic", "anthropic", ""),
    "gpt": ("openai", "openai", ""),
    "gemini": ("gemini", "google", ""),
    "deepseek": ("deepseek", "deepseek", "deepseek/"),
    "kimi": ("kimi", "moonshotai", "moonshot/"),
    "minimax": ("minimax", "minimax", "minimax/"),
    "glm": ("zai", "zai", "zai/"),
    "grok": ("xai", "x-ai", "xai/"),
    "mistral": ("mistral", "mistral", "mistral/"),
}
PRICES = {
    # ours: (genai-prices', litellm's)
    "input": ("input_mtok", "input_cost_per_token"),
    "output": ("output_mtok", "output_cost_per_token"),
    "cache_read": ("cache_read_mtok", "cache_read_input_token_cost"),
    "cache_write": ("cache_write_mtok", "cache_creation_input_token_cost"),
}
ABILITIES = {"images": "supports_vision", "videos": "supports_video_input"}
Difference = tuple[str, str, str, str, str]
"""Source, model, field, our value, their value."""


def our_models() -> Iterator[tuple[str, str]]:
    """Line and id of every model in the table that has a price."""
    for line, table in tomllib.loads(TABLE.read_text())["models"].items():
        for model in table["ids"]:
            yield line, model


def our_rates(line: str, model: str, now: float, *, by_hour: bool = False):
    price = find_model(f"{VENDORS[line][0]}:{model}", environ={}).price
    rates = price.rates(1, now) if price else None
    if rates is None or not by_hour or not rates.output:
        return rates
    return rates.scale(price.cost(Usage(output=1), now) * MILLION / rates.output)  # the factor of this hour


def litellm_table() -> dict[str, dict] | None:
    spec = find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    return json.loads((folder / "model_prices_and_context_window_backup.json").read_text())


def compare_with_litellm(now: float) -> Iterator[Difference]:
    table = litellm_table() or {}
    for line, model in our_models():
        vendor, _, prefix = VENDORS[line]
        theirs = table.get(f"{prefix}{model}") or table.get(model)
        if theirs is None:
            continue
        abilities = find_model(f"{vendor}:{model}", environ={}).abilities
        numbers = {
            "prompt_tokens_max": (abilities.prompt_tokens_max, theirs.get("max_input_tokens")),
            "output_tokens": (abilities.output_tokens, theirs.get("max_output_tokens")),
        }
        for field, (ours, other) in numbers.items():
            if other and abs(int(other) - ours) > 16:  # 65 535 and 65 536 are the same limit
                yield "litellm", model, field, str(ours), str(other)
        for field, name in ABILITIES.items():
            ours = getattr(abilities, field)
            if name in theirs and bool(theirs[name]) != ours:
                yield "litellm", model, field, str(ours), str(bool(theirs[name]))
        rates = our_rates(line, model, now)
        for field, (_, name) in PRICES.items():
            other = theirs.get(name)
            if rates is not None and other:
                yield from differ(
                    "litellm", model, field, getattr(rates, field), Decimal(str(other)) * 1_000_000
                )


def compare_with_genai_prices(now: float) -> Iterator[Difference]:
    from genai_prices.data_snapshot import get_snapshot

    providers = {provider.id: provider for provider in get_snapshot().providers}
    for line, model in our_models():
        known = providers[VENDORS[line][1]].find_model(model)
        rates = our_rates(line, model, now, by_hour=True)
        if known is None or rates is None:
            continue
        card = known.get_prices(datetime.fromtimestamp(now, UTC))
        for field, (name, _) in PRICES.items():
            other = getattr(card, name, None)
            other = getattr(other, "base", other)
            if other is not None:
                yield from differ("genai-prices", model, field, getattr(rates, field), Decimal(str(other)))


def differ(
    source: str, model: str, field: str, ours: Decimal | None, theirs: Decimal
) -> Iterator[Difference]:
    if ours is None or abs(Decimal(ours) - theirs) > Decimal("0.0001"):
        yield source, model, field, str(ours), f"{theirs.normalize():f}"


def load_settled_rows() -> dict[tuple[str, str, str], dict]:
    rows = tomllib.loads(SETTLED.read_text())["settled"]
    return {(row["source"], model, row["field"]): row for row in rows for model in row["models"]}
