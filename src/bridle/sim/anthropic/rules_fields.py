"""The fields of a Messages request, each with what it has to be, in the order in which they are looked at.

A request that is wrong twice is told of the first one; that order is not the documents', it was found by
sending pairs of faults.  Every field that is there has to be something: a null is told like any other wrong
kind.  Nothing here asks what the fields mean together.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import ErrorStyle, FieldMessage, FieldRow, FieldRules
from bridle.sim.rules.raw_request import JsonObject, field, for_model

from .request import OLD_VERSION, PREFILLING, example, rule, text, tool, user, with_version

INVALID = "invalid_request_error"
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING = ("adaptive", "enabled", "disabled", "between_tools")
CHOICES = ("auto", "any", "tool", "none")
WRONG_SHAPE = "Input does not match the expected shape."
NOT_REQUIRED_AT = {"model": ("/models/", "/model/"), "max_tokens": ("/count_tokens",)}
"""What need not be said where: other clouds have the model in the path, and counting takes no limit."""
OTHER_PATHS = {
    "/v1/messages/count_tokens": ("max_tokens",),
    "/v1/publishers/anthropic/models/some-model:rawPredict": ("model",),
    "/model/some-model/invoke": ("model",),
}
"""Other places where requests of this wire go, and what they do not have to say there."""
MESSAGE = ("role", "content", "output_config", "clear_at")
PREVIEWS = {
    "fallback_credit_token": "server-side-fallback-",
    "fallbacks": "server-side-fallback-",
    "mcp_servers": "mcp-client-",
    "output_format": "structured-outputs-",
    "thread": "message-threads-",
}
"""Fields that are unknown to those who do not ask for the preview, and how its name begins."""


def _join_with_or(values: Sequence[object]) -> str:
    *first, last = (f"'{value}'" for value in values)
    return f"{', '.join(first)} or {last}"


FIELD_CHECKS = FieldRules(
    ErrorStyle(
        example=example,
        rule=rule,
        messages={
            "required": FieldMessage("{at}: Field required", INVALID),
            "type": FieldMessage("{at}: <expected>", INVALID),
            "value": FieldMessage("{at}: Input should be <expected>", INVALID),
            "least": FieldMessage("{at}: must be greater than or equal to <expected>", INVALID),
            "most": FieldMessage("{at}: range: 0..<expected>", INVALID),
            "fields": FieldMessage("{at}: Extra inputs are not permitted", INVALID),
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


def required_rule(name: str, evidence: str) -> ProviderRule:
    """A field that has to be there, but for where it is said otherwise."""
    told = f"{name}: Field required"
    return rule(
        f"{name.replace('_', '-')}-required",
        lambda request: None if name in request.body or _is_not_required(request, name) else {},
        told,
        evidence=evidence,
        passes=example(),
        offends=example(**{name: None}),
        also=tuple(
            (replace(example(**{name: None}), path=path), "" if name in spared else told)
            for path, spared in OTHER_PATHS.items()
        ),
    )


def _is_not_required(request: RawRequest, name: str) -> bool:
    return any(place in request.path for place in NOT_REQUIRED_AT.get(name, ()))


def _check_preview_fields(request: RawRequest) -> RuleFinding | None:
    """Other clouds have the names of previews in the body."""
    asked_for = f"{request.headers.get('anthropic-beta', '')} {field(request, 'anthropic_beta')}"
    for name, preview in PREVIEWS.items():
        if name in request.body and preview not in asked_for:
            return {"name": name}
    return None


def _example_with_null(name: str) -> RawRequest:
    return replace(example(), body={**example().body, name: None})


def _has_thinking_budget(thinking: JsonObject) -> bool:
    return thinking.get("type") == "enabled"


_NO_SWITCH = "stream: Input should be a valid boolean"


def _example_old_version(**fields: object) -> RawRequest:
    """A request to a model, under a version, that still take sampling."""
    return with_version(OLD_VERSION, for_model(PREFILLING, example(**fields)))


def _example_with_betas(*names: str) -> RawRequest:
    given = {**example().headers, "anthropic-beta": ", ".join(names)}
    return replace(example(mcp_servers=[]), headers=given)


_TOOLS: JsonObject = {"tools": [tool()]}
_HELLO: JsonObject = {"role": "user"}
_CHOOSING = FieldRow(beside=_TOOLS, evidence="K")
_TAG = "{{at}}: Input tag '{{value}}' found using 'type' does not match any of the expected tags: {tags}"
_ROLE = 'messages: Unexpected role "{value}". Allowed roles are "user" or "assistant"'
_ROLE_REQUIRED = FieldRow(
    id="role-required",
    within={"content": "Hello"},
    also=((example(messages=[{"role": None, "content": "Hello"}]), ""),),
)
_RANGE = "{at}: range: 0..1"
_GEO = "{at}: must be one of ['global', 'us']"
_BUDGET: JsonObject = {"type": "enabled"}


def _tag_rule(name: str, tags: tuple[str, ...], row: FieldRow) -> ProviderRule:
    words = _TAG.format(tags=", ".join(f"'{tag}'" for tag in tags))
    return FIELD_CHECKS.one_of(f"{name}.type", tags, tags[0], "bogus", row._replace(at=name, words=words))


def _sampling_rules(name: str) -> tuple[ProviderRule, ...]:
    """A share of one, for those who may still say it."""
    return (
        FIELD_CHECKS.of_type(
            name, "number", _example_old_version(**{name: 0.5}), _example_old_version(**{name: "x"})
        ),
        FIELD_CHECKS.maximum(
            name,
            1,
            _example_old_version(**{name: 1}),
            _example_old_version(**{name: 1.5}),
            FieldRow(words=_RANGE),
        ),
        FIELD_CHECKS.minimum(
            name,
            0,
            _example_old_version(**{name: 0}),
            _example_old_version(**{name: -0.5}),
            FieldRow(words=_RANGE),
        ),
    )


FIELD_RULES = (
    required_rule("model", "F"),
    FIELD_CHECKS.of_type("model", "string", "some-model", 7),
    FIELD_CHECKS.of_type(
        "tool_choice", "object", {"type": "auto"}, "auto", FieldRow(beside=_TOOLS, evidence="S")
    ),
    FIELD_CHECKS.required(
        "tool_choice.type", "auto", FieldRow(beside=_TOOLS, within={"disable_parallel_tool_use": True})
    ),
    _tag_rule("tool_choice", CHOICES, _CHOOSING),
    FIELD_CHECKS.of_type(
        "tool_choice.name",
        "string",
        example(tool_choice={"type": "auto"}, **_TOOLS),
        7,
        _CHOOSING._replace(at="tool_choice.tool.name", within={"type": "tool"}),
    ),
    FIELD_CHECKS.of_type(
        "tool_choice.disable_parallel_tool_use",
        "boolean",
        True,
        "yes",
        _CHOOSING._replace(at="tool_choice.auto.disable_parallel_tool_use", within={"type": "auto"}),
    ),
    FIELD_CHECKS.of_type("tools", "array", [tool()], "look"),
    FIELD_CHECKS.of_type("tools[]", "object", tool(), 7, FieldRow(id="tool-type")),
    required_rule("messages", "F"),
    FIELD_CHECKS.of_type("messages", "array", [user("Hello")], "Hello"),
    FIELD_CHECKS.of_type(
        "messages[]", "object", user("Hello"), "Hello", FieldRow(id="message-type", evidence="K")
    ),
    FIELD_CHECKS.required("messages[].role", "user", _ROLE_REQUIRED),
    FIELD_CHECKS.one_of(
        "messages[].role",
        ("user", "assistant", "system"),
        "user",
        "developer",
        FieldRow(id="role", words=_ROLE, within={"content": "Hello"}),
    ),
    FIELD_CHECKS.required("messages[].content", "Hello", FieldRow(id="content-required", within=_HELLO)),
    FIELD_CHECKS.of_type(
        "messages[].content", "string|array", [text("Hello")], 7, FieldRow(id="content-type", within=_HELLO)
    ),
    FIELD_CHECKS.of_type(
        "messages[].content[]",
        "object",
        example(messages=[user(text("Hello"))]),
        example(messages=[user("Hello"), user(text("Hello"), 7)]),
        FieldRow(id="block-type", says="messages.1.content.1: Input should be an object"),
    ),
    FIELD_CHECKS.required(
        "messages[].content[].type",
        example(messages=[user(text("Hello"))]),
        FieldRow(id="block-type-required", says="messages.0.content.1.type: Field required"),
        refuses=example(messages=[user(text("Hello"), {"text": "Hello"})]),
    ),
    FIELD_CHECKS.only_fields(
        "messages[]", MESSAGE, user("Hello"), "name", FieldRow(id="message-fields", within=user("Hello"))
    ),
    FIELD_CHECKS.of_type("system", "string|array", "Be brief.", 7),
    FIELD_CHECKS.of_type(
        "system[]", "object", text("Be brief."), 7, FieldRow(id="system-block"), expected=WRONG_SHAPE
    ),
    FIELD_CHECKS.of_type("thinking", "object", {"type": "adaptive"}, "x", FieldRow(evidence="S")),
    FIELD_CHECKS.required("thinking.type", "adaptive", FieldRow(within={"display": "summarized"})),
    _tag_rule("thinking", THINKING, FieldRow(evidence="K")),
    FIELD_CHECKS.of_type(
        "thinking.budget_tokens",
        "integer",
        for_model(PREFILLING, example(thinking={"type": "enabled", "budget_tokens": 1024})),
        "many",
        FieldRow(
            at="thinking.enabled.budget_tokens",
            within=_BUDGET,
            only=_has_thinking_budget,
            model=PREFILLING,
            evidence="S",
        ),
    ),
    FIELD_CHECKS.required(
        "thinking.budget_tokens",
        1024,
        FieldRow(
            at="thinking.enabled.budget_tokens",
            within=_BUDGET,
            only=_has_thinking_budget,
            model=PREFILLING,
            evidence="S",
        ),
    ),
    FIELD_CHECKS.of_type("output_config", "object", {"effort": "low"}, "x", expected=WRONG_SHAPE),
    FIELD_CHECKS.one_of("output_config.effort", EFFORTS, "low", "minimal", FieldRow(evidence="S")),
    FIELD_CHECKS.only_fields(
        "output_config", ("effort", "format", "task_budget"), {"effort": "low"}, "bogus"
    ),
    FIELD_CHECKS.of_type("cache_control", "object", {"type": "ephemeral"}, "x"),
    required_rule("max_tokens", "S"),
    FIELD_CHECKS.of_type("max_tokens", "integer", 1, "x"),
    FIELD_CHECKS.minimum("max_tokens", 0, 0, -1),
    FIELD_CHECKS.of_type("metadata", "object", {"user_id": "u"}, 5, expected=WRONG_SHAPE),
    FIELD_CHECKS.only_fields("metadata", ("user_id",), {"user_id": "u"}, "bogus"),
    FIELD_CHECKS.of_type("metadata.user_id", "string|null", "u", 7),
    FIELD_CHECKS.of_type("stop_sequences", "array", ["END"], "END"),
    FIELD_CHECKS.of_type("stop_sequences[]", "string", "END", 1, FieldRow(id="stop-sequence-type")),
    *_sampling_rules("temperature"),
    FIELD_CHECKS.one_of("service_tier", ("auto", "standard_only"), "auto", "bogus"),
    FIELD_CHECKS.of_type("top_k", "integer", _example_old_version(top_k=5), _example_old_version(top_k="x")),
    *_sampling_rules("top_p"),
    FIELD_CHECKS.of_type(
        "stream", "boolean", True, "yes", FieldRow(also=((_example_with_null("stream"), _NO_SWITCH),))
    ),
    FIELD_CHECKS.of_type(
        "container",
        "string|object",
        "container_1",
        7,
        FieldRow(at="container.ContainerParams"),
        expected=WRONG_SHAPE,
    ),
    FIELD_CHECKS.of_type("inference_geo", "string", "us", 7),
    FIELD_CHECKS.one_of("inference_geo", ("global", "us"), "us", "moon", FieldRow(words=_GEO)),
    FIELD_CHECKS.one_of("speed", ("standard", "fast"), "fast", "ludicrous", FieldRow(evidence="D")),
)

PREVIEW_RULES = (
    rule(
        "preview-fields",
        _check_preview_fields,
        "{name}: Extra inputs are not permitted",
        evidence="D",
        passes=_example_with_betas("mcp-client-2025-11-20"),
        offends=_example_with_betas("structured-outputs-2025-11-13"),
        says="mcp_servers: Extra inputs are not permitted",
        also=(
            (example(thread={}), "thread: Extra inputs are not permitted"),
            (example(output_format={}, anthropic_beta=["structured-outputs-2025-11-13"]), ""),
        ),
    ),
)
