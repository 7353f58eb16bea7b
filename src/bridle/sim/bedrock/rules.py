"""Rules of Converse, with its own messages.

Errors come from three sources, in this order: the service checks each field against its definition, then what
the fields mean together, and then the model reports its own errors after a prefix. The models whose abilities
are known here have one vendor, so those messages are its. The abilities in the model table say what a model
supports, never its name.
"""

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import find_malformed_json, find_output_excess, find_unknown_model

from .request import inference_setting, rule
from .rules_constraints import CONSTRAINT_RULES
from .rules_fields import FOREIGN_RULES, TYPE_RULES, refuse
from .rules_media import MEDIA_RULES
from .rules_messages import MESSAGE_RULES
from .rules_models import MODEL_RULES
from .rules_schemas import FORMAT_RULES

MODES = ("auto", "any", "tool")
_LIMIT = (
    "The maximum tokens you requested exceeds the model limit of {most}. Try again with a maximum tokens"
    " value that is lower than {most}."
)


_UNKNOWN = "The provided model identifier is invalid."


ENVELOPE_RULES = (
    rule("json", find_malformed_json, "The request body is not valid JSON: {why}", evidence="K"),
    rule("model-known", find_unknown_model, _UNKNOWN, evidence="S"),
)

SENSE_RULES = (
    rule(
        "output-most",
        lambda request: find_output_excess(request, inference_setting(request, "maxTokens")),
        _LIMIT,
        evidence="S",
        models="with a known limit",
    ),
    refuse(
        "choice-mode",
        "toolConfig.toolChoice",
        lambda choice: next(({"mode": name} for name in choice if name not in MODES), None),
        "The toolChoice field has no member {mode}.",
        evidence="K",
    ),
)

RULES = (
    *ENVELOPE_RULES,
    *TYPE_RULES,
    *FOREIGN_RULES,
    *CONSTRAINT_RULES,
    *MESSAGE_RULES,
    *MEDIA_RULES,
    *SENSE_RULES,
    *MODEL_RULES,
    *FORMAT_RULES,
)


# The message about a prompt longer than the context window.


def _check_prompt_window(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    return {} if abilities is not None and request.prompt_tokens > abilities.context_tokens else None


WINDOW_RULES = (
    ProviderRule(
        id="prompt-window",
        find=_check_prompt_window,
        wording="Input is too long for requested model.",
        evidence="S",
        type="ValidationException",
        kind="context",
    ),
)
