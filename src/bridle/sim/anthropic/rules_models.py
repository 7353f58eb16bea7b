"""Rules about what a model supports: sampling, effort, thinking, forced calls, prefill."""

from bridle.sim.claude.model_rules import ModelWire, make_model_rules
from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_mapping, field, messages

from .request import NEW_VERSION, blocks, find_tool_loop, is_tool_forced, rule, version

SAMPLING = ("temperature", "top_p", "top_k")
GONE_ON_WITH = ("server_tool_use", "mcp_tool_use", "compaction")
INTERLEAVED = "interleaved-thinking"


def _check_sampling_gone(request: RawRequest) -> RuleFinding | None:
    if version(request) < NEW_VERSION:
        return None
    return next(({"name": name} for name in SAMPLING if field(request, name) is not None), None)


def _check_sampling_model(request: RawRequest) -> RuleFinding | None:
    # `Abilities.sampling` describes the current version; under the old one, temperature was allowed together
    # with a thinking allowance, in the same models.
    if request.abilities is None or "enabled" in request.abilities.thinking:
        return None
    return {} if field(request, "temperature") not in (None, 1) else None


def _check_sampling_one(request: RawRequest) -> RuleFinding | None:
    both = all(field(request, name) is not None for name in ("temperature", "top_p"))
    return {} if both and request.abilities is not None and request.abilities.thinking else None


def _requested_effort(request: RawRequest) -> str:
    return str(as_mapping(field(request, "output_config")).get("effort") or "")


def _check_effort_none(request: RawRequest) -> RuleFinding | None:
    return {} if _requested_effort(request) and request.abilities and not request.abilities.efforts else None


def _check_effort_level(request: RawRequest) -> RuleFinding | None:
    wanted, abilities = _requested_effort(request), request.abilities
    if not wanted or abilities is None or not abilities.efforts or abilities.takes_effort(wanted):
        return None
    return {"effort": wanted, "levels": ", ".join(sorted(abilities.efforts))}


def _find_thinking(request: RawRequest) -> JsonObject:
    return as_mapping(field(request, "thinking"))


def _find_budget(request: RawRequest) -> object:
    thinking = _find_thinking(request)
    return thinking.get("budget_tokens") if thinking.get("type") == "enabled" else None


def _find_room(request: RawRequest) -> object:
    interleaved = INTERLEAVED in request.headers.get("anthropic-beta", "")
    return None if interleaved else field(request, "max_tokens")


def _find_first_type(request: RawRequest) -> tuple[int, object] | None:
    head = find_tool_loop(request)
    if head is None:
        return None
    return head, next((block.get("type") for block in blocks(messages(request)[head])), "")


def _is_prefilled(request: RawRequest) -> bool:
    last = next(reversed(messages(request)), {})
    # A summary is not continued, so it may end with any role. A turn that was paused inside the provider's own
    # tools is sent back to be continued.
    is_paused = any(block.get("type") in GONE_ON_WITH for block in blocks(last))
    return last.get("role") == "assistant" and field(request, "compaction") is None and not is_paused


_SHARED = make_model_rules(
    ModelWire(
        rule=rule,
        find_thinking=_find_thinking,
        find_budget=_find_budget,
        find_room=_find_room,
        find_temperature=lambda request: field(request, "temperature"),
        is_tool_forced=is_tool_forced,
        find_first_type=_find_first_type,
        is_prefilled=_is_prefilled,
    ),
    evidence_of_adaptive="S",
)

MODEL_RULES = (
    rule(
        "sampling-gone",
        _check_sampling_gone,
        "{name}: Extra inputs are not permitted",
        evidence="S",
        models="all, since version 2026-10-21",
    ),
    _SHARED["sampling-thinking"],
    rule(
        "sampling-model",
        _check_sampling_model,
        "`temperature` is not supported for this model.",
        evidence="F",
        models="without `enabled` thinking",
    ),
    rule(
        "sampling-one",
        _check_sampling_one,
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        evidence="S",
        models="that think",
    ),
    rule(
        "effort-none",
        _check_effort_none,
        "This model does not support the effort parameter.",
        evidence="S",
        models="without efforts",
    ),
    rule(
        "effort-level",
        _check_effort_level,
        "This model does not support effort level '{effort}'. Supported levels: {levels}.",
        evidence="S",
    ),
    *(shared for id_, shared in _SHARED.items() if id_ != "sampling-thinking"),
)
