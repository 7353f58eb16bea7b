"""Rules of the Messages API, with its own messages.

The order is the provider's as far as it is known: the envelope, each field, summaries, tools, messages, and
last what one model does not support. Rules about tools and messages are in files beside this one. The
abilities in the model table say what a model supports, never its name. An unknown model is refused before any
of that is checked.

A prompt longer than the context window is refused. Requested output that does not fit beside the prompt is
not: the answer is cut at the end of the window, and says so.
"""

from msgspec.structs import replace

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import field, find_malformed_json, find_output_excess, find_unknown_model

from .compaction import COMPACTION_REQUEST_RULES
from .request import NEW_VERSION, OLD_VERSION, rule, version
from .rules_cache import CACHE_RULES
from .rules_compaction import COMPACTION_RULES
from .rules_fields import FIELD_CHECKS, FIELD_RULES, PREVIEW_RULES
from .rules_messages import MEDIA_RULES, MESSAGE_RULES
from .rules_models import MODEL_RULES
from .rules_system import SYSTEM_RULES
from .rules_tools import FOREIGN_RULES, FORMAT_RULES, TOOL_RULES
from .threads import THREAD_RULES

# not from outside: the limit of the vendor that is simulated
BODY_BYTES_MAX = 32 * 1024 * 1024
VERSIONS = ("2023-01-01", OLD_VERSION, NEW_VERSION)


BODY_FIELDS = (
        "anthropic_beta", "anthropic_version", "billing_policy", "cache_control", "compaction", "container",
        "context_management",
        "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo", "max_tokens", "mcp_servers",
        "messages", "metadata", "model", "output_config", "output_format", "service_tier", "speed",
        "stop_sequences", "stream", "system", "temperature", "thinking", "thread", "tool_choice", "tools",
        "top_k", "top_p",
)  # fmt: skip
"""Every field of a request, in any version and any preview, here or on another cloud."""


def _check_body_size(request: RawRequest) -> RuleFinding | None:
    return {} if request.size > BODY_BYTES_MAX else None


def _check_version_header(request: RawRequest) -> RuleFinding | None:
    return None if version(request) else {}


def _check_version_known(request: RawRequest) -> RuleFinding | None:
    return None if version(request) in VERSIONS else {"version": version(request)}


def _check_one_key(request: RawRequest) -> RuleFinding | None:
    return {} if "x-api-key" in request.headers and "authorization" in request.headers else None


ENVELOPE_RULES = (
    replace(
        rule("body-size", _check_body_size, "Request exceeds the maximum size", evidence="S"),
        status=413,
        type="request_too_large",
        kind="too_large",
    ),
    replace(
        rule(
            "one-key",
            _check_one_key,
            "x-api-key and authorization headers cannot both be given",
            evidence="K",
        ),
        status=401,
        type="authentication_error",
        kind="unauthorized",
    ),
    rule("version-header", _check_version_header, "anthropic-version: header is required", evidence="S"),
    rule(
        "version-known",
        _check_version_known,
        'anthropic-version: "{version}" is not a valid version',
        evidence="S",
    ),
    rule("json", find_malformed_json, "The request body is not valid JSON: {why}", evidence="S"),
    *FIELD_RULES,
    FIELD_CHECKS.only_fields("", BODY_FIELDS, FieldRow(id="fields", evidence="S")),
    *PREVIEW_RULES,
)

SENSE_RULES = (
    replace(
        rule("model-known", find_unknown_model, "model: {model}", evidence="S"),
        status=404,
        type="not_found_error",
        kind="not_found",
    ),
    rule(
        "max-tokens-limit",
        lambda request: find_output_excess(request, field(request, "max_tokens")),
        "max_tokens: {wanted} > {most}, which is the maximum allowed number of output tokens for {model}",
        evidence="S",
        models="with a known limit",
    ),
)

RULES = (
    *ENVELOPE_RULES,
    *SENSE_RULES,
    *COMPACTION_REQUEST_RULES,
    *COMPACTION_RULES,
    *FOREIGN_RULES,
    *THREAD_RULES,
    *TOOL_RULES,
    *FORMAT_RULES,
    *SYSTEM_RULES,
    *MESSAGE_RULES,
    *CACHE_RULES,
    *MEDIA_RULES,
    *MODEL_RULES,
)


def _check_prompt_window(request: RawRequest) -> RuleFinding | None:
    abilities, tokens = request.abilities, request.prompt_tokens
    if abilities is None or tokens <= abilities.context_tokens:
        return None
    return {"tokens": tokens, "most": abilities.context_tokens}


WINDOW_RULES = (
    replace(
        rule(
            "prompt-window",
            _check_prompt_window,
            "prompt is too long: {tokens} tokens > {most} maximum",
            evidence="S",
        ),
        kind="context",
    ),
)
