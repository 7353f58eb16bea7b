"""What Converse refuses, in its own words.

Three parties object, in this order: the service to fields that break their definitions, the
service to what they mean together, and the model behind it, whose words come with a sentence
in front.  The models whose abilities are known here are of one maker, so those words are its.

What a model can do is never decided by its name: its abilities in the model table say it.
"""

from msgspec.structs import replace

from ._rules_bedrock_converse_fields import FIELD_RULES
from ._rules_bedrock_converse_foreign import FOREIGN_RULES
from ._rules_bedrock_converse_formats import FORMAT_RULES
from ._rules_bedrock_converse_media import MEDIA_RULES
from ._rules_bedrock_converse_messages import MESSAGE_RULES
from ._rules_bedrock_converse_models import MODEL_RULES
from ._rules_bedrock_converse_shape import (
    NEWEST,
    asked,
    choice,
    inference,
    offering,
    rule,
)
from ._rules_bedrock_converse_types import TYPE_RULES
from ._rules_reading import (
    to,
)
from .rules import Asked, Found

MODES = ("auto", "any", "tool")
_LIMIT = (
    "The maximum tokens you requested exceeds the model limit of {most}. Try again with a maximum tokens"
    " value that is lower than {most}."
)


def _malformed(request: Asked) -> Found | None:
    return {"why": request.malformed} if request.malformed else None


def _unknown_model(request: Asked) -> Found | None:
    return {} if request.abilities is None else None


def _too_much_output(request: Asked) -> Found | None:
    wanted, abilities = inference(request, "maxTokens"), request.abilities
    if abilities is None or not abilities.output_limited:
        return None
    if not isinstance(wanted, int) or wanted <= abilities.output_tokens:
        return None
    return {"most": abilities.output_tokens}


def _no_such_mode(request: Asked) -> Found | None:
    odd = [name for name in choice(request) if name not in MODES]
    return {"mode": odd[0]} if odd else None


_UNKNOWN = "The provided model identifier is invalid."

_UNLIMITED = replace(NEWEST, output_limited=False)

ENVELOPE_RULES = (
    rule(
        "json",
        _malformed,
        "The request body is not valid JSON: {why}",
        evidence="K",
        passes=asked(),
        offends=replace(asked(), malformed="Expecting value: line 1 column 1 (char 0)"),
        says="The request body is not valid JSON: Expecting value: line 1 column 1 (char 0)",
    ),
    rule(
        "model-known",
        _unknown_model,
        _UNKNOWN,
        evidence="S",
        passes=asked(),
        offends=to(None, asked()),
    ),
)

SENSE_RULES = (
    rule(
        "output-most",
        _too_much_output,
        _LIMIT,
        evidence="S",
        passes=asked(inferenceConfig={"maxTokens": 128_000}),
        offends=asked(inferenceConfig={"maxTokens": 128_001}),
        says=_LIMIT.format(most=128_000),
        models="with a known limit",
        also=(
            (to(None, asked(inferenceConfig={"maxTokens": 128_001})), ""),
            (to(_UNLIMITED, asked(inferenceConfig={"maxTokens": 128_001})), ""),
        ),
    ),
    rule(
        "choice-mode",
        _no_such_mode,
        "The toolChoice field has no member {mode}.",
        evidence="K",
        passes=asked(**offering(toolChoice={"auto": {}})),
        offends=asked(**offering(toolChoice={"none": {}})),
        says="The toolChoice field has no member none.",
        also=(
            (
                asked(**offering(toolChoice={"none": {}, "auto": {}, "all": {}})),
                "The toolChoice field has no member none.",
            ),
        ),
    ),
)

RULES = (
    *ENVELOPE_RULES,
    *TYPE_RULES,
    *FOREIGN_RULES,
    *FIELD_RULES,
    *MESSAGE_RULES,
    *MEDIA_RULES,
    *SENSE_RULES,
    *MODEL_RULES,
    *FORMAT_RULES,
)
