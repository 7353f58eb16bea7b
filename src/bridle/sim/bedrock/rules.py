"""What Converse refuses, in its own words.

Three parties object, in this order: the service to fields that break their definitions, the
service to what they mean together, and the model behind it, whose words come with a sentence
in front.  The models whose abilities are known here are of one maker, so those words are its.

What a model can do is never decided by its name: its abilities in the model table say it.
"""

from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import for_model
from bridle.values.model import Abilities

from .request import NEWEST, example, inference_setting, rule, tool_choice, tool_config
from .rules_constraints import CONSTRAINT_RULES
from .rules_fields import FOREIGN_RULES, TYPE_RULES
from .rules_media import MEDIA_RULES
from .rules_messages import MESSAGE_RULES
from .rules_models import MODEL_RULES
from .rules_schemas import FORMAT_RULES

MODES = ("auto", "any", "tool")
_LIMIT = (
    "The maximum tokens you requested exceeds the model limit of {most}. Try again with a maximum tokens"
    " value that is lower than {most}."
)


def _check_json(request: RawRequest) -> RuleFinding | None:
    return {"why": request.malformed} if request.malformed else None


def _check_model_known(request: RawRequest) -> RuleFinding | None:
    return {} if request.abilities is None else None


def _check_output_most(request: RawRequest) -> RuleFinding | None:
    wanted, abilities = inference_setting(request, "maxTokens"), request.abilities
    if abilities is None or not abilities.output_limited:
        return None
    if not isinstance(wanted, int) or wanted <= abilities.output_tokens:
        return None
    return {"most": abilities.output_tokens}


def _check_choice_mode(request: RawRequest) -> RuleFinding | None:
    odd = [name for name in tool_choice(request) if name not in MODES]
    return {"mode": odd[0]} if odd else None


_UNKNOWN = "The provided model identifier is invalid."

_UNLIMITED = replace(NEWEST, output_limited=False)

ENVELOPE_RULES = (
    rule(
        "json",
        _check_json,
        "The request body is not valid JSON: {why}",
        evidence="K",
        passes=example(),
        offends=replace(example(), malformed="Expecting value: line 1 column 1 (char 0)"),
        says="The request body is not valid JSON: Expecting value: line 1 column 1 (char 0)",
    ),
    rule(
        "model-known",
        _check_model_known,
        _UNKNOWN,
        evidence="S",
        passes=example(),
        offends=for_model(None, example()),
    ),
)

SENSE_RULES = (
    rule(
        "output-most",
        _check_output_most,
        _LIMIT,
        evidence="S",
        passes=example(inferenceConfig={"maxTokens": 128_000}),
        offends=example(inferenceConfig={"maxTokens": 128_001}),
        says=_LIMIT.format(most=128_000),
        models="with a known limit",
        also=(
            (for_model(None, example(inferenceConfig={"maxTokens": 128_001})), ""),
            (for_model(_UNLIMITED, example(inferenceConfig={"maxTokens": 128_001})), ""),
        ),
    ),
    rule(
        "choice-mode",
        _check_choice_mode,
        "The toolChoice field has no member {mode}.",
        evidence="K",
        passes=example(**tool_config(toolChoice={"auto": {}})),
        offends=example(**tool_config(toolChoice={"none": {}})),
        says="The toolChoice field has no member none.",
        also=(
            (
                example(**tool_config(toolChoice={"none": {}, "auto": {}, "all": {}})),
                "The toolChoice field has no member none.",
            ),
        ),
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


# What Converse says when a prompt is longer than the model's window.


_WINDOW_EXAMPLE = RawRequest(
    path="/model/some-model/converse",
    headers={"authorization": "Bearer key"},
    body={"messages": [{"role": "user", "content": [{"text": "Hello"}]}]},
    abilities=Abilities(context_tokens=200_000),
)


def _check_prompt_window(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    return {} if abilities is not None and request.prompt_tokens > abilities.context_tokens else None


WINDOW_RULES = (
    ProviderRule(
        id="prompt-window",
        find=_check_prompt_window,
        wording="Input is too long for requested model.",
        evidence="S",
        passes=replace(_WINDOW_EXAMPLE, prompt_tokens=200_000),
        offends=replace(_WINDOW_EXAMPLE, prompt_tokens=200_001),
        says="Input is too long for requested model.",
        type="ValidationException",
        kind="context",
    ),
)
