"""Summaries on the Messages wire: a signed block when asked for, a plain one when a prompt gets long."""

import msgspec

from ..values.parts import Opaque
from ._rules_anthropic_compaction import COMPACTION, edit_of, trigger_of
from .rules import Asked
from .seals_anthropic import summary_of
from .summary import Due

TRIGGER_TOKENS_DEFAULT = 150_000


def shortened(asked: Asked, words: str) -> tuple[Opaque, ...]:
    return (_opaque(summary_of(asked, words), words),)


def instead(asked: Asked, words: str) -> tuple[Opaque, ...]:
    return (_opaque({"type": COMPACTION, "content": words}, words),)


def due(asked: Asked) -> Due | None:
    edit = edit_of(asked.body)
    if edit is None or asked.prompt_tokens < (trigger_of(edit) or TRIGGER_TOKENS_DEFAULT):
        return None
    return Due(pauses=edit.get("pause_after_compaction") is True)


def told(part: Opaque) -> str:
    return part.text


def _opaque(block: object, words: str) -> Opaque:
    return Opaque(kind=COMPACTION, native=msgspec.json.encode(block).decode(), text=words)
