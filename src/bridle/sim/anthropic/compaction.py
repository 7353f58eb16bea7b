"""Compaction on the Messages API: rules for a requested summary, and making the summary block.

The conversation must end with a finished turn and must not be empty. Settings that only shape an answer are
refused, because there is none. A requested summary is a signed block; an automatic one, made when a prompt
gets long, is not signed.
"""

import msgspec
from msgspec.structs import replace

from bridle.sim.family import CompactionDue
from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.field_rules import FieldRow
from bridle.sim.rules.raw_request import as_mapping, field, messages
from bridle.values.message import Opaque

from .request import blocks, is_tool_forced, rule
from .rules_compaction import (
    COMPACTION,
    ON_DEMAND,
    find_compaction_edit,
    find_trigger_tokens,
    list_betas,
    list_summaries,
)
from .rules_fields import FIELD_CHECKS, refuse
from .signatures import make_summary_block

SUMMARIZE = "summarize"
# not from outside: the limit of the vendor that is simulated
INSTRUCTIONS_LENGTH_MAX = 16_384
_NO_REMAINING = (
    "output_config.task_budget.remaining: not permitted with `compaction` or a signed `compaction` block"
)
_UNFINISHED = (
    "messages.{index}: the conversation ends on an `assistant` turn that is not finished; send its tool"
    " results first"
)


def _asks_for_compaction(request: RawRequest) -> bool:
    return field(request, COMPACTION) is not None


def _check_compaction_header(request: RawRequest) -> RuleFinding | None:
    return {} if _asks_for_compaction(request) and ON_DEMAND not in list_betas(request) else None


def _check_compaction_alone(request: RawRequest) -> RuleFinding | None:
    if not _asks_for_compaction(request):
        return None
    excluded = {
        "context_management": field(request, "context_management") is not None,
        "stop_sequences": bool(field(request, "stop_sequences")),
        "output_config.format": as_mapping(field(request, "output_config")).get("format") is not None,
        "tool_choice": is_tool_forced(request),
    }
    return next(({"name": name} for name, found in excluded.items() if found), None)


def _check_compaction_budget(request: RawRequest) -> RuleFinding | None:
    carries = _asks_for_compaction(request) or any(list_summaries(request, signed=True))
    budget = as_mapping(as_mapping(field(request, "output_config")).get("task_budget"))
    return {} if carries and budget.get("remaining") is not None else None


def _check_compaction_nothing(request: RawRequest) -> RuleFinding | None:
    """Require at least one message, or an earlier summary that is sent back."""
    if not _asks_for_compaction(request):
        return None
    conversation = (message for message in messages(request) if message.get("role") != "system")
    return None if any(blocks(message) for message in conversation) else {}


def _check_compaction_turn(request: RawRequest) -> RuleFinding | None:
    conversation = [message for message in messages(request) if message.get("role") != "system"]
    if not _asks_for_compaction(request) or not conversation or conversation[-1].get("role") != "assistant":
        return None
    last = as_mapping(next(reversed(blocks(conversation[-1])), None))
    return (
        {"index": len(messages(request)) - 1} if last.get("type") in ("tool_use", "server_tool_use") else None
    )


COMPACTION_REQUEST_RULES: tuple[ProviderRule, ...] = (
    rule(
        "compaction-header",
        _check_compaction_header,
        f"`compaction` parameter requires anthropic-beta: {ON_DEMAND}",
        evidence="D",
    ),
    refuse(
        "compaction-type",
        "",
        lambda body: (
            body.get(COMPACTION) is not None and as_mapping(body[COMPACTION]).get("type") != SUMMARIZE
        ),
        "compaction.type: Input should be 'summarize'",
        evidence="K",
    ),
    FIELD_CHECKS.max_length(
        "compaction.instructions",
        INSTRUCTIONS_LENGTH_MAX,
        FieldRow(id="compaction-instructions", evidence="K"),
    ),
    refuse(
        "compaction-model",
        "",
        lambda body: body.get(COMPACTION) is not None,
        "compaction: not supported for this model",
        evidence="K",
        models="that make no summaries on demand",
        when=lambda able: not able.compaction,
    ),
    rule(
        "compaction-alone",
        _check_compaction_alone,
        "compaction: cannot be combined with `{name}`",
        evidence="K",
    ),
    rule("compaction-budget", _check_compaction_budget, _NO_REMAINING, evidence="K"),
    replace(
        rule(
            "compaction-nothing",
            _check_compaction_nothing,
            "messages: there is no `user` or `assistant` content to summarize",
            evidence="K",
        ),
        type="compaction_nothing_to_summarize",
    ),
    replace(
        rule("compaction-turn", _check_compaction_turn, _UNFINISHED, evidence="K"),
        type="compaction_incomplete_turn",
    ),
)


TRIGGER_TOKENS_DEFAULT = 150_000


def make_requested_summary(raw: RawRequest, words: str) -> tuple[Opaque, ...]:
    return (_as_opaque(make_summary_block(raw, words), words),)


def make_automatic_summary(raw: RawRequest, words: str) -> tuple[Opaque, ...]:
    return (_as_opaque({"type": COMPACTION, "content": words}, words),)


def find_due_compaction(raw: RawRequest) -> CompactionDue | None:
    edit = find_compaction_edit(raw.body)
    if edit is None or raw.prompt_tokens < (find_trigger_tokens(edit) or TRIGGER_TOKENS_DEFAULT):
        return None
    return CompactionDue(pauses_after=edit.get("pause_after_compaction") is True)


def read_summary_text(part: Opaque) -> str:
    return part.text


def _as_opaque(block: object, words: str) -> Opaque:
    return Opaque(kind=COMPACTION, native=msgspec.json.encode(block).decode(), text=words)
