"""Look up what stands beside the words of a prompt: chunks by a function of the user's, and facts.

Both are foreign code.  They have a time of their own, an ordinary function runs in a thread, and whatever
goes wrong is a sentence in the log: a search that is down is no reason to lose a turn, unless the agent
says that it is (`required`).  How much is taken is decided here, once, before anything is recorded.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..core.gathering import fitted
from ..core.state import State
from ..tools.threads import in_thread
from ..values.errors import MisuseError
from ..values.retrieval import (
    CHUNKS_CHARACTERS_DEFAULT,
    FACTS_CHARACTERS_MAX,
    RETRIEVE_SECONDS_DEFAULT,
    Chunk,
    ContextGathered,
    Gathering,
    Query,
)
from ..values.text import sound
from .given import check_numbers

Found = Sequence[Chunk | str]
Retrieve = Callable[[Query], Found] | Callable[[Query], Awaitable[Found]]
"""Chunks for a prompt, the best first; ordinary or async."""
Fact = str | int | float
Told = Mapping[str, Fact]
Facts = Told | Callable[[], Told] | Callable[[], Awaitable[Told]]
"""What is true only now, by name."""

T = TypeVar("T")
LOG = logging.getLogger("bridle")
FACTS_SECONDS_MAX = 5.0
WORDS_MAX = 500
"""How much of an error is worth keeping."""


@dataclass(frozen=True)
class Retrieval:
    """How a prompt is looked up, where the usual is not right."""

    find: Retrieve
    seconds: float = RETRIEVE_SECONDS_DEFAULT
    characters_max: int = CHUNKS_CHARACTERS_DEFAULT
    required: bool = False
    """End the run when it fails, before a model is asked."""


@dataclass(frozen=True)
class Gatherer:
    retrieval: Retrieval | None
    facts: Facts | None

    @staticmethod
    def of(retrieve: Retrieval | Retrieve | None, facts: Facts | None) -> "Gatherer | None":
        if retrieve is None and facts is None:
            return None
        if retrieve is not None and not isinstance(retrieve, Retrieval) and not callable(retrieve):
            raise MisuseError("retrieve is a function of a Query that gives chunks, or a Retrieval of one")
        if facts is not None and not isinstance(facts, Mapping) and not callable(facts):
            raise MisuseError("facts are a mapping of names to values, or a function that gives one")
        retrieval = Retrieval(retrieve) if callable(retrieve) else retrieve
        if retrieval is not None:
            check_numbers(characters_max=retrieval.characters_max)
            if not callable(retrieval.find):
                raise MisuseError("a Retrieval is of a function of a Query that gives chunks")
            if not isinstance(retrieval.seconds, int | float) or not retrieval.seconds > 0:
                raise MisuseError(f"seconds are how long a search may take, not {retrieval.seconds!r}")
        return Gatherer(retrieval, facts)

    @property
    def settings(self) -> Gathering:
        if self.retrieval is None:
            return Gathering()
        return Gathering(characters_max=self.retrieval.characters_max, required=self.retrieval.required)

    async def gather(
        self, words: str, session: str, state: State, left_seconds: float | None
    ) -> ContextGathered:
        query = Query(text=words, session=session, tenant=state.run.tenant, caller=state.run.caller)
        chunks: tuple[Chunk, ...] = ()
        facts: tuple[tuple[str, str], ...] = ()
        troubles: list[str] = []
        failed = False
        if self.retrieval is not None:
            found = await _asked("retrieve", self._find(query), _least(self.retrieval.seconds, left_seconds))
            if isinstance(found, _Trouble):
                troubles.append(found)
                failed = True
            else:
                chunks = found
        if self.facts is not None:
            told = await _asked("facts", self._told(), _least(FACTS_SECONDS_MAX, left_seconds))
            if isinstance(told, _Trouble):
                troubles.append(told)
            else:
                facts = told
        kept, left_out = fitted(chunks, self.settings.characters_max)
        return ContextGathered(
            chunks=kept, facts=facts, left_out=left_out, trouble="; ".join(troubles), failed=failed
        )

    async def _find(self, query: Query) -> tuple[Chunk, ...]:
        assert self.retrieval is not None
        find = self.retrieval.find
        found: object = await _called(lambda: find(query), find)
        if isinstance(found, str | Chunk) or not isinstance(found, Sequence):
            raise TypeError(f"a list of Chunk or str was expected, not {type(found).__name__}")
        chunks = tuple(map(_chunk, found))
        return tuple(chunk for chunk in chunks if chunk.text.strip())

    async def _told(self) -> tuple[tuple[str, str], ...]:
        given = self.facts
        told: object = given if isinstance(given, Mapping) else await _called(given, given) if given else {}
        if not isinstance(told, Mapping):
            raise TypeError(f"a mapping of names to values was expected, not {type(told).__name__}")
        facts = tuple((sound(str(name)), sound(str(value))) for name, value in told.items())
        taken = sum(len(name) + len(value) for name, value in facts)
        if taken > FACTS_CHARACTERS_MAX:
            raise ValueError(f"facts have {taken:,} characters, and {FACTS_CHARACTERS_MAX:,} is most")
        return facts


class _Trouble(str):
    __slots__ = ()


async def _asked(name: str, work: Awaitable[T], seconds: float) -> T | _Trouble:
    try:
        async with asyncio.timeout(seconds) as time:
            return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        trouble = f"{name} was cancelled by its own code"  # nobody has cancelled the run
    except Exception as error:  # noqa: BLE001 - foreign code, and what it raises is for the log
        if isinstance(error, TimeoutError) and time.expired():
            trouble = f"{name} took longer than {seconds:g} seconds"
        else:
            # An error may be one that cannot even be printed.
            said = traceback.format_exception_only(error)[-1].strip()
            trouble = sound(f"{name} failed with {said}"[:WORDS_MAX])
    LOG.warning("%s", trouble)
    return _Trouble(trouble)


async def _called(call: Callable[[], object], function: object) -> object:
    """What it gives; an ordinary function must not stop the event loop while it thinks."""
    made = inspect.unwrap(function) if callable(function) else function
    asynchronous = inspect.iscoroutinefunction(made) or inspect.iscoroutinefunction(
        getattr(made, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )
    found = call() if asynchronous else await in_thread(call)
    return await found if inspect.isawaitable(found) else found


def _chunk(given: object) -> Chunk:
    if isinstance(given, str):
        return Chunk(text=sound(given))
    if isinstance(given, Chunk):
        return Chunk(text=sound(given.text), id=sound(given.id), source=sound(given.source))
    raise TypeError(f"chunks are Chunk or str, not {type(given).__name__}")


def _least(seconds: float, left: float | None) -> float:
    return seconds if left is None else min(seconds, left)
