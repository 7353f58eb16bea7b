"""Summaries that the Messages API made itself: what is refused of them when they are sent back.

There are two kinds.  One is asked for (`compaction`): a signed block, sent first from then on, alone of its
kind, and instead of what it was made of.  The other comes when a prompt gets long (an edit in
`context_management`): a block without a signature, that stays where it came.  Both are previews, each under a
name of its own, which every request has to give that asks for one or carries one.

How one is asked for has a file of its own (_rules_anthropic_demand.py); whether a signature is the
provider's is asked where all seals are (seals_anthropic.py).
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from ._rules_anthropic_shape import (
    NEWEST,
    asked,
    assistant,
    messages,
    placed_blocks,
    rule,
    text,
    user,
)
from ._rules_reading import (
    Block,
    field,
    listed,
    mapping,
)
from .rules import Asked, Found, Rule

COMPACTION = "compaction"
ON_DEMAND, BY_THRESHOLD = "compact-2026-09-04", "compact-2026-01-12"
EDITING = "context-management-2025-06-27"
EDIT, THINKING_EDIT = "compact_20260112", "clear_thinking_20251015"
TRIGGER_TOKENS_MIN = 50_000
_FIRST = (
    "{at}: `compaction` block must be sent first, in place of the messages it summarizes; remove those"
    " messages"
)
MEMBERS = frozenset({"type", "content", "encrypted_content", "signature", "tool_changes", "cache_control"})


def previews(request: Asked) -> frozenset[str]:
    """What is named in the header, or in the body where another cloud has it."""
    header = request.headers.get("anthropic-beta", "").split(",")
    return frozenset(word.strip() for word in (*header, *map(str, listed(field(request, "anthropic_beta")))))


def edit_of(body: Mapping[str, object]) -> Block | None:
    """What asks for a summary as soon as the prompt is long."""
    edits = listed(mapping(body.get("context_management")).get("edits"))
    return next((mapping(edit) for edit in edits if mapping(edit).get("type") == EDIT), None)


def trigger_of(edit: Block) -> int | None:
    """How many tokens are long; None when it does not say."""
    value = mapping(edit.get("trigger")).get("value")
    return value if isinstance(value, int) else None


def is_summary(block: Block) -> bool:
    """Whether it stands for anything: one without words is what is left of a summary that failed."""
    return block.get("type") == COMPACTION and block.get("content") is not None


def summaries(request: Asked, *, signed: bool) -> Iterator[tuple[str, Block]]:
    for place, block in placed_blocks(request):
        if is_summary(block) and (block.get("signature") is not None) is signed:
            yield place, block


def _unexpected(request: Asked) -> Found | None:
    if {ON_DEMAND, BY_THRESHOLD} & previews(request):
        return None
    found = (place for place, block in placed_blocks(request) if block.get("type") == COMPACTION)
    return next(({"at": place} for place in found), None)


def _extra_member(request: Asked) -> Found | None:
    for place, block in placed_blocks(request):
        if block.get("type") == COMPACTION:
            for name in block:
                if name not in MEMBERS:
                    return {"at": place, "name": name}
    return None


def _signed_unnamed(request: Asked) -> Found | None:
    found = () if ON_DEMAND in previews(request) else summaries(request, signed=True)
    return next(({"at": place} for place, _ in found), None)


def _unsigned(request: Asked) -> Found | None:
    found = () if BY_THRESHOLD in previews(request) else summaries(request, signed=False)
    return next(({"at": place} for place, _ in found), None)


def _unasked(request: Asked) -> Found | None:
    asks = edit_of(request.body) is not None
    return {} if not asks and any(summaries(request, signed=False)) else None


def _several(request: Asked) -> Found | None:
    return {} if len(list(summaries(request, signed=True))) > 1 else None


def _misplaced(request: Asked) -> Found | None:
    for place, _ in summaries(request, signed=True):
        if place != "messages.0.content.0" or messages(request)[0].get("role") == "system":
            return {"at": place}
    return None


def _both_kinds(request: Asked) -> Found | None:
    both = edit_of(request.body) is not None and any(summaries(request, signed=True))
    return {} if both else None


def _edits(request: Asked) -> list[Block]:
    return list(map(mapping, listed(mapping(field(request, "context_management")).get("edits"))))


def _edit_unnamed(request: Asked) -> Found | None:
    if BY_THRESHOLD in previews(request):
        return None
    return next(({"at": at} for at, edit in enumerate(_edits(request)) if edit.get("type") == EDIT), None)


def _early_trigger(request: Asked) -> Found | None:
    for at, edit in enumerate(_edits(request)):
        trigger = trigger_of(edit)
        if edit.get("type") == EDIT and trigger is not None and trigger < TRIGGER_TOKENS_MIN:
            return {"at": at}
    return None


def _thinking_late(request: Asked) -> Found | None:
    return {} if any(edit.get("type") == THINKING_EDIT for edit in _edits(request)[1:]) else None


# --- examples -----------------------------------------------------------------------------------

ABLE = replace(NEWEST, compaction=True)
SIGNED: Block = {"type": COMPACTION, "content": "They greeted.", "signature": "c2ln"}
_PLAIN: Block = {"type": COMPACTION, "content": "They greeted."}
_FAILED: Block = {"type": COMPACTION, "content": None}


def under_preview(request: Asked, *names: str) -> Asked:
    """The request with these previews named."""
    return replace(request, headers={**request.headers, "anthropic-beta": ", ".join(names)})


def carrying(*said: Block, names: tuple[str, ...] = (ON_DEMAND,), **changes: object) -> Asked:
    return under_preview(asked(messages=[*said, user("Bye")], **changes), *names)


def _editing(*edits: Block, said: tuple[Block, ...] = (), names: tuple[str, ...] = (BY_THRESHOLD,)) -> Asked:
    return carrying(*said, names=names, context_management={"edits": list(edits)})


_COMPACT: Block = {"type": EDIT}
_CLEAR: Block = {"type": THINKING_EDIT}


def _triggered(tokens: int) -> Block:
    return {**_COMPACT, "trigger": {"type": "input_tokens", "value": tokens}}


BLOCK_RULES: tuple[Rule, ...] = (
    rule(
        "compaction-unexpected",
        _unexpected,
        "{at}: Input tag 'compaction' found using 'type' does not match any of the expected tags: 'document',"
        " 'image', 'redacted_thinking', 'search_result', 'text', 'thinking', 'tool_result', 'tool_use'",
        evidence="S",
        passes=carrying(assistant(SIGNED)),
        offends=carrying(assistant(SIGNED), names=()),
        says="messages.0.content.0: Input tag 'compaction' found using 'type' does not match any of the"
        " expected tags: 'document', 'image', 'redacted_thinking', 'search_result', 'text', 'thinking',"
        " 'tool_result', 'tool_use'",
    ),
    rule(
        "compaction-members",
        _extra_member,
        "{at}.compaction.{name}: Extra inputs are not permitted",
        evidence="D",
        passes=carrying(assistant({**SIGNED, "tool_changes": [], "encrypted_content": None})),
        offends=carrying(assistant({**SIGNED, "citations": None})),
        says="messages.0.content.0.compaction.citations: Extra inputs are not permitted",
    ),
    rule(
        "compaction-signed",
        _signed_unnamed,
        "{at}.compaction: `signature` requires anthropic-beta: compact-2026-09-04",
        evidence="S",
        passes=carrying(user(SIGNED, text("And?"))),
        offends=carrying(assistant(SIGNED), names=(BY_THRESHOLD,)),
        says="messages.0.content.0.compaction: `signature` requires anthropic-beta: compact-2026-09-04",
    ),
    rule(
        "compaction-unsigned",
        _unsigned,
        "{at}: a `compaction` block with `content` requires its `signature`",
        evidence="S",
        passes=carrying(assistant(_FAILED)),
        offends=carrying(assistant(_PLAIN)),
        says="messages.0.content.0: a `compaction` block with `content` requires its `signature`",
    ),
    rule(
        "compaction-edit",
        _unasked,
        "`compaction` blocks require a `compact_20260112` strategy in `context_management.edits`.",
        evidence="S",
        passes=_editing(_COMPACT, said=(user("Hello"), assistant(_PLAIN), user("So?"), assistant(_PLAIN))),
        offends=carrying(assistant(_PLAIN), names=(BY_THRESHOLD,)),
        also=(
            (
                _editing({"type": "clear_tool_uses_20250919"}, said=(assistant(_PLAIN),)),
                "`compaction` blocks require a `compact_20260112` strategy in `context_management.edits`.",
            ),
        ),
    ),
    replace(
        rule(
            "compaction-one",
            _several,
            "messages: more than one `compaction` block with `content`; send only the one returned last",
            evidence="K",
            passes=carrying(assistant(SIGNED), user("So?"), assistant(_FAILED)),
            offends=carrying(assistant(SIGNED, SIGNED)),
        ),
        type="compaction_block_ambiguous",
    ),
    replace(
        rule(
            "compaction-first",
            _misplaced,
            _FIRST,
            evidence="S",
            passes=carrying(user(SIGNED)),
            offends=carrying(user("Hello"), assistant(SIGNED)),
            says=_FIRST.format(at="messages.1.content.0"),
            also=(
                (
                    carrying(user(text("Hello"), SIGNED)),
                    _FIRST.format(at="messages.0.content.1"),
                ),
                (
                    carrying({"role": "system", "content": [SIGNED]}),
                    _FIRST.format(at="messages.0.content.0"),
                ),
            ),
        ),
        type="compaction_block_misplaced",
    ),
    rule(
        "compaction-kinds",
        _both_kinds,
        "context_management: `compact_20260112` cannot run on a request that carries a signed `compaction`"
        " block",
        evidence="K",
        passes=_editing(_COMPACT, said=(user("Hello"), assistant(_PLAIN))),
        offends=_editing(_COMPACT, said=(assistant(SIGNED),), names=(ON_DEMAND, BY_THRESHOLD)),
    ),
)

EDIT_RULES: tuple[Rule, ...] = (
    rule(
        "edit-compact-header",
        _edit_unnamed,
        "context_management.edits.{at}: Input tag 'compact_20260112' found using 'type' does not match any of"
        " the expected tags: 'clear_thinking_20251015', 'clear_tool_uses_20250919'",
        evidence="S",
        passes=_editing(_COMPACT),
        offends=_editing(_CLEAR, _COMPACT, names=(EDITING,)),
        says="context_management.edits.1: Input tag 'compact_20260112' found using 'type' does not match any"
        " of the expected tags: 'clear_thinking_20251015', 'clear_tool_uses_20250919'",
    ),
    rule(
        "edit-compact-trigger",
        _early_trigger,
        "context_management.edits.{at}.compact_20260112: trigger.value must be at least 50000",
        evidence="S",
        passes=_editing(_triggered(50_000)),
        offends=_editing(_triggered(49_999)),
        says="context_management.edits.0.compact_20260112: trigger.value must be at least 50000",
        also=(
            (_editing({**_triggered(9), "type": "clear_tool_uses_20250919"}), ""),
            (_editing({**_COMPACT, "trigger": {"type": "input_tokens", "value": "many"}}), ""),
        ),
    ),
    rule(
        "edit-thinking-first",
        _thinking_late,
        "context_management: `clear_thinking_20251015` must be the first strategy in"
        " `context_management.edits` when provided",
        evidence="S",
        passes=_editing(_CLEAR, _COMPACT),
        offends=_editing(_COMPACT, _CLEAR),
    ),
)

COMPACTION_RULES = (*BLOCK_RULES, *EDIT_RULES)
