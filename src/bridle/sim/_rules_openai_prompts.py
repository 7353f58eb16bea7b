"""What both wires refuse of a request's wishes about the prompt cache: words nobody knows, places that
cannot carry a breakpoint, and models that keep prompts in the older way.

The rules are made once for each wire, of its own small requests and of where its content stands.
"""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from ..values.model import Abilities
from ._rules_openai_shape import rule
from ._rules_reading import Block, mapping, to
from ._rules_shapes import Row, Shapes, Spot, listing, spots
from .rules import Asked, Found, Rule

BREAKPOINT, OPTIONS, RETENTION = "prompt_cache_breakpoint", "prompt_cache_options", "prompt_cache_retention"
POINTS = Abilities(cache="points", cache_marks=4, cache_ttls=("30m", "12h"))
OLDER = Abilities(cache="prefix", cache_ttls=("5m", "24h"))
DAYLONG = Abilities(cache="prefix", cache_ttls=("24h",))
UNSUPPORTED = "Unsupported parameter: '{at}' is not supported with this model."

Marking = Callable[[str, Block], Asked]
"""From who speaks and a breakpoint: a request with it."""


def prompt_rules(
    shapes: Shapes,
    marked: Marking,
    paths: tuple[str, ...],
    options: tuple[str, ...],
    ttls: tuple[str, ...],
    *,
    by_model: bool = False,
) -> tuple[Rule, ...]:
    """`paths` are those of the pieces of content that may carry a breakpoint; `options` those of a request,
    `ttls` the lifetimes it may name.

    `by_model`: what the model said may carry one too.
    """
    point = {"mode": "explicit"}
    first = next(_breakpoints(shapes, marked("user", point), paths)).at
    return (
        *_of_options(shapes, options, ttls),
        *_of_points(shapes, paths, marked, point, ttls),
        *(() if by_model else (_by_others(shapes, paths, marked, point, first),)),
        _of_models(shapes, marked, point, first, paths),
    )


def _breakpoints(shapes: Shapes, request: Asked, paths: tuple[str, ...]) -> Iterator[Spot]:
    for path in paths:
        for spot in spots(shapes.voice, request.body, f"{path}.{BREAKPOINT}"):
            if spot.value is not None:
                yield spot


def _not_in_memory(request: Asked) -> Found | None:
    able = request.abilities
    bound = able is not None and able.cache != "" and "5m" not in able.cache_ttls
    return {} if bound and request.body.get(RETENTION) == "in_memory" else None


def _of_options(shapes: Shapes, options: tuple[str, ...], ttls: tuple[str, ...]) -> tuple[Rule, ...]:
    asked = shapes.voice.asked
    return (
        shapes.known(
            OPTIONS,
            options,
            asked(prompt_cache_options={"mode": "implicit", "ttl": "30m"}),
            asked(prompt_cache_options={"lifetime": "12h"}),
            Row(
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
            Row(
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
            Row(
                id="cache-ttl",
                evidence="D",
                says=f"Invalid value: '24h'. Supported values are: {listing(ttls)}.",
                also=tuple((asked(prompt_cache_options={"ttl": ttl}), "") for ttl in ttls),
            ),
        ),
        shapes.one_of(
            RETENTION,
            ("in_memory", "24h"),
            asked(prompt_cache_retention="24h"),
            asked(prompt_cache_retention="12h"),
            Row(
                id="cache-retention",
                evidence="D",
                says="Invalid value: '12h'. Supported values are: 'in_memory' and '24h'.",
            ),
        ),
        rule(
            "cache-retention-model",
            _not_in_memory,
            "Unsupported value: 'prompt_cache_retention' does not support 'in_memory' with this model.",
            evidence="D",
            passes=to(DAYLONG, asked(prompt_cache_retention="24h")),
            offends=to(DAYLONG, asked(prompt_cache_retention="in_memory")),
            models="of those that keep prompts in steps, the newest; all later ones",
            code="unsupported_value",
            also=(
                (to(OLDER, asked(prompt_cache_retention="in_memory")), ""),
                (asked(prompt_cache_retention="in_memory"), ""),
                (to(replace(DAYLONG, cache=""), asked(prompt_cache_retention="in_memory")), ""),
            ),
        ),
    )


def _of_models(shapes: Shapes, marked: Marking, point: Block, first: str, paths: tuple[str, ...]) -> Rule:
    asked = shapes.voice.asked

    def older(request: Asked) -> Found | None:
        if request.abilities is None or request.abilities.cache in ("", "points"):
            return None
        for spot in (*spots(shapes.voice, request.body, OPTIONS), *_breakpoints(shapes, request, paths)):
            if spot.value is not None:
                return {"at": spot.at}
        return None

    return rule(
        "breakpoint-model",
        older,
        UNSUPPORTED,
        evidence="D",
        passes=to(POINTS, asked(prompt_cache_options={"ttl": "30m"})),
        offends=to(OLDER, asked(prompt_cache_options={"ttl": "30m"})),
        says=UNSUPPORTED.format(at=OPTIONS),
        models="those without breakpoints",
        code="unsupported_parameter",
        also=(
            (to(OLDER, marked("user", point)), UNSUPPORTED.format(at=first)),
            (to(POINTS, marked("user", point)), ""),
            (to(OLDER, asked(prompt_cache_retention="24h")), ""),
        ),
    )


def _by_others(shapes: Shapes, paths: tuple[str, ...], marked: Marking, point: Block, first: str) -> Rule:
    def said_by_the_model(request: Asked) -> Found | None:
        for path in paths:
            whole, _, inside = path.rpartition(".")
            for item in spots(shapes.voice, request.body, whole):
                if mapping(item.value).get("role") != "assistant":
                    continue
                for spot in spots(shapes.voice, mapping(item.value), f"{inside}.{BREAKPOINT}"):
                    if spot.value is not None:
                        return {"at": f"{item.at}.{spot.at}"}
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


def _of_points(
    shapes: Shapes, paths: tuple[str, ...], marked: Marking, point: Block, ttls: tuple[str, ...]
) -> Iterator[Rule]:
    """What a breakpoint must be, wherever it stands; each place has rules of its own."""
    for number, path in enumerate(paths):
        who = ("user", "tool")[number]
        end = f"-{path.rpartition('.')[2].removesuffix('[]')}" if number else ""
        at = f"{path}.{BREAKPOINT}"
        place = next(
            spot.at for spot in spots(shapes.voice, marked(who, {}).body, at) if spot.value is not None
        )
        yield shapes.required(
            f"{at}.mode",
            marked(who, point),
            Row(
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
            Row(
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
            Row(
                id=f"breakpoint-ttl{end}",
                evidence="D",
                says=f"Invalid value: '1h'. Supported values are: {listing(ttls)}.",
            ),
        )
