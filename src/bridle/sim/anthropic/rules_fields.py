"""Field rules of a Messages request, in the order in which the provider checks them.

Only the first error is reported; the order was found by sending pairs of errors. A null is reported like any
other wrong type. Nothing here checks what the fields mean together.
"""

from collections.abc import Sequence

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import ErrorStyle, FieldMessage, FieldRow, FieldRules
from bridle.sim.rules.raw_request import JsonObject, field

from .request import rule

INVALID = "invalid_request_error"
BLOCKS = "messages[].content[]"
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING = ("adaptive", "enabled", "disabled", "between_tools")
CHOICES = ("auto", "any", "tool", "none")
WRONG_SHAPE = "Input does not match the expected shape."
NOT_REQUIRED_AT = {"model": ("/models/", "/model/"), "max_tokens": ("/count_tokens",)}
"""Paths at which a field is not required: other clouds have the model in the path, and counting takes no
limit."""
MESSAGE = ("role", "content", "output_config", "clear_at")
PREVIEWS = {
    "billing_policy": ("user-profiles-billing-",),
    "context_management": ("context-management-", "compact-"),
    "fallback_credit_token": ("server-side-fallback-",),
    "fallbacks": ("server-side-fallback-",),
    "mcp_servers": ("mcp-client-",),
    "output_format": ("structured-outputs-",),
    "thread": ("message-threads-",),
}
"""Fields that are unknown without a preview, with the prefixes of the beta names that switch it on."""


def _join_with_or(values: Sequence[object]) -> str:
    *first, last = (f"'{value}'" for value in values)
    return f"{', '.join(first)} or {last}"


FIELD_CHECKS = FieldRules(
    ErrorStyle(
        rule=rule,
        messages={
            "required": FieldMessage("{at}: Field required", INVALID),
            "type": FieldMessage("{at}: <expected>", INVALID),
            "value": FieldMessage("{at}: Input should be <expected>", INVALID),
            "least": FieldMessage("{at}: must be greater than or equal to <expected>", INVALID),
            "most": FieldMessage("{at}: range: 0..<expected>", INVALID),
            "length": FieldMessage("{at}: String should have at most <expected> characters", INVALID),
            "fields": FieldMessage("{at}: Extra inputs are not permitted", INVALID),
            "fields-of-all": FieldMessage("{name}: Extra inputs are not permitted", INVALID),
        },
        expected_names={
            "boolean": "Input should be a valid boolean",
            "integer": "Input should be a valid integer",
            "number": "Input should be a valid number",
            "string": "Input should be a valid string",
            "array": "Input should be a valid array",
            "string|array": "Input should be a valid array",
            "object": "Input should be an object",
        },
        index_format=".{}",
        null_is_missing=False,
        join_values=_join_with_or,
    )
)
refuse = FIELD_CHECKS.refuse


def required_rule(name: str, evidence: str) -> ProviderRule:
    """Require a field, except at the paths in `NOT_REQUIRED_AT`."""
    message = f"{name}: Field required"
    return rule(
        f"{name.replace('_', '-')}-required",
        lambda request: None if name in request.body or _is_not_required(request, name) else {},
        message,
        evidence=evidence,
    )


def _is_not_required(request: RawRequest, name: str) -> bool:
    return any(place in request.path for place in NOT_REQUIRED_AT.get(name, ()))


def _check_preview_fields(request: RawRequest) -> RuleFinding | None:
    """Refuse fields of previews that are not enabled; other clouds name them in the body."""
    betas = f"{request.headers.get('anthropic-beta', '')} {field(request, 'anthropic_beta')}"
    for name, previews in PREVIEWS.items():
        if name in request.body and not any(preview in betas for preview in previews):
            return {"name": name}
    return None


def _has_thinking_budget(thinking: JsonObject) -> bool:
    return thinking.get("type") == "enabled"


_CHOOSING = FieldRow(evidence="K")
_TAG = "{{at}}: Input tag '{{value}}' found using 'type' does not match any of the expected tags: {tags}"
_ROLE = 'messages: Unexpected role "{value}". Allowed roles are "user" or "assistant"'
_ROLE_REQUIRED = FieldRow(id="role-required")
_RANGE = "{at}: range: 0..1"
_GEO = "{at}: must be one of ['global', 'us']"


def _tag_rule(name: str, tags: tuple[str, ...], row: FieldRow) -> ProviderRule:
    words = _TAG.format(tags=", ".join(f"'{tag}'" for tag in tags))
    return FIELD_CHECKS.one_of(f"{name}.type", tags, row._replace(at=name, words=words))


def _sampling_rules(name: str) -> tuple[ProviderRule, ...]:
    """Make the rules for a setting between 0 and 1."""
    return (
        FIELD_CHECKS.of_type(name, "number"),
        FIELD_CHECKS.maximum(name, 1, FieldRow(words=_RANGE)),
        FIELD_CHECKS.minimum(name, 0, FieldRow(words=_RANGE)),
    )


FIELD_RULES = (
    required_rule("model", "F"),
    FIELD_CHECKS.of_type("model", "string"),
    FIELD_CHECKS.of_type("tool_choice", "object", FieldRow(evidence="S")),
    FIELD_CHECKS.required("tool_choice.type"),
    _tag_rule("tool_choice", CHOICES, _CHOOSING),
    FIELD_CHECKS.of_type("tool_choice.name", "string", _CHOOSING._replace(at="tool_choice.tool.name")),
    FIELD_CHECKS.of_type(
        "tool_choice.disable_parallel_tool_use",
        "boolean",
        _CHOOSING._replace(at="tool_choice.auto.disable_parallel_tool_use"),
    ),
    FIELD_CHECKS.of_type("tools", "array"),
    FIELD_CHECKS.of_type("tools[]", "object", FieldRow(id="tool-type")),
    required_rule("messages", "F"),
    FIELD_CHECKS.of_type("messages", "array"),
    FIELD_CHECKS.of_type("messages[]", "object", FieldRow(id="message-type", evidence="K")),
    FIELD_CHECKS.required("messages[].role", _ROLE_REQUIRED),
    FIELD_CHECKS.one_of("messages[].role", ("user", "assistant", "system"), FieldRow(id="role", words=_ROLE)),
    FIELD_CHECKS.required("messages[].content", FieldRow(id="content-required")),
    FIELD_CHECKS.of_type("messages[].content", "string|array", FieldRow(id="content-type")),
    FIELD_CHECKS.of_type("messages[].content[]", "object", FieldRow(id="block-type")),
    FIELD_CHECKS.required("messages[].content[].type", FieldRow(id="block-type-required")),
    FIELD_CHECKS.only_fields("messages[]", MESSAGE, FieldRow(id="message-fields")),
    FIELD_CHECKS.of_type("system", "string|array"),
    FIELD_CHECKS.of_type("system[]", "object", FieldRow(id="system-block"), expected=WRONG_SHAPE),
    FIELD_CHECKS.of_type("thinking", "object", FieldRow(evidence="S")),
    FIELD_CHECKS.required("thinking.type"),
    _tag_rule("thinking", THINKING, FieldRow(evidence="K")),
    FIELD_CHECKS.of_type(
        "thinking.budget_tokens",
        "integer",
        FieldRow(at="thinking.enabled.budget_tokens", only=_has_thinking_budget, evidence="S"),
    ),
    FIELD_CHECKS.required(
        "thinking.budget_tokens",
        FieldRow(at="thinking.enabled.budget_tokens", only=_has_thinking_budget, evidence="S"),
    ),
    FIELD_CHECKS.of_type("output_config", "object", expected=WRONG_SHAPE),
    FIELD_CHECKS.one_of("output_config.effort", EFFORTS, FieldRow(evidence="S")),
    FIELD_CHECKS.only_fields("output_config", ("effort", "format", "task_budget")),
    FIELD_CHECKS.of_type("cache_control", "object"),
    required_rule("max_tokens", "S"),
    FIELD_CHECKS.of_type("max_tokens", "integer"),
    FIELD_CHECKS.minimum("max_tokens", 0),
    FIELD_CHECKS.of_type("metadata", "object", expected=WRONG_SHAPE),
    FIELD_CHECKS.only_fields("metadata", ("user_id",)),
    FIELD_CHECKS.of_type("metadata.user_id", "string|null"),
    FIELD_CHECKS.of_type("stop_sequences", "array"),
    FIELD_CHECKS.of_type("stop_sequences[]", "string", FieldRow(id="stop-sequence-type")),
    *_sampling_rules("temperature"),
    FIELD_CHECKS.one_of("service_tier", ("auto", "standard_only")),
    FIELD_CHECKS.of_type("top_k", "integer"),
    *_sampling_rules("top_p"),
    FIELD_CHECKS.of_type("stream", "boolean"),
    FIELD_CHECKS.of_type(
        "container", "string|object", FieldRow(at="container.ContainerParams"), expected=WRONG_SHAPE
    ),
    FIELD_CHECKS.of_type("inference_geo", "string"),
    FIELD_CHECKS.one_of("inference_geo", ("global", "us"), FieldRow(words=_GEO)),
    FIELD_CHECKS.one_of("speed", ("standard", "fast"), FieldRow(evidence="D")),
)

PREVIEW_RULES = (
    rule("preview-fields", _check_preview_fields, "{name}: Extra inputs are not permitted", evidence="D"),
)
