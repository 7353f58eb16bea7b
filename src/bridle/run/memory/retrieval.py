"""Calls the user's functions that add context to a prompt: retrieved chunks, and facts.

Both are foreign code.  They have a time limit, ordinary functions run in a thread, and an error becomes a
sentence in the log: a failing search does not end a run, unless the agent sets `required`.  A search that did
not run, because all threads were busy, ends it.  The amount of context is decided here, once, before anything is
recorded.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from bridle.core.memory import fit_chunks
from bridle.core.state import State
from bridle.run.context.user_functions import (
    FunctionError,
    NotStartedError,
    call_user_function,
    call_with_deadline,
    shorter_time,
)
from bridle.run.validate_input import check_numbers
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

# not from outside: time of a function of the user's program
FACTS_SECONDS_MAX = 5.0


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
        failed = not_started = False
        if self.retrieval is not None:
            found = await call_with_deadline(
                "retrieve", self._find_chunks(query), shorter_time(self.retrieval.seconds, left_seconds)
            )
            if isinstance(found, FunctionError):
                errors.append(found)
                failed, not_started = True, isinstance(found, NotStartedError)
            else:
                chunks = found
        if self.facts is not None:
            values = await call_with_deadline(
                "facts", self._read_facts(), shorter_time(FACTS_SECONDS_MAX, left_seconds)
            )
            if isinstance(values, FunctionError):
                errors.append(values)
                not_started = not_started or isinstance(values, NotStartedError)
            else:
                facts = values
        fitting, omitted = fit_chunks(chunks, self.settings.characters_max)
        return ContextRetrieved(
            chunks=fitting,
            facts=facts,
            omitted_count=omitted,
            load_error="; ".join(errors),
            failed=failed,
            not_started=not_started,
        )

    async def _find_chunks(self, query: Query) -> tuple[Chunk, ...]:
        assert self.retrieval is not None
        find = self.retrieval.find
        found: object = await call_user_function(lambda: find(query), find)
        if isinstance(found, str | Chunk) or not isinstance(found, Sequence):
            raise TypeError(f"a list of Chunk or str was expected, not {type(found).__name__}")
        chunks = tuple(map(_parse_chunk, found))
        return tuple(chunk for chunk in chunks if chunk.text.strip())

    async def _read_facts(self) -> tuple[tuple[str, str], ...]:
        given = self.facts
        values: object = (
            given if isinstance(given, Mapping) else await call_user_function(given, given) if given else {}
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
