"""Rules of the Responses API, with its own messages.

The order is the provider's as far as it is known: required fields, unknown fields, each field, input, tools,
the answer format, and last what one model does not support. The abilities in the model table say what a model
supports, never its name.

References to stored objects (responses, conversations, encrypted reasoning) are not checked here, because
they depend on more than one request. A request that lets the provider drop the oldest items is never too
long.
"""

from msgspec.structs import replace

from bridle.sim.openai.error_style import FIELD_CHECKS, refuse, rule
from bridle.sim.openai.rules_cache import cache_rules
from bridle.sim.openai.rules_models import JSON_RULE, effort_level_rule, sampling_rule
from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import JsonObject, field, find_output_excess, find_unknown_model

from .compaction import COMPACTION_RULES
from .request import is_reasoning, requested_effort
from .rules_fields import SETTING_RULES
from .rules_item_links import LINK_RULES
from .rules_items import ITEM_RULES, MEDIA_RULES
from .rules_tools import FORMAT_RULES, TOOL_RULES

BODY_FIELDS = ("access_programs", "background", "client_metadata", "context_management", "conversation", "image",
          "include", "input", "instructions", "max_output_tokens", "max_tool_calls", "metadata", "model",
          "moderation", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
          "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier",
          "store", "stream", "stream_options", "temperature", "text", "tool_choice", "tools",
          "top_logprobs", "top_p", "truncation", "user")  # fmt: skip
MOVED_FIELDS = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
"""Fields of the older wire, with their equivalents in this one."""


INPUT_FIELDS = ("input", "previous_response_id", "prompt", "conversation")


def _find_moved_field(body: JsonObject) -> RuleFinding | None:
    moved = ((name, place) for name, place in MOVED_FIELDS.items() if name in body)
    return next(({"name": name, "place": place} for name, place in moved), None)


def _check_logprobs_model(request: RawRequest) -> RuleFinding | None:
    wanted = field(request, "top_logprobs")
    return {} if is_reasoning(request) and isinstance(wanted, int) and wanted > 0 else None


def _check_effort_model(request: RawRequest) -> RuleFinding | None:
    return {} if requested_effort(request) and request.abilities and not request.abilities.efforts else None


def _find_effort(request: RawRequest) -> str | None:
    effort = requested_effort(request)
    return effort if isinstance(effort, str) else None


ENVELOPE_RULES = (
    JSON_RULE,
    FIELD_CHECKS.required(
        "model", FieldRow(id="model-required", only=lambda body: "prompt" not in body, evidence="S")
    ),
    replace(
        rule(
            "model-known",
            find_unknown_model,
            "The requested model '{model}' does not exist.",
            param="model",
            evidence="S",
            code="model_not_found",
        ),
        kind="not_found",
    ),
    refuse(
        "field-moved",
        "",
        _find_moved_field,
        "Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{place}'."
        " Try again with the new parameter. See the API documentation for more information:"
        " https://platform.openai.com/docs/quickstart?api-mode=responses.",
        evidence="S",
        code="unsupported_parameter",
    ),
    FIELD_CHECKS.only_fields("", BODY_FIELDS, FieldRow(id="fields", evidence="S")),
    refuse(
        "input-required",
        "",
        lambda body: all(body.get(name) is None for name in INPUT_FIELDS),
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
        evidence="S",
        code="missing_required_parameter",
    ),
    FIELD_CHECKS.of_type(
        "input",
        "string|array|null",
        FieldRow(id="input-type", evidence="F"),
        expected="one of an array of objects or string",
    ),
    FIELD_CHECKS.of_type("input[]", "object", FieldRow(id="item-type", evidence="F")),
)

MODEL_RULES = (
    sampling_rule("temperature", requested_effort),
    sampling_rule("top_p", requested_effort, accepted=(None,)),
    rule(
        "logprobs-model",
        _check_logprobs_model,
        "logprobs are not supported with reasoning models.",
        param="top_logprobs",
        evidence="S",
        models="that reason",
        code="unsupported_parameter",
    ),
    rule(
        "output-most",
        lambda request: find_output_excess(request, field(request, "max_output_tokens")),
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {most}, but got"
        " {wanted} instead.",
        param="max_output_tokens",
        evidence="K",
        models="with a known limit",
        code="integer_above_max_value",
    ),
    rule(
        "effort-model",
        _check_effort_model,
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        param="reasoning.effort",
        evidence="S",
        models="without efforts",
        code="unsupported_parameter",
    ),
    effort_level_rule(
        "reasoning.effort",
        _find_effort,
        "Unsupported value: '{effort}' is not supported with the '{model}' model. Supported values are:"
        " {efforts}.",
    ),
)


CACHE_OPTIONS = ("mode", "ttl", "prewarm", "comparison_response_id")
CACHE_RULES = cache_rules(("input[].content[]", "input[].output[]"), CACHE_OPTIONS, ("30m", "12h"))

RULES = (
    *ENVELOPE_RULES,
    *ITEM_RULES,
    *TOOL_RULES,
    *SETTING_RULES,
    *CACHE_RULES,
    *COMPACTION_RULES,
    *FORMAT_RULES,
    *MODEL_RULES,
    *MEDIA_RULES,
    *LINK_RULES,
)


_WINDOW_MESSAGE = (
    "Your input exceeds the context window of this model. Please adjust your input and try again."
)


def _check_prompt_window(request: RawRequest) -> RuleFinding | None:
    abilities = request.abilities
    if abilities is None or request.body.get("truncation") == "auto":
        return None
    return {} if request.prompt_tokens > abilities.prompt_tokens_max else None


WINDOW_RULES = (
    ProviderRule(
        id="prompt-window",
        find=_check_prompt_window,
        wording=_WINDOW_MESSAGE,
        evidence="S",
        type="context_length_exceeded",
        kind="context",
        param="input",
    ),
)
