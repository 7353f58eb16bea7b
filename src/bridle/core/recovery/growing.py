"""A sequence that grows by one without a copy, for the fold of a long log.

A state is a value, and its messages are a tuple: each append copies it.  For one step that is nothing; for the fold of
a log it is quadratic in its length.  While a log is folded, the tuples that grow with it are `GrowingTuple`s: `+` adds
to a list that all of them share, and each sees only the items up to its own end, so none of them ever changes.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar, cast, overload

from msgspec.structs import replace

from bridle.core.state import Conversation, State
from bridle.values.message import Transcript

T = TypeVar("T")
GROWING_MIN = 256
"""Shorter tuples are copied faster than they are converted."""


class GrowingTuple(Sequence[T]):
    """The first items of a shared list; equal to the tuple of them."""

    __slots__ = ("_count", "_shared")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shared: list[T], count: int) -> None:
        self._shared, self._count = shared, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...

    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        if isinstance(place, slice):
            return tuple([self._shared[at] for at in range(*place.indices(self._count))])
        at = place + self._count if place < 0 else place
        if not 0 <= at < self._count:
            raise IndexError(place)
        return self._shared[at]

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._count)

    def __add__(self, added: tuple[T, ...]) -> "GrowingTuple[T]":
        shared = self._shared
        if len(shared) != self._count:  # another one has grown from here
            shared = shared[: self._count]
        shared.extend(added)
        return GrowingTuple(shared, len(shared))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | GrowingTuple) and tuple(self) == tuple(other)


def let_conversation_grow(state: State) -> State:
    """The state with a conversation whose long tuples grow without a copy; for the fold only."""
    conversation = state.conversation
    if not _is_long_tuple(conversation.transcript.messages) and not _is_long_tuple(conversation.view):
        return state
    messages = _grow(conversation.transcript.messages)
    is_same = conversation.view is conversation.transcript.messages
    return replace(
        state,
        conversation=replace(
            conversation,
            transcript=Transcript(messages=messages),
            view=messages if is_same else _grow(conversation.view),
            prompt_ids=_grow(conversation.prompt_ids),
        ),
    )


def settle_conversation(state: State) -> State:
    """The state with plain tuples again."""
    conversation, sent = state.conversation, state.cache.last_request
    messages = _settle(conversation.transcript.messages)
    is_same = conversation.view is conversation.transcript.messages
    view = messages if is_same else _settle(conversation.view)
    if sent is not None and _is_growing(sent.view):
        # Usually the view has grown by a few messages since; the request keeps a tuple of its own.
        sent = replace(sent, view=view if sent.view is conversation.view else _settle(sent.view))
        state = replace(state, cache=replace(state.cache, last_request=sent))
    if view is conversation.view and messages is conversation.transcript.messages:
        return state
    settled: Conversation = replace(
        conversation,
        transcript=Transcript(messages=messages),
        view=view,
        prompt_ids=_settle(conversation.prompt_ids),
    )
    return replace(state, conversation=settled)


def _settle(held: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(held) if _is_growing(held) else held


def _is_growing(held: object) -> bool:
    return isinstance(held, GrowingTuple)


def _is_long_tuple(held: Sequence[T]) -> bool:
    return isinstance(held, tuple) and len(held) > GROWING_MIN


def _grow(held: tuple[T, ...]) -> tuple[T, ...]:
    if _is_growing(held):
        return held
    return cast("tuple[T, ...]", GrowingTuple(list(held), len(held)))
