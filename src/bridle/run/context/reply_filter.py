"""Applies the text filters of hooks to a model's reply, while it streams and when it is complete.

All texts of a reply are filtered as one text, because a reader sees them as one.  The text of a structured answer is
JSON, also in the arguments of the call that gives it; its strings are filtered as they read after decoding.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from msgspec.structs import replace

from bridle.core.state import State
from bridle.hooks.json_filter import JsonTextFilter
from bridle.hooks.text_filter import PatternFilter, TextBlocked, TextFilter
from bridle.values.hooks import HookDecided
from bridle.values.message import Part, Reply, Stop, Text, ToolCall
from bridle.values.result import CallReady, Delta, TextDelta, ToolCallDelta

# guard: filter-joins-continuation
CUT_OFF = (Stop.LENGTH, Stop.PAUSED)
"""Stops of a reply whose text the next reply continues."""


@runtime_checkable
class FilterHook(Protocol):
    def text_filter(self) -> TextFilter | None: ...


class HookRefusal(Exception):
    """A text filter blocked the reply."""

    def __init__(self, hook: str, reason: str) -> None:
        super().__init__(reason)
        self.event = HookDecided(hook=hook, point="after_model", action="refuse", reason=reason)


class FilterChain:
    """The text filters of all hooks, one after the other."""

    def __init__(self, hooks: Mapping[str, FilterHook], *, is_json: bool = False, before: str = "") -> None:
        self._filters: list[tuple[str, TextFilter]] = [
            (
                name,
                JsonTextFilter(hook.text_filter, before)
                if is_json
                else hook.text_filter() or PatternFilter(()),
            )
            for name, hook in hooks.items()
        ]

    def feed(self, text: str, *, last: bool = False) -> str:
        """The filtered text that is final; all that was held back too, if this text is the last."""
        for name, each in self._filters:
            try:
                text = each.feed(text) + (each.finish() if last else "")
            except TextBlocked as blocked:
                raise HookRefusal(name, str(blocked)) from None
        return text


class ReplyFilter:
    """Filters one reply."""

    def __init__(self, hooks: Mapping[str, object], show: Callable[[Delta], None], state: State) -> None:
        found = {name: hook for name, hook in hooks.items() if isinstance(hook, FilterHook)}
        self._hooks = {name: hook for name, hook in found.items() if hook.text_filter() is not None}
        self._show = show
        output = state.settings.output
        self._is_json = output is not None and output.mode == "native"
        self._answer_tool = output.name if output is not None and output.mode == "tool" else ""
        self._before = state.run.evaluation.continued_text
        self._shown = FilterChain(self._hooks, is_json=self._is_json, before=self._before)
        self._answers: dict[int, FilterChain] = {}
        """Filters of structured answers that stream as arguments, by the index of the call."""

    @property
    def is_active(self) -> bool:
        """True if a hook has a filter."""
        return bool(self._hooks)

    def take_all(self, deltas: list[Delta]) -> None:
        for delta in deltas:
            self.take(delta)

    def take(self, delta: Delta) -> None:
        """Show a delta; text that is not final yet is shown with a later one."""
        match delta:
            case TextDelta(text=text):
                if text := self._shown.feed(text):
                    self._show(replace(delta, text=text))
            case ToolCallDelta() if self._hooks and self._answer_tool:
                self._take_arguments(delta)
            case CallReady(call=call) if self._hooks and call.name == self._answer_tool:
                self._flush_answers()
                self._show(replace(delta, call=self._filter_answer(call, is_cut=False)))
            case _:
                self._show(delta)

    def _take_arguments(self, delta: ToolCallDelta) -> None:
        if delta.name == self._answer_tool and delta.index not in self._answers:
            self._answers[delta.index] = FilterChain(self._hooks, is_json=True)
        chain = self._answers.get(delta.index)
        self._show(delta if chain is None else replace(delta, arguments=chain.feed(delta.arguments)))

    def _flush_answers(self) -> None:
        for index, chain in self._answers.items():
            if rest := chain.feed("", last=True):
                self._show(ToolCallDelta(index=index, name=self._answer_tool, arguments=rest))
        self._answers = {}

    def filter_partial_text(self, text: str) -> str:
        """The filtered text of an incomplete reply; empty if a filter blocks it."""
        try:
            return FilterChain(self._hooks, is_json=self._is_json, before=self._before).feed(text)
        except HookRefusal:
            return ""

    def finish(self, reply: Reply) -> Reply:
        """Show what was held back, and filter the complete reply; without its provider id if it changed.

        If the next reply continues this one, the end of its text that could become a match is left out.  The
        model continues after the text that it is sent.
        """
        if not self._hooks:
            return reply
        is_cut = reply.stop in CUT_OFF
        if not is_cut:
            if text := self._shown.feed("", last=True):
                self._show(TextDelta(text=text))
            self._flush_answers()
        texts = [part.text for part in reply.parts if isinstance(part, Text)]
        filtered = iter(self._filter_pieces(texts, self._before, is_json=self._is_json, is_cut=is_cut))
        parts: list[Part] = []
        for part in reply.parts:
            if isinstance(part, Text):
                text = next(filtered)
                parts += (replace(part, text=text),) if text or not part.text else ()
            elif isinstance(part, ToolCall) and part.name == self._answer_tool:
                # guard: filter-structured-answer
                parts.append(self._filter_answer(part, is_cut=is_cut))
            else:
                parts.append(part)
        return reply if tuple(parts) == reply.parts else replace(reply, parts=tuple(parts), id="")

    def _filter_answer(self, call: ToolCall, *, is_cut: bool) -> ToolCall:
        filtered = self._filter_pieces([call.arguments], "", is_json=True, is_cut=is_cut)
        return replace(call, arguments=filtered[0])

    def _filter_pieces(self, texts: list[str], before: str, *, is_json: bool, is_cut: bool) -> Sequence[str]:
        """The texts filtered as one text; the same texts if no filter changes any."""
        if not texts:
            return texts
        chain = FilterChain(self._hooks, is_json=is_json, before=before)
        # guard: filter-joins-parts
        filtered = [chain.feed(text) for text in texts]
        if is_cut:
            return filtered
        filtered[-1] += chain.feed("", last=True)
        plain = "".join(texts)
        if is_json:
            decoded = JsonTextFilter(lambda: None, before)
            plain = decoded.feed(plain) + decoded.finish()
        return texts if "".join(filtered) == plain else filtered
