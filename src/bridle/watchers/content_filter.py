"""The one place that decides which text of a run leaves it: for traces, logs, files and consoles.

Content is text that a person, a model, a tool or a provider wrote. At the level `off` no content leaves: an event keeps
its numbers, members of fixed lists, and the names and ids of `METADATA_FIELDS`. At `redacted` every text passes through
the rules of the caller first. A field is content unless its type or this file says otherwise.
"""

import copy
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields, force_setattr, replace

from bridle.ports.watcher import AgentWatcher, RunSummary, SummaryWatcher, Watcher
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.message import Media
from bridle.values.record import GENESIS, Record, encode_item
from bridle.values.result import Delta
from bridle.values.text import repair_surrogates

ContentLevel = Literal["off", "redacted", "full"]
RedactRule = Callable[[str], str] | str | re.Pattern[str]
"""A function that returns a text without what must not leave, or a regular expression of what must not."""
CONTENT_CHARACTERS_DEFAULT = 8_192
CUT_MARK = "… [{left} more characters]"
REDACTED = "[redacted]"
METADATA_FIELDS = {
    "": ("call_id", "session", "parent", "parent_session", "parent_call_id", "tenant", "digest", "model_key"),
    "Model": ("id",),
    "Origin": ("family", "endpoint", "model"),
    "Endpoint": ("name", "family"),
    "ToolStarted": ("name",),
    "ApprovalAsked": ("name",),
    "CompensationStarted": ("name",),
    "HookDecided": ("hook",),
    "OutputChecked": ("validator",),
    "Compacted": ("strategies",),
}
"""Names and ids by class, empty for every class. A call has the name of a tool once it starts; before, the model may
have invented it."""
PLAIN_TYPES = (int, float, bool, NoneType, Decimal)

E = TypeVar("E", bound=msgspec.Struct)


class ContentFilter:
    """Prepares content for export: redacts it, then shortens it."""

    def __init__(
        self, redact: Callable[[str], str] | None, characters: int = CONTENT_CHARACTERS_DEFAULT
    ) -> None:
        self._redact, self._limit = redact, characters

    def __call__(self, text: str) -> str:
        # Redact before cutting: a cut secret would no longer be recognized.
        text = repair_surrogates(text if self._redact is None else self._redact(text))
        left = len(text) - self._limit
        return text if left <= 0 else text[: self._limit] + CUT_MARK.format(left=left)


def make_content_filter(
    level: ContentLevel,
    redact: RedactRule | Sequence[RedactRule] | None,
    characters: int = CONTENT_CHARACTERS_DEFAULT,
) -> ContentFilter | None:
    """The filter of content; None if no content is exported. Raises `MisuseError` for values that cannot be used."""
    if level not in get_args(ContentLevel):
        choices = ", ".join(get_args(ContentLevel))
        raise MisuseError(f"content={level!r} is invalid; choose one of: {choices}")
    if level == "redacted" and not redact:
        raise MisuseError(
            'content="redacted" needs rules; add redact=redact_pii (from bridle.hooks) or your own'
        )
    if level == "off":
        return None
    return ContentFilter(combine_rules(redact) if level == "redacted" and redact else None, characters)


def combine_rules(rules: RedactRule | Sequence[RedactRule]) -> Callable[[str], str]:
    """One function for all rules, in their order."""
    given: Sequence[Any] = rules if isinstance(rules, list | tuple) else (rules,)
    steps = [_make_rule(rule) for rule in given]

    def redact(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    return steps[0] if len(steps) == 1 else redact


def _make_rule(rule: RedactRule) -> Callable[[str], str]:
    if isinstance(rule, str | re.Pattern):
        try:
            pattern = re.compile(rule)
        except re.error as error:
            raise MisuseError(f"redact={rule!r} is no regular expression: {error}") from None
        return lambda text: pattern.sub(REDACTED, text)
    if not callable(rule):
        raise MisuseError(f"redact takes functions and regular expressions, not {rule!r}")
    return rule


def filter_value(value: E, content: ContentFilter | None) -> E:
    """A copy of an event in which every text is filtered; without a filter, metadata only."""
    filtered = copy.copy(value)
    for name in list_content_fields(type(value)):
        force_setattr(filtered, name, _filter(getattr(value, name), content))
    if isinstance(filtered, Media):
        force_setattr(filtered, "data", "")  # no rule can read what is encoded
    return filtered


def _filter(value: object, content: ContentFilter | None) -> object:
    match value:
        case str():
            return "" if content is None else content(value)
        case bytes():
            return b""
        case msgspec.Struct():
            return filter_value(value, content)
        case tuple() | list() | frozenset() | set():
            kept = [each for each in value if content is not None or not isinstance(each, str)]
            return type(value)(_filter(each, content) for each in kept)
        case dict() if content is None:
            return {}
        case dict():
            return {_filter(name, content): _filter(each, content) for name, each in value.items()}
    return value


@cache
def list_content_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Fields that can hold content."""
    metadata = METADATA_FIELDS[""] + METADATA_FIELDS.get(kind.__name__, ())
    return tuple(each.name for each in fields(kind) if each.name not in metadata and not _is_plain(each))


def _is_plain(field: FieldInfo) -> bool:
    return all(_is_plain_type(each) for each in _list_types(field.type))


def _list_types(given: Any) -> tuple[Any, ...]:
    return get_args(given) if get_origin(given) in (Union, UnionType) else (given,)


def _is_plain_type(given: Any) -> bool:
    if get_origin(given) is Literal or given in PLAIN_TYPES:
        return True
    return isinstance(given, type) and issubclass(given, Enum)


def describe_scalars(event: Value) -> dict[str, object]:
    """The numbers, names and texts of an event and of the values in it, by dotted name; empty ones are left out."""
    found: dict[str, object] = {}
    _flatten(msgspec.to_builtins(event), "", found)
    return found


def _flatten(values: dict[str, object], prefix: str, found: dict[str, object]) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            _flatten(value, f"{prefix}{name}.", found)
        elif isinstance(value, str | int | float) and value != "" and not (prefix and name == "type"):
            found[f"{prefix}{name}"] = value


class RedactingWatcher:
    """Passes runs on to another watcher without what must not leave them.

        RedactingWatcher(JsonLines(file))             numbers, names and outcomes only
        RedactingWatcher(JsonLines(file), content="redacted", redact=[redact_pii, "ACME-[0-9]+"])

    Deltas are pieces of text, in which a rule could miss what lies across two of them: they are not passed on. The
    whole reply follows with its record. Hashes are left out: they would reveal a text to anyone who can guess it.
    """

    def __init__(
        self,
        watcher: Watcher,
        *,
        content: ContentLevel = "off",
        redact: RedactRule | Sequence[RedactRule] | None = None,
    ) -> None:
        self._watcher, self._is_full = watcher, content == "full"
        self._content = make_content_filter(content, redact)

    def on_run_end(self, session: str, summary: RunSummary) -> None:
        """Pass on the summary of a run; the caller's name is content."""
        if isinstance(self._watcher, SummaryWatcher):
            caller = (
                summary.caller if self._is_full else self._content(summary.caller) if self._content else ""
            )
            self._watcher.on_run_end(session, replace(summary, caller=caller))

    def on_run_agent(self, session: str, agent: str, tenant: str) -> None:
        """Pass on the agent and the tenant of a run."""
        if isinstance(self._watcher, AgentWatcher):
            self._watcher.on_run_agent(session, agent, tenant)

    def on_event(self, session: str, happening: Record | Delta) -> None:
        if self._is_full:
            self._watcher.on_event(session, happening)
        elif isinstance(happening, Record):
            event = filter_value(happening.event, self._content)
            data = encode_item(event)
            self._watcher.on_event(session, replace(happening, event=event, data=data, prev=GENESIS, hash=""))
