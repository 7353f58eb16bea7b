"""What generateContent refuses, in its own words.

The order is the provider's as far as it is known: JSON is read into fields first, and what
cannot be read is refused there; then each field by itself; then what the fields mean
together.  Tools, schemas and contents have files of their own beside this one.

What a model can do is never decided by its name: its abilities in the model table say it.
Models that think at levels are also those that demand signatures, know one role less and
take functions together with everything else.
"""

import re

from msgspec.structs import replace

from ._rules_gemini_contents import CONTENT_RULES
from ._rules_gemini_fields import FIELD_RULES
from ._rules_gemini_media import MEDIA_RULES
from ._rules_gemini_schemas import SCHEMA_RULES
from ._rules_gemini_shape import (
    BUDGETS,
    MODEL,
    NEWEST,
    asked,
    asked_of,
    at,
    config,
    configured,
    listed,
    rule,
    snake,
    thinking,
)
from ._rules_gemini_tools import TOOL_RULES
from ._rules_reading import (
    to,
)
from .rules import Asked, Found

FIELDS = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
    "labels",
    "model",
    "serviceTier",
    "continuationToken",
    "store",
    "modelArmorConfig",
]
SPELLINGS = frozenset(FIELDS) | {snake(name) for name in FIELDS}
MODEL_NAME = re.compile(r"[A-Za-z0-9._@-]+")
MIME_TYPES = ("text/plain", "application/json", "application/xml", "application/yaml", "text/x.enum")
STOPS_MAX = 5
CANDIDATES_MAX = 8
_NOT_FOUND = (
    "models/{model} is not found for API version v1beta, or is not supported for {method}. Call"
    " ModelService.ListModels to see the list of available models and their supported methods."
)
_TEMPERATURE = (
    "* GenerateContentRequest.generation_config.temperature: temperature must be in the range [0.0, 2.0].\n"
)
_OUTPUT = (
    "Unable to submit request because it has a maxOutputTokens value of {wanted} but the supported range is"
    " from 1 (inclusive) to {end} (exclusive). Update the value and try again."
)
_CANDIDATES = _OUTPUT.replace("maxOutputTokens", "candidateCount")


def _malformed(request: Asked) -> Found | None:
    return {"why": request.malformed} if request.malformed else None


def _unknown_field(request: Asked) -> Found | None:
    return next(({"name": name} for name in request.body if name not in SPELLINGS), None)


def _model_format(request: Asked) -> Found | None:
    name, _ = asked_of(request)
    return {} if name and not MODEL_NAME.fullmatch(name) else None


def _unknown_model(request: Asked) -> Found | None:
    name, method = asked_of(request)
    method = "generateContent" if method == "streamGenerateContent" else method
    return {"model": name, "method": method} if request.abilities is None else None


def _output(request: Asked) -> Found | None:
    wanted, abilities = config(request, "maxOutputTokens"), request.abilities
    if abilities is None or not isinstance(wanted, int):
        return None
    if wanted >= 1 and (wanted <= abilities.output_tokens or not abilities.output_limited):
        return None
    return {"wanted": wanted, "end": abilities.output_tokens + 1}


def _candidates(request: Asked) -> Found | None:
    wanted = config(request, "candidateCount")
    odd = isinstance(wanted, int) and not 1 <= wanted <= CANDIDATES_MAX
    return {"wanted": wanted, "end": CANDIDATES_MAX + 1} if odd else None


def _temperature(request: Asked) -> Found | None:
    wanted = config(request, "temperature")
    return {} if isinstance(wanted, int | float) and not 0 <= wanted <= 2 else None


def _stops(request: Asked) -> Found | None:
    return {} if len(listed(config(request, "stopSequences"))) > STOPS_MAX else None


def _mime_type(request: Asked) -> Found | None:
    wanted = config(request, "responseMimeType")
    return {} if wanted is not None and wanted not in MIME_TYPES else None


def _odds_in_stream(request: Asked) -> Found | None:
    streams = asked_of(request)[1] == "streamGenerateContent"
    return {} if streams and config(request, "responseLogprobs") is True else None


def _both_ways(request: Asked) -> Found | None:
    both = thinking(request, "thinkingBudget") is not None and thinking(request, "thinkingLevel") is not None
    return {} if both else None


def _level(request: Asked) -> Found | None:
    level, abilities = thinking(request, "thinkingLevel"), request.abilities
    if abilities is None or not isinstance(level, str) or level.lower() in abilities.efforts:
        return None
    return {}


def _no_budget(request: Asked) -> Found | None:
    abilities = request.abilities
    if abilities is None or not abilities.allowance_mode or "disabled" in abilities.thinking:
        return None
    return {} if thinking(request, "thinkingBudget") == 0 else None


def _budget_range(request: Asked) -> Found | None:
    abilities, wanted = request.abilities, thinking(request, "thinkingBudget")
    if abilities is None or not abilities.allowance_mode or not isinstance(wanted, int) or wanted in (-1, 0):
        return None
    least, most = abilities.allowance_least, abilities.allowance_most
    if least <= wanted and (most is None or wanted <= most):
        return None
    return {"wanted": wanted, "least": least, "most": most}


_RANGED = replace(BUDGETS, allowance_least=128, allowance_most=32_768)
_SWITCHABLE = replace(BUDGETS, thinking=("adaptive", "enabled", "disabled"))

ENVELOPE_RULES = (
    rule(
        "json",
        _malformed,
        "Invalid JSON payload received. {why}",
        evidence="S",
        passes=asked(),
        offends=replace(asked(), malformed="Expecting value: line 1 column 1 (char 0)"),
        says="Invalid JSON payload received. Expecting value: line 1 column 1 (char 0)",
    ),
    rule(
        "field",
        _unknown_field,
        'Invalid JSON payload received. Unknown name "{name}": Cannot find field.',
        evidence="S",
        passes=asked(generation_config={"temperature": 1}),
        offends=asked(messages=[]),
        says='Invalid JSON payload received. Unknown name "messages": Cannot find field.',
    ),
)

ADDRESS_RULES = (
    rule(
        "model-name",
        _model_format,
        "* GenerateContentRequest.model: unexpected model name format\n",
        evidence="S",
        passes=at("gemini-2.5_x@1:generateContent", asked()),
        offends=at("bad%20model:generateContent", asked()),
        also=((replace(asked(), path="/v1beta/other"), ""),),
    ),
    replace(
        rule(
            "model-known",
            _unknown_model,
            _NOT_FOUND,
            evidence="S",
            passes=asked(),
            offends=to(None, at(f"{MODEL}:streamGenerateContent", asked())),
            says=_NOT_FOUND.format(model=MODEL, method="generateContent"),
            also=(
                (
                    to(None, at(f"{MODEL}:countTokens", asked())),
                    _NOT_FOUND.format(model=MODEL, method="countTokens"),
                ),
            ),
        ),
        status=404,
        type="NOT_FOUND",
        kind="not_found",
    ),
)

CONFIG_RULES = (
    rule(
        "output-most",
        _output,
        _OUTPUT,
        evidence="S",
        passes=configured(maxOutputTokens=65_536),
        offends=configured(maxOutputTokens=65_537),
        says=_OUTPUT.format(wanted=65_537, end=65_537),
        also=(
            (to(None, configured(maxOutputTokens=65_537)), ""),
            (configured(maxOutputTokens=1), ""),
            (configured(maxOutputTokens=0), _OUTPUT.format(wanted=0, end=65_537)),
            (to(replace(NEWEST, output_limited=False), configured(maxOutputTokens=65_537)), ""),
        ),
    ),
    rule(
        "candidates",
        _candidates,
        _CANDIDATES,
        evidence="F",
        passes=configured(candidateCount=8),
        offends=configured(candidateCount=9),
        says=_CANDIDATES.format(wanted=9, end=9),
        also=(
            (configured(candidateCount=1), ""),
            (configured(candidateCount=0), _CANDIDATES.format(wanted=0, end=9)),
        ),
    ),
    rule(
        "temperature",
        _temperature,
        _TEMPERATURE,
        evidence="S",
        passes=configured(temperature=2.0),
        offends=configured(temperature=2.1),
        also=(
            (configured(temperature=0), ""),
            (configured(temperature=-0.1), _TEMPERATURE),
        ),
    ),
    rule(
        "stops-most",
        _stops,
        "* GenerateContentRequest.generation_config.stop_sequences: the number of stop_sequences must not"
        " exceed 5.\n",
        evidence="S",
        passes=configured(stopSequences=list("abcde")),
        offends=configured(stopSequences=list("abcdef")),
    ),
    rule(
        "mime-type",
        _mime_type,
        "* GenerateContentRequest.generation_config.response_mime_type: allowed mimetypes are `text/plain`,"
        " `application/json`, `application/xml`, `application/yaml` and `text/x.enum`.\n",
        evidence="S",
        passes=configured(responseMimeType="text/x.enum"),
        offends=configured(responseMimeType="image/png"),
    ),
    rule(
        "odds-in-stream",
        _odds_in_stream,
        "LogProbs is not supported in streaming mode",
        evidence="S",
        passes=configured(responseLogprobs=True),
        offends=at(f"{MODEL}:streamGenerateContent", configured(responseLogprobs=True)),
        also=((at(f"{MODEL}:streamGenerateContent", asked()), ""),),
    ),
    rule(
        "thinking-both",
        _both_ways,
        "You can only set only one of thinking budget and thinking level.",
        evidence="S",
        passes=configured(thinkingConfig={"thinkingBudget": 512}),
        offends=configured(thinkingConfig={"thinkingBudget": 512, "thinking_level": "LOW"}),
    ),
    rule(
        "thinking-level",
        _level,
        "Thinking level is not supported for this model.",
        evidence="S",
        models="without that level",
        passes=configured(thinkingConfig={"thinkingLevel": "LOW"}),
        offends=configured(thinkingConfig={"thinkingLevel": "minimal"}),
        also=((to(None, configured(thinkingConfig={"thinkingLevel": "LOW"})), ""),),
    ),
    rule(
        "thinking-off",
        _no_budget,
        "Budget 0 is invalid. This model only works in thinking mode.",
        evidence="S",
        models="with a budget, without `disabled` thinking",
        passes=to(_SWITCHABLE, configured(thinkingConfig={"thinkingBudget": 0})),
        offends=to(BUDGETS, configured(thinkingConfig={"thinkingBudget": 0})),
        also=((configured(thinkingConfig={"thinkingBudget": 0}), ""),),
    ),
    rule(
        "thinking-budget",
        _budget_range,
        "The thinking budget {wanted} is invalid. Please choose a value between {least} and {most}.",
        evidence="K",
        models="with a budget",
        passes=to(_RANGED, configured(thinkingConfig={"thinkingBudget": 128})),
        offends=to(_RANGED, configured(thinkingConfig={"thinkingBudget": 127})),
        says="The thinking budget 127 is invalid. Please choose a value between 128 and 32768.",
        also=(
            (to(_RANGED, configured(thinkingConfig={"thinkingBudget": -1})), ""),
            (to(_RANGED, configured(thinkingConfig={"thinkingBudget": 32_768})), ""),
            (
                to(_RANGED, configured(thinkingConfig={"thinkingBudget": 32_769})),
                "The thinking budget 32769 is invalid. Please choose a value between 128 and 32768.",
            ),
            (
                to(
                    replace(_RANGED, thinking=("enabled", "disabled")),
                    configured(thinkingConfig={"thinkingBudget": 0}),
                ),
                "",
            ),
            (to(replace(_RANGED, allowance_mode=""), configured(thinkingConfig={"thinkingBudget": 1})), ""),
            (
                to(
                    replace(_RANGED, allowance_most=None),
                    configured(thinkingConfig={"thinkingBudget": 99_999}),
                ),
                "",
            ),
        ),
    ),
)

RULES = (
    *ENVELOPE_RULES,
    *FIELD_RULES,
    *ADDRESS_RULES,
    *SCHEMA_RULES,
    *TOOL_RULES,
    *CONTENT_RULES,
    *MEDIA_RULES,
    *CONFIG_RULES,
)
