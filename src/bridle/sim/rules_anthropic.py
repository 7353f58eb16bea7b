"""What the Messages API refuses, in its own words.

The order is the provider's as far as it is known: the envelope, each field by
itself, summaries, tools, messages, and last what one model cannot do.  Tools and messages have
files of their own beside this one.

What a model can do is never decided by its name: its abilities in the model table
say it.  A model nobody knows is refused as such before any of that is asked.
"""

from msgspec.structs import replace

from ._rules_anthropic_compaction import COMPACTION_RULES
from ._rules_anthropic_demand import DEMAND_RULES
from ._rules_anthropic_fields import FIELD_RULES, PREVIEW_RULES
from ._rules_anthropic_foreign import FOREIGN_RULES
from ._rules_anthropic_formats import FORMAT_RULES
from ._rules_anthropic_marks import MARK_RULES
from ._rules_anthropic_media import MEDIA_RULES
from ._rules_anthropic_messages import MESSAGE_RULES
from ._rules_anthropic_models import MODEL_RULES
from ._rules_anthropic_shape import (
    NEW_VERSION,
    OLD_VERSION,
    PREFILLS,
    asked,
    rule,
    under,
    version,
)
from ._rules_anthropic_system import SYSTEM_RULES
from ._rules_anthropic_threads import THREAD_RULES
from ._rules_anthropic_tools import TOOL_RULES
from ._rules_reading import (
    field,
    to,
)
from .rules import Asked, Found

BODY_BYTES_MAX = 32 * 1024 * 1024
VERSIONS = ("2023-01-01", OLD_VERSION, NEW_VERSION)


FIELDS = frozenset(
    {
        "anthropic_beta", "anthropic_version", "cache_control", "compaction", "container",
        "context_management",
        "diagnostics", "fallback_credit_token", "fallbacks", "inference_geo", "max_tokens", "mcp_servers",
        "messages", "metadata", "model", "output_config", "output_format", "service_tier", "speed",
        "stop_sequences", "stream", "system", "temperature", "thinking", "thread", "tool_choice", "tools",
        "top_k", "top_p", "user_profile_id", "workspace_id",
    }
)  # fmt: skip
"""Everything a request may say, under any version and in any preview, here or in another cloud."""


def _too_large(request: Asked) -> Found | None:
    return {} if request.size > BODY_BYTES_MAX else None


def _no_version(request: Asked) -> Found | None:
    return None if version(request) else {}


def _bad_version(request: Asked) -> Found | None:
    return None if version(request) in VERSIONS else {"version": version(request)}


def _malformed(request: Asked) -> Found | None:
    return {"why": request.malformed} if request.malformed else None


def _two_keys(request: Asked) -> Found | None:
    return {} if "x-api-key" in request.headers and "authorization" in request.headers else None


def _unknown_field(request: Asked) -> Found | None:
    return next(({"name": name} for name in request.body if name not in FIELDS), None)


def _unknown_model(request: Asked) -> Found | None:
    return {"model": field(request, "model")} if request.abilities is None else None


def _too_much_output(request: Asked) -> Found | None:
    wanted, abilities = field(request, "max_tokens"), request.abilities
    if abilities is None or not abilities.output_limited:
        return None
    if not isinstance(wanted, int) or wanted <= abilities.output_tokens:
        return None
    return {"wanted": wanted, "most": abilities.output_tokens, "model": field(request, "model")}


def _with(*names: str) -> Asked:
    return replace(asked(), headers={**asked().headers, **dict.fromkeys(names, "key")})


ENVELOPE_RULES = (
    replace(
        rule(
            "body-size",
            _too_large,
            "Request exceeds the maximum size",
            evidence="S",
            passes=replace(asked(), size=33_554_432),
            offends=replace(asked(), size=33_554_433),
        ),
        status=413,
        type="request_too_large",
        kind="too_large",
    ),
    replace(
        rule(
            "one-key",
            _two_keys,
            "x-api-key and authorization headers cannot both be given",
            evidence="K",
            passes=_with("authorization"),
            offends=_with("x-api-key", "authorization"),
            also=((_with("x-api-key"), ""),),
        ),
        status=401,
        type="authentication_error",
        kind="unauthorized",
    ),
    rule(
        "version-header",
        _no_version,
        "anthropic-version: header is required",
        evidence="S",
        passes=asked(),
        offends=under("", asked()),
    ),
    rule(
        "version-known",
        _bad_version,
        'anthropic-version: "{version}" is not a valid version',
        evidence="S",
        passes=under(OLD_VERSION, asked()),
        offends=under("2024-10-22", asked()),
        says='anthropic-version: "2024-10-22" is not a valid version',
    ),
    rule(
        "json",
        _malformed,
        "The request body is not valid JSON: {why}",
        evidence="S",
        passes=asked(),
        offends=replace(asked(), malformed="no low surrogate in string: line 1 column 9 (char 8)"),
        says="The request body is not valid JSON: no low surrogate in string: line 1 column 9 (char 8)",
    ),
    *FIELD_RULES,
    rule(
        "fields",
        _unknown_field,
        "{name}: Extra inputs are not permitted",
        evidence="S",
        passes=asked(metadata={"user_id": "u"}),
        offends=asked(max_completion_tokens=4096),
        says="max_completion_tokens: Extra inputs are not permitted",
    ),
    *PREVIEW_RULES,
)

SENSE_RULES = (
    replace(
        rule(
            "model-known",
            _unknown_model,
            "model: {model}",
            evidence="S",
            passes=asked(),
            offends=to(None, asked(model="no-such-model")),
            says="model: no-such-model",
        ),
        status=404,
        type="not_found_error",
        kind="not_found",
    ),
    rule(
        "max-tokens-limit",
        _too_much_output,
        "max_tokens: {wanted} > {most}, which is the maximum allowed number of output tokens for {model}",
        evidence="S",
        passes=to(PREFILLS, asked(max_tokens=64_000)),
        offends=to(PREFILLS, asked(max_tokens=64_001)),
        models="with a known limit",
        says="max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens for some-model",
        also=((to(replace(PREFILLS, output_limited=False), asked(max_tokens=64_001)), ""),),
    ),
)

RULES = (
    *ENVELOPE_RULES,
    *SENSE_RULES,
    *DEMAND_RULES,
    *COMPACTION_RULES,
    *FOREIGN_RULES,
    *THREAD_RULES,
    *TOOL_RULES,
    *FORMAT_RULES,
    *SYSTEM_RULES,
    *MESSAGE_RULES,
    *MARK_RULES,
    *MEDIA_RULES,
    *MODEL_RULES,
)
