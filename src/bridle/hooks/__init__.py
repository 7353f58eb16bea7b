"""Hooks that ship with Bridle, and decorators to write your own.

A hook is any object with one or more of the methods `before_model`, `after_model`, `before_tool`, `after_tool`
and `on_end`; register it with `Agent(hooks=[...])`. Not here: calling hooks (run/hooks.py) and applying their
decisions (core/hooks.py). Importing the package loads nothing; a name is loaded at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.values.hooks import Answer as Answer
    from bridle.values.hooks import Change as Change
    from bridle.values.hooks import FinishedRun as FinishedRun
    from bridle.values.hooks import HeadText as HeadText
    from bridle.values.hooks import HookDecision as HookDecision
    from bridle.values.hooks import HookSpec as HookSpec
    from bridle.values.hooks import ModelInput as ModelInput
    from bridle.values.hooks import Refuse as Refuse

    from .function_hook import after_model as after_model
    from .function_hook import after_tool as after_tool
    from .function_hook import before_model as before_model
    from .function_hook import before_tool as before_tool
    from .function_hook import guard_input as guard_input
    from .function_hook import guard_output as guard_output
    from .function_hook import on_end as on_end
    from .pii import PII as PII
    from .pii import RedactPii as RedactPii
    from .pii import redact_pii as redact_pii
    from .text_filter import PatternFilter as PatternFilter
    from .text_filter import TextBlocked as TextBlocked
    from .text_filter import TextFilter as TextFilter
    from .text_filter import TextPattern as TextPattern
    from .text_filter import edit_texts as edit_texts

_WHERE = {
    "PII": "pii",
    "PatternFilter": "text_filter",
    "RedactPii": "pii",
    "TextBlocked": "text_filter",
    "TextFilter": "text_filter",
    "TextPattern": "text_filter",
    "after_model": "function_hook",
    "after_tool": "function_hook",
    "before_model": "function_hook",
    "before_tool": "function_hook",
    "edit_texts": "text_filter",
    "guard_input": "function_hook",
    "guard_output": "function_hook",
    "on_end": "function_hook",
    "redact_pii": "pii",
}

_DECISIONS = (
    "Answer", "Change", "FinishedRun", "HeadText", "HookDecision", "HookSpec", "ModelInput", "Refuse",
)  # fmt: skip
"""What hooks take and return."""

__all__ = sorted((*_WHERE, *_DECISIONS))  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name in _DECISIONS:
        return getattr(import_module("bridle.values.hooks"), name)
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
