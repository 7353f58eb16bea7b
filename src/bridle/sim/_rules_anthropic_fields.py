"""The fields of a Messages request, each with what it has to be, in the order in which they are looked at.

A request that is wrong twice is told of the first one; that order is not the documents', it was found by
sending pairs of faults.  Every field that is there has to be something: a null is told like any other wrong
kind.  Nothing here asks what the fields mean together.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from ._rules_anthropic_shape import (
    OLD_VERSION,
    PREFILLS,
    asked,
    rule,
    text,
    tool,
    under,
    user,
)
from ._rules_reading import Block, field, to
from ._rules_shapes import Row, Sentence, Shapes, Voice
from .rules import Asked, Found, Rule

INVALID = "invalid_request_error"
EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING = ("adaptive", "enabled", "disabled", "between_tools")
CHOICES = ("auto", "any", "tool", "none")
MISSHAPEN = "Input does not match the expected shape."
SPARED = {"model": ("/models/", "/model/"), "max_tokens": ("/count_tokens",)}
"""What need not be said where: other clouds have the model in the path, and counting takes no limit."""
ELSEWHERE = {
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


def _either(values: Sequence[object]) -> str:
    *first, last = (f"'{value}'" for value in values)
    return f"{', '.join(first)} or {last}"


SHAPES = Shapes(
    Voice(
        asked=asked,
        rule=rule,
        sentences={
            "required": Sentence("{at}: Field required", INVALID),
            "type": Sentence("{at}: <expected>", INVALID),
            "value": Sentence("{at}: Input should be <expected>", INVALID),
            "least": Sentence("{at}: must be greater than or equal to <expected>", INVALID),
            "most": Sentence("{at}: range: 0..<expected>", INVALID),
            "fields": Sentence("{at}: Extra inputs are not permitted", INVALID),
        },
        expects={
            "boolean": "Input should be a valid boolean",
            "integer": "Input should be a valid integer",
            "number": "Input should be a valid number",
            "string": "Input should be a valid string",
            "array": "Input should be a valid array",
            "string|array": "Input should be a valid array",
            "object": "Input should be an object",
        },
        member=".{}",
        null_is_missing=False,
        listing=_either,
    )
)


def required(name: str, evidence: str) -> Rule:
    """A field that has to be there, but for where it is said otherwise."""
    told = f"{name}: Field required"
    return rule(
        f"{name.replace('_', '-')}-required",
        lambda request: None if name in request.body or _spared(request, name) else {},
        told,
        evidence=evidence,
        passes=asked(),
        offends=asked(**{name: None}),
        also=tuple(
            (replace(asked(**{name: None}), path=path), "" if name in spared else told)
            for path, spared in ELSEWHERE.items()
        ),
    )


def _spared(request: Asked, name: str) -> bool:
    return any(place in request.path for place in SPARED.get(name, ()))


def _unasked_preview(request: Asked) -> Found | None:
    """Other clouds have the names of previews in the body."""
    asked_for = f"{request.headers.get('anthropic-beta', '')} {field(request, 'anthropic_beta')}"
    for name, preview in PREVIEWS.items():
        if name in request.body and preview not in asked_for:
            return {"name": name}
    return None


def _nulled(name: str) -> Asked:
    return replace(asked(), body={**asked().body, name: None})


def _allowing(thinking: Block) -> bool:
    return thinking.get("type") == "enabled"


_NO_SWITCH = "stream: Input should be a valid boolean"


def _old(**fields: object) -> Asked:
    """A request to a model, under a version, that still take sampling."""
    return under(OLD_VERSION, to(PREFILLS, asked(**fields)))


def _in_preview(*names: str) -> Asked:
    given = {**asked().headers, "anthropic-beta": ", ".join(names)}
    return replace(asked(mcp_servers=[]), headers=given)


_TOOLS: Block = {"tools": [tool()]}
_HELLO: Block = {"role": "user"}
_CHOOSING = Row(beside=_TOOLS, evidence="K")
_TAG = "{{at}}: Input tag '{{value}}' found using 'type' does not match any of the expected tags: {tags}"
_ROLE = 'messages: Unexpected role "{value}". Allowed roles are "user" or "assistant"'
_ROLE_REQUIRED = Row(
    id="role-required",
    within={"content": "Hello"},
    also=((asked(messages=[{"role": None, "content": "Hello"}]), ""),),
)
_RANGE = "{at}: range: 0..1"
_GEO = "{at}: must be one of ['global', 'us']"
_BUDGET: Block = {"type": "enabled"}


def _tagged(name: str, tags: tuple[str, ...], row: Row) -> Rule:
    words = _TAG.format(tags=", ".join(f"'{tag}'" for tag in tags))
    return SHAPES.one_of(f"{name}.type", tags, tags[0], "bogus", row._replace(at=name, words=words))


def _sampling(name: str) -> tuple[Rule, ...]:
    """A share of one, for those who may still say it."""
    return (
        SHAPES.typed(name, "number", _old(**{name: 0.5}), _old(**{name: "x"})),
        SHAPES.at_most(name, 1, _old(**{name: 1}), _old(**{name: 1.5}), Row(words=_RANGE)),
        SHAPES.at_least(name, 0, _old(**{name: 0}), _old(**{name: -0.5}), Row(words=_RANGE)),
    )


FIELD_RULES = (
    required("model", "F"),
    SHAPES.typed("model", "string", "some-model", 7),
    SHAPES.typed("tool_choice", "object", {"type": "auto"}, "auto", Row(beside=_TOOLS, evidence="S")),
    SHAPES.required(
        "tool_choice.type", "auto", Row(beside=_TOOLS, within={"disable_parallel_tool_use": True})
    ),
    _tagged("tool_choice", CHOICES, _CHOOSING),
    SHAPES.typed(
        "tool_choice.name",
        "string",
        asked(tool_choice={"type": "auto"}, **_TOOLS),
        7,
        _CHOOSING._replace(at="tool_choice.tool.name", within={"type": "tool"}),
    ),
    SHAPES.typed(
        "tool_choice.disable_parallel_tool_use",
        "boolean",
        True,
        "yes",
        _CHOOSING._replace(at="tool_choice.auto.disable_parallel_tool_use", within={"type": "auto"}),
    ),
    SHAPES.typed("tools", "array", [tool()], "look"),
    SHAPES.typed("tools[]", "object", tool(), 7, Row(id="tool-type")),
    required("messages", "F"),
    SHAPES.typed("messages", "array", [user("Hello")], "Hello"),
    SHAPES.typed("messages[]", "object", user("Hello"), "Hello", Row(id="message-type", evidence="K")),
    SHAPES.required("messages[].role", "user", _ROLE_REQUIRED),
    SHAPES.one_of(
        "messages[].role",
        ("user", "assistant", "system"),
        "user",
        "developer",
        Row(id="role", words=_ROLE, within={"content": "Hello"}),
    ),
    SHAPES.required("messages[].content", "Hello", Row(id="content-required", within=_HELLO)),
    SHAPES.typed(
        "messages[].content", "string|array", [text("Hello")], 7, Row(id="content-type", within=_HELLO)
    ),
    SHAPES.typed(
        "messages[].content[]",
        "object",
        asked(messages=[user(text("Hello"))]),
        asked(messages=[user("Hello"), user(text("Hello"), 7)]),
        Row(id="block-type", says="messages.1.content.1: Input should be an object"),
    ),
    SHAPES.required(
        "messages[].content[].type",
        asked(messages=[user(text("Hello"))]),
        Row(id="block-type-required", says="messages.0.content.1.type: Field required"),
        refuses=asked(messages=[user(text("Hello"), {"text": "Hello"})]),
    ),
    SHAPES.known(
        "messages[]", MESSAGE, user("Hello"), "name", Row(id="message-fields", within=user("Hello"))
    ),
    SHAPES.typed("system", "string|array", "Be brief.", 7),
    SHAPES.typed("system[]", "object", text("Be brief."), 7, Row(id="system-block"), expected=MISSHAPEN),
    SHAPES.typed("thinking", "object", {"type": "adaptive"}, "x", Row(evidence="S")),
    SHAPES.required("thinking.type", "adaptive", Row(within={"display": "summarized"})),
    _tagged("thinking", THINKING, Row(evidence="K")),
    SHAPES.typed(
        "thinking.budget_tokens",
        "integer",
        to(PREFILLS, asked(thinking={"type": "enabled", "budget_tokens": 1024})),
        "many",
        Row(
            at="thinking.enabled.budget_tokens", within=_BUDGET, only=_allowing, model=PREFILLS, evidence="S"
        ),
    ),
    SHAPES.required(
        "thinking.budget_tokens",
        1024,
        Row(
            at="thinking.enabled.budget_tokens", within=_BUDGET, only=_allowing, model=PREFILLS, evidence="S"
        ),
    ),
    SHAPES.typed("output_config", "object", {"effort": "low"}, "x", expected=MISSHAPEN),
    SHAPES.one_of("output_config.effort", EFFORTS, "low", "minimal", Row(evidence="S")),
    SHAPES.known("output_config", ("effort", "format", "task_budget"), {"effort": "low"}, "bogus"),
    SHAPES.typed("cache_control", "object", {"type": "ephemeral"}, "x"),
    required("max_tokens", "S"),
    SHAPES.typed("max_tokens", "integer", 1, "x"),
    SHAPES.at_least("max_tokens", 0, 0, -1),
    SHAPES.typed("metadata", "object", {"user_id": "u"}, 5, expected=MISSHAPEN),
    SHAPES.known("metadata", ("user_id",), {"user_id": "u"}, "bogus"),
    SHAPES.typed("metadata.user_id", "string|null", "u", 7),
    SHAPES.typed("stop_sequences", "array", ["END"], "END"),
    SHAPES.typed("stop_sequences[]", "string", "END", 1, Row(id="stop-sequence-type")),
    *_sampling("temperature"),
    SHAPES.one_of("service_tier", ("auto", "standard_only"), "auto", "bogus"),
    SHAPES.typed("top_k", "integer", _old(top_k=5), _old(top_k="x")),
    *_sampling("top_p"),
    SHAPES.typed("stream", "boolean", True, "yes", Row(also=((_nulled("stream"), _NO_SWITCH),))),
    SHAPES.typed(
        "container",
        "string|object",
        "container_1",
        7,
        Row(at="container.ContainerParams"),
        expected=MISSHAPEN,
    ),
    SHAPES.typed("inference_geo", "string", "us", 7),
    SHAPES.one_of("inference_geo", ("global", "us"), "us", "moon", Row(words=_GEO)),
    SHAPES.one_of("speed", ("standard", "fast"), "fast", "ludicrous", Row(evidence="D")),
)

PREVIEW_RULES = (
    rule(
        "preview-fields",
        _unasked_preview,
        "{name}: Extra inputs are not permitted",
        evidence="D",
        passes=_in_preview("mcp-client-2025-11-20"),
        offends=_in_preview("structured-outputs-2025-11-13"),
        says="mcp_servers: Extra inputs are not permitted",
        also=(
            (asked(thread={}), "thread: Extra inputs are not permitted"),
            (asked(output_format={}, anthropic_beta=["structured-outputs-2025-11-13"]), ""),
        ),
    ),
)
