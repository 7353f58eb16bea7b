"""Rules of both OpenAI wires about the envelope, and about settings that a model does not support."""

from collections.abc import Callable

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import join_quoted

from .error_style import INVALID, rule

EffortFinder = Callable[[RawRequest], object]

_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP"
    " library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON. If you"
    " have trouble figuring out how to fix this, please contact us through our help center at help.openai.com.)"
)
JSON_RULE = rule("json", lambda request: {} if request.malformed else None, _JSON, evidence="S")


def sampling_rule(
    name: str,
    find_effort: EffortFinder,
    *,
    accepted: tuple[object, ...] = (None, 1),
    wording: str = "",
    code: str = INVALID,
) -> ProviderRule:
    """Make the rule about a sampling setting, which some models refuse while they reason."""

    def find(request: RawRequest) -> RuleFinding | None:
        able, wanted = request.abilities, request.body.get(name)
        if able is None or able.sampling or find_effort(request) == "none" or wanted in accepted:
            return None
        return {"value": wanted}

    return rule(
        f"{name.replace('_', '-')}-model",
        find,
        wording or f"Unsupported parameter: '{name}' is not supported with this model.",
        param=name,
        evidence="S",
        models="that take no sampling, while they reason",
        code=code,
    )


def effort_level_rule(param: str, find_effort: EffortFinder, wording: str) -> ProviderRule:
    """Make the rule about an effort that a model with efforts does not have."""

    def find(request: RawRequest) -> RuleFinding | None:
        able, wanted = request.abilities, find_effort(request)
        if able is None or not able.efforts or wanted is None or wanted in able.efforts:
            return None
        return {"effort": wanted, "model": request.body.get("model"), "efforts": join_quoted(able.efforts)}

    return rule(
        "effort-level",
        find,
        wording,
        param=param,
        evidence="S",
        models="with efforts",
        code="unsupported_value",
    )
