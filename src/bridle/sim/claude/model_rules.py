"""Rules about thinking, forced calls and prefill, as Claude models report them on either wire.

A wire says where it holds the settings (`ModelWire`) and places the rules in its own order.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject

THINKING_TOKENS_MIN = 1024
THINKING_MODES = {
    "enabled": '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and'
    ' "output_config.effort" to control thinking behavior.',
    "adaptive": "adaptive thinking is not supported on this model",
    "disabled": '"thinking.type.disabled" is not supported for this model.',
    "between_tools": '"thinking.type.between_tools" is not supported for this model.',
}
"""Messages about a mode that a model does not support."""
_FIRST = (
    "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{type}`."
    " When `thinking` is enabled, a final `assistant` message must start with a thinking block"
    " (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include"
    " thinking blocks from previous turns. To avoid this requirement, disable `thinking`."
)


RequestCondition = Callable[[RawRequest], object]


class ModelWire(NamedTuple):
    """Where a wire holds the settings that the models check."""

    rule: Callable[..., ProviderRule]
    find_thinking: Callable[[RawRequest], JsonObject]
    find_budget: Callable[[RawRequest], object]
    """Returns the thinking budget, or None if it is not checked."""
    find_room: Callable[[RawRequest], object]
    """Returns the output limit that the budget must stay below, or None if it need not."""
    find_temperature: Callable[[RawRequest], object]
    is_tool_forced: Callable[[RawRequest], bool]
    find_first_type: Callable[[RawRequest], tuple[int, object] | None]
    """Returns index and first block type of the current tool loop; None outside a loop."""
    is_prefilled: Callable[[RawRequest], bool]
    prefix: str = ""
    """Text before each message of a model."""
    serves_others: bool = False
    """True if models of other makers, which do not think, are served on the wire too."""

    def thinks(self, request: RawRequest, *modes: str) -> bool:
        return self.find_thinking(request).get("type") in modes

    def lacks_mode(self, request: RawRequest, mode: str) -> bool:
        able = request.abilities
        lacks = able is not None and mode not in able.thinking and (able.thinking or not self.serves_others)
        return bool(lacks) and self.thinks(request, mode)

    def is_small_budget(self, request: RawRequest) -> bool:
        budget = self.find_budget(request)
        return isinstance(budget, int) and budget < THINKING_TOKENS_MIN

    def has_no_room(self, request: RawRequest) -> bool:
        budget, room = self.find_budget(request), self.find_room(request)
        return isinstance(budget, int) and isinstance(room, int) and room <= budget

    def find_missing_thought(self, request: RawRequest) -> RuleFinding | None:
        """Require reasoning at the start of the current tool loop, which is one turn."""
        found = self.find_first_type(request) if self.thinks(request, "enabled") else None
        if found is None or found[1] in ("thinking", "redacted_thinking"):
            return None
        return {"index": found[0], "type": found[1]}

    def make_rule(
        self, id_: str, is_wrong: RequestCondition, wording: str, evidence: str, models: str = "all"
    ) -> ProviderRule:
        def find(request: RawRequest) -> RuleFinding | None:
            return {} if is_wrong(request) else None

        made: ProviderRule = self.rule(id_, find, self.prefix + wording, evidence=evidence, models=models)
        return made

    def make_mode_rule(self, mode: str, evidence: str) -> ProviderRule:
        id_, models = f"thinking-{mode.replace('_', '-')}", f"without `{mode}` thinking"
        return self.make_rule(
            id_, lambda request: self.lacks_mode(request, mode), THINKING_MODES[mode], evidence, models
        )


def make_model_rules(wire: ModelWire, evidence_of_adaptive: str) -> Mapping[str, ProviderRule]:
    """Make the rules, by id."""
    rules = (
        wire.make_rule(
            "sampling-thinking",
            lambda request: (
                wire.thinks(request, "enabled", "adaptive")
                and wire.find_temperature(request) not in (None, 1)
            ),
            "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode.",
            "S",
        ),
        wire.make_mode_rule("enabled", "D"),
        wire.make_mode_rule("adaptive", evidence_of_adaptive),
        wire.make_mode_rule("disabled", "D"),
        wire.make_mode_rule("between_tools", "F"),
        wire.make_rule(
            "thinking-budget",
            wire.is_small_budget,
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
            "F",
        ),
        wire.make_rule(
            "thinking-room",
            wire.has_no_room,
            "`max_tokens` must be greater than `thinking.budget_tokens`.",
            "F",
        ),
        wire.make_rule(
            "thinking-forced",
            lambda request: wire.is_tool_forced(request) and wire.thinks(request, "enabled"),
            "Thinking may not be enabled when tool_choice forces tool use.",
            "S",
        ),
        wire.rule("thinking-first", wire.find_missing_thought, wire.prefix + _FIRST, evidence="S"),
        wire.make_rule(
            "forced-tools",
            lambda request: (
                wire.is_tool_forced(request) and request.abilities and not request.abilities.forced_tools
            ),
            'tool_choice: type "tool" and "any" are not supported for this model.',
            "D",
            "that cannot be forced",
        ),
        wire.make_rule(
            "prefill",
            lambda request: (
                request.abilities and not request.abilities.prefill and wire.is_prefilled(request)
            ),
            "This model does not support assistant message prefill. The conversation must end with a user"
            " message.",
            "S",
            "that take no prefill",
        ),
    )
    return {rule.id: rule for rule in rules}
