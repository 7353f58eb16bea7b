"""Rules of both OpenAI wires about the prompt cache: unknown options, misplaced breakpoints, older models.

Each wire passes the paths at which its content can carry a breakpoint.
"""

from collections.abc import Iterator

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldPlace, FieldRow, find_places
from bridle.sim.rules.raw_request import as_mapping

from .error_style import FIELD_CHECKS, rule

BREAKPOINT, OPTIONS, RETENTION = "prompt_cache_breakpoint", "prompt_cache_options", "prompt_cache_retention"
UNSUPPORTED = "Unsupported parameter: '{at}' is not supported with this model."


def cache_rules(
    paths: tuple[str, ...], options: tuple[str, ...], ttls: tuple[str, ...], *, by_model: bool = False
) -> tuple[ProviderRule, ...]:
    """Make the rules.

    `paths` are those of content that may carry a breakpoint; `options` are the options of a request, `ttls`
    the lifetimes it may name. `by_model`: the model's own content may carry one too.
    """
    return (
        *_option_rules(options, ttls),
        *_breakpoint_rules(paths, ttls),
        *(() if by_model else (_assistant_rule(paths),)),
        _model_rule(paths),
    )


def _find_breakpoints(request: RawRequest, paths: tuple[str, ...]) -> Iterator[FieldPlace]:
    for path in paths:
        for spot in find_places(FIELD_CHECKS.style, request.body, f"{path}.{BREAKPOINT}"):
            if spot.value is not None:
                yield spot


def _check_cache_retention_model(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    bound = abilities is not None and abilities.cache != "" and "5m" not in abilities.cache_ttls
    return {} if bound and request.body.get(RETENTION) == "in_memory" else None


def _option_rules(options: tuple[str, ...], ttls: tuple[str, ...]) -> tuple[ProviderRule, ...]:
    return (
        FIELD_CHECKS.only_fields(OPTIONS, options, FieldRow(id="cache-options-known", evidence="D")),
        FIELD_CHECKS.one_of(
            f"{OPTIONS}.mode", ("implicit", "explicit"), FieldRow(id="cache-mode", evidence="D")
        ),
        FIELD_CHECKS.one_of(f"{OPTIONS}.ttl", ttls, FieldRow(id="cache-ttl", evidence="D")),
        FIELD_CHECKS.one_of(RETENTION, ("in_memory", "24h"), FieldRow(id="cache-retention", evidence="D")),
        rule(
            "cache-retention-model",
            _check_cache_retention_model,
            "Unsupported value: 'prompt_cache_retention' does not support 'in_memory' with this model.",
            evidence="D",
            models="of those that keep prompts in steps, the newest; all later ones",
            code="unsupported_value",
        ),
    )


def _model_rule(paths: tuple[str, ...]) -> ProviderRule:
    def older(request: RawRequest) -> RuleFinding | None:
        if request.abilities is None or request.abilities.cache in ("", "points"):
            return None
        for spot in (
            *find_places(FIELD_CHECKS.style, request.body, OPTIONS),
            *_find_breakpoints(request, paths),
        ):
            if spot.value is not None:
                return {"at": spot.path}
        return None

    return rule(
        "breakpoint-model",
        older,
        UNSUPPORTED,
        evidence="D",
        models="those without breakpoints",
        code="unsupported_parameter",
    )


def _assistant_rule(paths: tuple[str, ...]) -> ProviderRule:
    def said_by_the_model(request: RawRequest) -> RuleFinding | None:
        for path in paths:
            parent, _, inside = path.rpartition(".")
            for item in find_places(FIELD_CHECKS.style, request.body, parent):
                if as_mapping(item.value).get("role") != "assistant":
                    continue
                for spot in find_places(FIELD_CHECKS.style, as_mapping(item.value), f"{inside}.{BREAKPOINT}"):
                    if spot.value is not None:
                        return {"at": f"{item.path}.{spot.path}"}
        return None

    return rule(
        "breakpoint-place",
        said_by_the_model,
        "Unknown parameter: '{at}'.",
        evidence="D",
        code="unknown_parameter",
    )


def _breakpoint_rules(paths: tuple[str, ...], ttls: tuple[str, ...]) -> Iterator[ProviderRule]:
    """Make the rules for a breakpoint at each of these paths."""
    for number, path in enumerate(paths):
        end = f"-{path.rpartition('.')[2].removesuffix('[]')}" if number else ""
        at = f"{path}.{BREAKPOINT}"
        yield FIELD_CHECKS.required(f"{at}.mode", FieldRow(id=f"breakpoint-mode-needed{end}", evidence="D"))
        yield FIELD_CHECKS.one_of(
            f"{at}.mode", ("explicit",), FieldRow(id=f"breakpoint-mode{end}", evidence="D")
        )
        yield FIELD_CHECKS.one_of(f"{at}.ttl", ttls, FieldRow(id=f"breakpoint-ttl{end}", evidence="D"))
