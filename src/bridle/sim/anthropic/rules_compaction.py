"""Rules of the Messages API about summaries that are sent back.

There are two kinds. A requested summary (`compaction`) is a signed block: it is sent first from then on, is
the only one, and replaces what it summarizes. An automatic one, made when a prompt gets long (an edit in
`context_management`), is a block without a signature and stays where it is. Each is a preview with its own
beta name, which every request that asks for one or carries one must give.

Rules about asking for a summary are in `compaction.py`, those about signatures in `signatures.py`.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from bridle.sim.rules.engine import ProviderRule, RawRequest, RuleFinding
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, messages

from .request import list_blocks, rule
from .rules_fields import BLOCKS, refuse

COMPACTION = "compaction"
ON_DEMAND, BY_THRESHOLD = "compact-2026-09-04", "compact-2026-01-12"
EDIT, THINKING_EDIT = "compact_20260112", "clear_thinking_20251015"
TRIGGER_TOKENS_MIN = 50_000
_FIRST = (
    "{at}: `compaction` block must be sent first, in place of the messages it summarizes; remove those"
    " messages"
)
MEMBERS = frozenset({"type", "content", "encrypted_content", "signature", "tool_changes", "cache_control"})


def list_betas(request: RawRequest) -> frozenset[str]:
    """Return the beta names in the header, or in the body on another cloud."""
    header = request.headers.get("anthropic-beta", "").split(",")
    return frozenset(word.strip() for word in (*header, *map(str, as_list(field(request, "anthropic_beta")))))


def find_compaction_edit(body: Mapping[str, object]) -> JsonObject | None:
    """Find the edit that asks for a summary once the prompt is long."""
    edits = map(as_mapping, _list_edits(body))
    return next((edit for edit in edits if edit.get("type") == EDIT), None)


def find_trigger_tokens(edit: JsonObject) -> int | None:
    """Return the token threshold of the edit, or None."""
    value = as_mapping(edit.get("trigger")).get("value")
    return value if isinstance(value, int) else None


def is_summary(block: JsonObject) -> bool:
    """True if the block holds a summary; one without content is left over from a failed one."""
    return block.get("type") == COMPACTION and block.get("content") is not None


def list_summaries(request: RawRequest, *, signed: bool) -> Iterator[tuple[str, JsonObject]]:
    for place, block in list_blocks(request):
        if is_summary(block) and (block.get("signature") is not None) is signed:
            yield place, block


def _check_compaction_unexpected(request: RawRequest) -> RuleFinding | None:
    if {ON_DEMAND, BY_THRESHOLD} & list_betas(request):
        return None
    found = (place for place, block in list_blocks(request) if block.get("type") == COMPACTION)
    return next(({"at": place} for place in found), None)


def _check_compaction_signed(request: RawRequest) -> RuleFinding | None:
    found = () if ON_DEMAND in list_betas(request) else list_summaries(request, signed=True)
    return next(({"at": place} for place, _ in found), None)


def _check_compaction_unsigned(request: RawRequest) -> RuleFinding | None:
    found = () if BY_THRESHOLD in list_betas(request) else list_summaries(request, signed=False)
    return next(({"at": place} for place, _ in found), None)


def _check_compaction_edit(request: RawRequest) -> RuleFinding | None:
    asks = find_compaction_edit(request.body) is not None
    return {} if not asks and any(list_summaries(request, signed=False)) else None


def _check_compaction_one(request: RawRequest) -> RuleFinding | None:
    return {} if len(list(list_summaries(request, signed=True))) > 1 else None


def _check_compaction_first(request: RawRequest) -> RuleFinding | None:
    for place, _ in list_summaries(request, signed=True):
        if place != "messages.0.content.0" or messages(request)[0].get("role") == "system":
            return {"at": place}
    return None


def _check_compaction_kinds(request: RawRequest) -> RuleFinding | None:
    both = find_compaction_edit(request.body) is not None and any(list_summaries(request, signed=True))
    return {} if both else None


def _is_early_trigger(edit: JsonObject) -> bool:
    trigger = find_trigger_tokens(edit)
    return edit.get("type") == EDIT and trigger is not None and trigger < TRIGGER_TOKENS_MIN


def _check_edit_compact_header(request: RawRequest) -> RuleFinding | None:
    if BY_THRESHOLD in list_betas(request):
        return None
    types = [as_mapping(edit).get("type") for edit in _list_edits(request.body)]
    return {"at": types.index(EDIT)} if EDIT in types else None


def _list_edits(body: JsonObject) -> Sequence[object]:
    return as_list(as_mapping(body.get("context_management")).get("edits"))


BLOCK_RULES: tuple[ProviderRule, ...] = (
    rule(
        "compaction-unexpected",
        _check_compaction_unexpected,
        "{at}: Input tag 'compaction' found using 'type' does not match any of the expected tags: 'document',"
        " 'image', 'redacted_thinking', 'search_result', 'text', 'thinking', 'tool_result', 'tool_use'",
        evidence="S",
    ),
    refuse(
        "compaction-members",
        BLOCKS,
        lambda block: (
            next(({"name": name} for name in block if name not in MEMBERS), None)
            if block.get("type") == COMPACTION
            else None
        ),
        "{at}.compaction.{name}: Extra inputs are not permitted",
        evidence="D",
    ),
    rule(
        "compaction-signed",
        _check_compaction_signed,
        "{at}.compaction: `signature` requires anthropic-beta: compact-2026-09-04",
        evidence="S",
    ),
    rule(
        "compaction-unsigned",
        _check_compaction_unsigned,
        "{at}: a `compaction` block with `content` requires its `signature`",
        evidence="S",
    ),
    rule(
        "compaction-edit",
        _check_compaction_edit,
        "`compaction` blocks require a `compact_20260112` strategy in `context_management.edits`.",
        evidence="S",
    ),
    replace(
        rule(
            "compaction-one",
            _check_compaction_one,
            "messages: more than one `compaction` block with `content`; send only the one returned last",
            evidence="K",
        ),
        type="compaction_block_ambiguous",
    ),
    replace(
        rule("compaction-first", _check_compaction_first, _FIRST, evidence="S"),
        type="compaction_block_misplaced",
    ),
    rule(
        "compaction-kinds",
        _check_compaction_kinds,
        "context_management: `compact_20260112` cannot run on a request that carries a signed `compaction`"
        " block",
        evidence="K",
    ),
)

EDIT_RULES: tuple[ProviderRule, ...] = (
    rule(
        "edit-compact-header",
        _check_edit_compact_header,
        "context_management.edits.{at}: Input tag 'compact_20260112' found using 'type' does not match any of"
        " the expected tags: 'clear_thinking_20251015', 'clear_tool_uses_20250919'",
        evidence="S",
    ),
    refuse(
        "edit-compact-trigger",
        "context_management.edits[]",
        _is_early_trigger,
        "{at}.compact_20260112: trigger.value must be at least 50000",
        evidence="S",
    ),
    refuse(
        "edit-thinking-first",
        "",
        lambda body: any(as_mapping(edit).get("type") == THINKING_EDIT for edit in _list_edits(body)[1:]),
        "context_management: `clear_thinking_20251015` must be the first strategy in"
        " `context_management.edits` when provided",
        evidence="S",
    ),
)

COMPACTION_RULES = (*BLOCK_RULES, *EDIT_RULES)
