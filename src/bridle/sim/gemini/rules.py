"""Rules of generateContent, with its own messages.

The order is the provider's as far as it is known: JSON is parsed into typed fields first, and what cannot be
parsed is refused; then each field is checked; then combinations of fields. Rules about tools, schemas and
contents are in the other rules_*.py files of this folder.

The abilities in the model table say what a model supports, never its name. Models with thinking levels also
require signatures, accept one role fewer, and accept functions together with everything else.
"""

import re

from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import JsonObject, find_malformed_json

from .request import as_list, find_model_and_method, generation_setting, member, rule, thinking_setting
from .rules_fields import FIELD_CHECKS, FIELD_RULES, refuse
from .rules_messages import CONTENT_RULES, MEDIA_RULES
from .rules_schemas import SCHEMA_RULES
from .rules_tools import TOOL_RULES

BODY_FIELDS = [
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
MODEL_NAME = re.compile(r"[A-Za-z0-9._@-]+")
MIME_TYPES = ("text/plain", "application/json", "application/xml", "application/yaml", "text/x.enum")
CONFIG = "generationConfig"
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


def _check_model_name(request: RawRequest) -> RuleFinding | None:
    name, _ = find_model_and_method(request)
    return {} if name and not MODEL_NAME.fullmatch(name) else None


def _check_model_known(request: RawRequest) -> RuleFinding | None:
    name, method = find_model_and_method(request)
    method = "generateContent" if method == "streamGenerateContent" else method
    return {"model": name, "method": method} if request.abilities is None else None


def _check_output_most(request: RawRequest) -> RuleFinding | None:
    wanted, abilities = generation_setting(request, "maxOutputTokens"), request.abilities
    if abilities is None or not isinstance(wanted, int):
        return None
    if wanted >= 1 and (wanted <= abilities.output_tokens or not abilities.output_limited):
        return None
    return {"wanted": wanted, "end": abilities.output_tokens + 1}


def _check_candidate_count(config: JsonObject) -> RuleFinding | None:
    wanted = member(config, "candidateCount")
    odd = isinstance(wanted, int) and not 1 <= wanted <= CANDIDATES_MAX
    return {"wanted": wanted, "end": CANDIDATES_MAX + 1} if odd else None


def _is_out_of_range(config: JsonObject) -> bool:
    temperature = member(config, "temperature")
    return isinstance(temperature, int | float) and not 0 <= temperature <= 2


def _check_logprobs_in_stream(request: RawRequest) -> RuleFinding | None:
    streams = find_model_and_method(request)[1] == "streamGenerateContent"
    return {} if streams and generation_setting(request, "responseLogprobs") is True else None


def _check_thinking_level(request: RawRequest) -> RuleFinding | None:
    level, abilities = thinking_setting(request, "thinkingLevel"), request.abilities
    if abilities is None or not isinstance(level, str) or level.lower() in abilities.efforts:
        return None
    return {}


def _check_thinking_budget(request: RawRequest) -> RuleFinding | None:
    abilities, wanted = request.abilities, thinking_setting(request, "thinkingBudget")
    if abilities is None or not abilities.allowance_mode or not isinstance(wanted, int) or wanted in (-1, 0):
        return None
    least, most = abilities.allowance_least, abilities.allowance_most
    if least <= wanted and (most is None or wanted <= most):
        return None
    return {"wanted": wanted, "least": least, "most": most}


ENVELOPE_RULES = (
    rule("json", find_malformed_json, "Invalid JSON payload received. {why}", evidence="S"),
    FIELD_CHECKS.only_fields("", BODY_FIELDS, FieldRow(id="field", evidence="S")),
)

ADDRESS_RULES = (
    rule(
        "model-name",
        _check_model_name,
        "* GenerateContentRequest.model: unexpected model name format\n",
        evidence="S",
    ),
    replace(
        rule("model-known", _check_model_known, _NOT_FOUND, evidence="S"),
        status=404,
        type="NOT_FOUND",
        kind="not_found",
    ),
)

CONFIG_RULES = (
    rule("output-most", _check_output_most, _OUTPUT, evidence="S"),
    refuse("candidates", CONFIG, _check_candidate_count, _CANDIDATES, evidence="F"),
    refuse("temperature", CONFIG, _is_out_of_range, _TEMPERATURE, evidence="S"),
    refuse(
        "stops-most",
        CONFIG,
        lambda config: len(as_list(member(config, "stopSequences"))) > STOPS_MAX,
        "* GenerateContentRequest.generation_config.stop_sequences: the number of stop_sequences must not"
        " exceed 5.\n",
        evidence="S",
    ),
    refuse(
        "mime-type",
        CONFIG,
        lambda config: member(config, "responseMimeType") not in (None, *MIME_TYPES),
        "* GenerateContentRequest.generation_config.response_mime_type: allowed mimetypes are `text/plain`,"
        " `application/json`, `application/xml`, `application/yaml` and `text/x.enum`.\n",
        evidence="S",
    ),
    rule(
        "odds-in-stream",
        _check_logprobs_in_stream,
        "LogProbs is not supported in streaming mode",
        evidence="S",
    ),
    refuse(
        "thinking-both",
        f"{CONFIG}.thinkingConfig",
        lambda thinking: (
            member(thinking, "thinkingBudget") is not None and member(thinking, "thinkingLevel") is not None
        ),
        "You can only set only one of thinking budget and thinking level.",
        evidence="S",
    ),
    rule(
        "thinking-level",
        _check_thinking_level,
        "Thinking level is not supported for this model.",
        evidence="S",
        models="without that level",
    ),
    refuse(
        "thinking-off",
        f"{CONFIG}.thinkingConfig",
        lambda thinking: member(thinking, "thinkingBudget") == 0,
        "Budget 0 is invalid. This model only works in thinking mode.",
        evidence="S",
        models="with a budget, without `disabled` thinking",
        when=lambda able: able.allowance_mode and "disabled" not in able.thinking,
    ),
    rule(
        "thinking-budget",
        _check_thinking_budget,
        "The thinking budget {wanted} is invalid. Please choose a value between {least} and {most}.",
        evidence="K",
        models="with a budget",
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


# A prompt must leave at least one token of the context window free.


def _check_prompt_window(request: RawRequest) -> RuleFinding | None:
    abilities, tokens = request.abilities, request.prompt_tokens
    if abilities is None or tokens < abilities.context_tokens:
        return None
    return {"tokens": tokens, "most": abilities.context_tokens - 1}


WINDOW_RULES = (
    ProviderRule(
        id="prompt-window",
        find=_check_prompt_window,
        wording="The input token count ({tokens}) exceeds the maximum number of tokens allowed ({most}).",
        evidence="S",
        type="INVALID_ARGUMENT",
        kind="context",
    ),
)
