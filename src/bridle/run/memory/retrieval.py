"""Calls the user's functions that add context to a prompt: retrieved chunks, and facts.

Both are foreign code.  They have a time limit, ordinary functions run in a thread, and an error becomes a
sentence in the log: a failing search does not end a run, unless the agent sets `required`.  The amount of
context is decided here, once, before anything is recorded.
"""

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bridle.core.memory import fit_chunks
from bridle.core.state import State
from bridle.run.validate_input import check_numbers
from bridle.tools.function.threads import run_in_thread
from bridle.values.errors import MisuseError
from bridle.values.memory import (
    CHUNKS_CHARACTERS_DEFAULT,
    FACTS_CHARACTERS_MAX,
    RETRIEVE_SECONDS_DEFAULT,
    Chunk,
    ContextRetrieved,
    Query,
    RetrievalSettings,
)
from bridle.values.text import repair_surrogates

RetrievedChunks = Sequence[Chunk | str]
Retrieve = Callable[[Query], RetrievedChunks] | Callable[[Query], Awaitable[RetrievedChunks]]
"""Returns the chunks for a prompt, best first; ordinary or async."""
FactValue = str | int | float
FactMapping = Mapping[str, FactValue]
Facts = FactMapping | Callable[[], FactMapping] | Callable[[], Awaitable[FactMapping]]
"""Current values by name, such as the time or a ticket id."""

T = TypeVar("T")
LOG = logging.getLogger("bridle")
FACTS_SECONDS_MAX = 5.0
ERROR_CHARACTERS_KEPT = 500
"""Longer error messages are cut."""


@dataclass(frozen=True)
class Retrieval:
    """A retrieval function with its limits."""

    find: Retrieve
    seconds: float = RETRIEVE_SECONDS_DEFAULT
    characters_max: int = CHUNKS_CHARACTERS_DEFAULT
    required: bool = False
    """End the run if retrieval fails, before a model is called."""


@dataclass(frozen=True)
class Retriever:
    """Calls the retrieval and facts functions of an agent."""

    retrieval: Retrieval | None
    facts: Facts | None

    @staticmethod
    def create(retrieve: Retrieval | Retrieve | None, facts: Facts | None) -> "Retriever | None":
        if retrieve is None and facts is None:
            return None
        if retrieve is not None and not isinstance(retrieve, Retrieval) and not callable(retrieve):
            raise MisuseError("`retrieve` must be a function from a Query to chunks, or a Retrieval")
        if facts is not None and not isinstance(facts, Mapping) and not callable(facts):
            raise MisuseError("`facts` must be a mapping of names to values, or a function returning one")
        retrieval = Retrieval(retrieve) if callable(retrieve) else retrieve
        if retrieval is not None:
            check_numbers(characters_max=retrieval.characters_max)
            if not callable(retrieval.find):
                raise MisuseError("`Retrieval.find` must be a function from a Query to chunks")
            if not isinstance(retrieval.seconds, int | float) or not retrieval.seconds > 0:
                raise MisuseError(f"`Retrieval.seconds` must be a positive number, not {retrieval.seconds!r}")
        return Retriever(retrieval, facts)

    @property
    def settings(self) -> RetrievalSettings:
        if self.retrieval is None:
            return RetrievalSettings()
        return RetrievalSettings(
            characters_max=self.retrieval.characters_max, required=self.retrieval.required
        )

    async def retrieve_context(
        self, text: str, session: str, state: State, left_seconds: float | None
    ) -> ContextRetrieved:
        query = Query(
            text=text, session=session, tenant=state.run.origin.tenant, caller=state.run.origin.caller
        )
        chunks: tuple[Chunk, ...] = ()
        facts: tuple[tuple[str, str], ...] = ()
        errors: list[str] = []
        failed = False
        if self.retrieval is not None:
            found = await _call_with_deadline(
                "retrieve", self._find_chunks(query), _shorter_time(self.retrieval.seconds, left_seconds)
            )
            if isinstance(found, _RetrievalError):
                errors.append(found)
                failed = True
            else:
                chunks = found
        if self.facts is not None:
            values = await _call_with_deadline(
                "facts", self._read_facts(), _shorter_time(FACTS_SECONDS_MAX, left_seconds)
            )
            if isinstance(values, _RetrievalError):
                errors.append(values)
            else:
                facts = values
        fitting, omitted = fit_chunks(chunks, self.settings.characters_max)
        return ContextRetrieved(
            chunks=fitting, facts=facts, omitted_count=omitted, load_error="; ".join(errors), failed=failed
        )

    async def _find_chunks(self, query: Query) -> tuple[Chunk, ...]:
        assert self.retrieval is not None
        find = self.retrieval.find
        found: object = await _call_user_function(lambda: find(query), find)
        if isinstance(found, str | Chunk) or not isinstance(found, Sequence):
            raise TypeError(f"a list of Chunk or str was expected, not {type(found).__name__}")
        chunks = tuple(map(_parse_chunk, found))
        return tuple(chunk for chunk in chunks if chunk.text.strip())

    async def _read_facts(self) -> tuple[tuple[str, str], ...]:
        given = self.facts
        values: object = (
            given if isinstance(given, Mapping) else await _call_user_function(given, given) if given else {}
        )
        if not isinstance(values, Mapping):
            raise TypeError(f"a mapping of names to values was expected, not {type(values).__name__}")
        facts = tuple(
            (repair_surrogates(str(name)), repair_surrogates(str(value))) for name, value in values.items()
        )
        size = sum(len(name) + len(value) for name, value in facts)
        if size > FACTS_CHARACTERS_MAX:
            raise ValueError(f"facts have {size:,} characters; the maximum is {FACTS_CHARACTERS_MAX:,}")
        return facts


class _RetrievalError(str):
    __slots__ = ()


async def _call_with_deadline(name: str, work: Awaitable[T], seconds: float) -> T | _RetrievalError:
    try:
        async with asyncio.timeout(seconds) as time:
            return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        message = f"{name} was cancelled by its own code"  # the run itself was not cancelled
    except Exception as error:  # noqa: BLE001 - foreign code, and what it raises is for the log
        if isinstance(error, TimeoutError) and time.expired():
            message = f"{name} took longer than {seconds:g} seconds"
        else:
            # format_exception_only handles errors whose __str__ raises.
            description = traceback.format_exception_only(error)[-1].strip()
            message = repair_surrogates(f"{name} failed with {description}"[:ERROR_CHARACTERS_KEPT])
    LOG.warning("%s", message)
    return _RetrievalError(message)


async def _call_user_function(call: Callable[[], object], function: object) -> object:
    """Call a user function; an ordinary one runs in a thread so that it does not block the event loop."""
    inner = inspect.unwrap(function) if callable(function) else function
    asynchronous = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004 - an object whose call is a coroutine
    )
    found = call() if asynchronous else await run_in_thread(call)
    return await found if inspect.isawaitable(found) else found


def _parse_chunk(given: object) -> Chunk:
    if isinstance(given, str):
        return Chunk(text=repair_surrogates(given))
    if isinstance(given, Chunk):
        return Chunk(
            text=repair_surrogates(given.text),
            id=repair_surrogates(given.id),
            source=repair_surrogates(given.source),
        )
    raise TypeError(f"chunks must be Chunk or str, not {type(given).__name__}")


def _shorter_time(seconds: float, left: float | None) -> float:
    return seconds if left is None else min(seconds, left)
