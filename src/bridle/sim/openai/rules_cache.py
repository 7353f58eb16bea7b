"""What both wires refuse of a request's wishes about the prompt cache: words nobody knows, places that
cannot carry a breakpoint, and models that keep prompts in the older way.

The rules are made once for each wire, of its own small requests and of where its content stands.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldPlace, FieldRow, FieldRules, find_places, join_quoted
from bridle.sim.rules.raw_request import JsonObject, as_mapping, for_model
from bridle.values.model import Abilities

from .error_style import rule

BREAKPOINT, OPTIONS, RETENTION = "prompt_cache_breakpoint", "prompt_cache_options", "prompt_cache_retention"
POINTS = Abilities(cache="points", cache_marks=4, cache_ttls=("30m", "12h"))
OLDER = Abilities(cache="prefix", cache_ttls=("5m", "24h"))
DAYLONG = Abilities(cache="prefix", cache_ttls=("24h",))
UNSUPPORTED = "Unsupported parameter: '{at}' is not supported with this model."

BreakpointExample = Callable[[str, JsonObject], RawRequest]
"""From who speaks and a breakpoint: a request with it."""


def cache_rules(
    shapes: FieldRules,
    marked: BreakpointExample,
    paths: tuple[str, ...],
    options: tuple[str, ...],
    ttls: tuple[str, ...],
    *,
    by_model: bool = False,
) -> tuple[ProviderRule, ...]:
    """`paths` are those of the pieces of content that may carry a breakpoint; `options` those of a request,
    `ttls` the lifetimes it may name.

    `by_model`: what the model said may carry one too.
    """
    point = {"mode": "explicit"}
    first = next(_find_breakpoints(shapes, marked("user", point), paths)).path
    return (
        *_option_rules(shapes, options, ttls),
        *_breakpoint_rules(shapes, paths, marked, point, ttls),
        *(() if by_model else (_assistant_rule(shapes, paths, marked, point, first),)),
        _model_rule(shapes, marked, point, first, paths),
    )


def _find_breakpoints(
    shapes: FieldRules, request: RawRequest, paths: tuple[str, ...]
) -> Iterator[FieldPlace]:
    for path in paths:
        for spot in find_places(shapes.style, request.body, f"{path}.{BREAKPOINT}"):
            if spot.value is not None:
                yield spot


def _check_cache_retention_model(request: RawRequest) -> RuleFinding | None:
    able = request.abilities
    bound = able is not None and able.cache != "" and "5m" not in able.cache_ttls
    return {} if bound and request.body.get(RETENTION) == "in_memory" else None


def _option_rules(
    shapes: FieldRules, options: tuple[str, ...], ttls: tuple[str, ...]
) -> tuple[ProviderRule, ...]:
    asked = shapes.style.example
    return (
        shapes.only_fields(
            OPTIONS,
            options,
            asked(prompt_cache_options={"mode": "implicit", "ttl": "30m"}),
            asked(prompt_cache_options={"lifetime": "12h"}),
            FieldRow(
                id="cache-options-known",
                evidence="D",
                says="Unknown parameter: 'prompt_cache_options.lifetime'.",
                also=tuple((asked(prompt_cache_options={name: None}), "") for name in options),
            ),
        ),
        shapes.one_of(
            f"{OPTIONS}.mode",
            ("implicit", "explicit"),
            asked(prompt_cache_options={"mode": "explicit"}),
            asked(prompt_cache_options={"mode": "off"}),
            FieldRow(
                id="cache-mode",
                evidence="D",
                says="Invalid value: 'off'. Supported values are: 'implicit' and 'explicit'.",
            ),
        ),
        shapes.one_of(
            f"{OPTIONS}.ttl",
            ttls,
            asked(prompt_cache_options={"ttl": "30m"}),
            asked(prompt_cache_options={"ttl": "24h"}),
            FieldRow(
                id="cache-ttl",
                evidence="D",
                says=f"Invalid value: '24h'. Supported values are: {join_quoted(ttls)}.",
                also=tuple((asked(prompt_cache_options={"ttl": ttl}), "") for ttl in ttls),
            ),
        ),
        shapes.one_of(
            RETENTION,
            ("in_memory", "24h"),
            asked(prompt_cache_retention="24h"),
            asked(prompt_cache_retention="12h"),
            FieldRow(
                id="cache-retention",
                evidence="D",
                says="Invalid value: '12h'. Supported values are: 'in_memory' and '24h'.",
            ),
        ),
        rule(
            "cache-retention-model",
            _check_cache_retention_model,
            "Unsupported value: 'prompt_cache_retention' does not support 'in_memory' with this model.",
            evidence="D",
            passes=for_model(DAYLONG, asked(prompt_cache_retention="24h")),
            offends=for_model(DAYLONG, asked(prompt_cache_retention="in_memory")),
            models="of those that keep prompts in steps, the newest; all later ones",
            code="unsupported_value",
            also=(
                (for_model(OLDER, asked(prompt_cache_retention="in_memory")), ""),
                (asked(prompt_cache_retention="in_memory"), ""),
                (for_model(replace(DAYLONG, cache=""), asked(prompt_cache_retention="in_memory")), ""),
            ),
        ),
    )


def _model_rule(
    shapes: FieldRules, marked: BreakpointExample, point: JsonObject, first: str, paths: tuple[str, ...]
) -> ProviderRule:
    asked = shapes.style.example

    def older(request: RawRequest) -> RuleFinding | None:
        if request.abilities is None or request.abilities.cache in ("", "points"):
            return None
        for spot in (
            *find_places(shapes.style, request.body, OPTIONS),
            *_find_breakpoints(shapes, request, paths),
        ):
            if spot.value is not None:
                return {"at": spot.path}
        return None

    return rule(
        "breakpoint-model",
        older,
        UNSUPPORTED,
        evidence="D",
        passes=for_model(POINTS, asked(prompt_cache_options={"ttl": "30m"})),
        offends=for_model(OLDER, asked(prompt_cache_options={"ttl": "30m"})),
        says=UNSUPPORTED.format(at=OPTIONS),
        models="those without breakpoints",
        code="unsupported_parameter",
        also=(
            (for_model(OLDER, marked("user", point)), UNSUPPORTED.format(at=first)),
            (for_model(POINTS, marked("user", point)), ""),
            (for_model(OLDER, asked(prompt_cache_retention="24h")), ""),
        ),
    )


def _assistant_rule(
    shapes: FieldRules, paths: tuple[str, ...], marked: BreakpointExample, point: JsonObject, first: str
) -> ProviderRule:
    def said_by_the_model(request: RawRequest) -> RuleFinding | None:
        for path in paths:
            whole, _, inside = path.rpartition(".")
            for item in find_places(shapes.style, request.body, whole):
                if as_mapping(item.value).get("role") != "assistant":
                    continue
                for spot in find_places(shapes.style, as_mapping(item.value), f"{inside}.{BREAKPOINT}"):
                    if spot.value is not None:
                        return {"at": f"{item.path}.{spot.path}"}
        return None

    return rule(
        "breakpoint-place",
        said_by_the_model,
        "Unknown parameter: '{at}'.",
        evidence="D",
        passes=marked("user", point),
        offends=marked("assistant", point),
        says=f"Unknown parameter: '{first}'.",
        code="unknown_parameter",
    )


def _breakpoint_rules(
    shapes: FieldRules,
    paths: tuple[str, ...],
    marked: BreakpointExample,
    point: JsonObject,
    ttls: tuple[str, ...],
) -> Iterator[ProviderRule]:
    """What a breakpoint must be, wherever it stands; each place has rules of its own."""
    for number, path in enumerate(paths):
        who = ("user", "tool")[number]
        end = f"-{path.rpartition('.')[2].removesuffix('[]')}" if number else ""
        at = f"{path}.{BREAKPOINT}"
        place = next(
            spot.path
            for spot in find_places(shapes.style, marked(who, {}).body, at)
            if spot.value is not None
        )
        yield shapes.required(
            f"{at}.mode",
            marked(who, point),
            FieldRow(
                id=f"breakpoint-mode-needed{end}",
                evidence="D",
                says=f"Missing required parameter: '{place}.mode'.",
            ),
            refuses=marked(who, {"ttl": "30m"}),
        )
        yield shapes.one_of(
            f"{at}.mode",
            ("explicit",),
            marked(who, point),
            marked(who, {"mode": "implicit"}),
            FieldRow(
                id=f"breakpoint-mode{end}",
                evidence="D",
                says="Invalid value: 'implicit'. Supported values are: 'explicit'.",
            ),
        )
        yield shapes.one_of(
            f"{at}.ttl",
            ttls,
            marked(who, {**point, "ttl": "30m"}),
            marked(who, {**point, "ttl": "1h"}),
            FieldRow(
                id=f"breakpoint-ttl{end}",
                evidence="D",
                says=f"Invalid value: '1h'. Supported values are: {join_quoted(ttls)}.",
            ),
        )
