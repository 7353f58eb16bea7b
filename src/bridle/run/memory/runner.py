"""Carries out memory effects for a driver, and provides the model's tools `remember` and `forget`.

Each effect ends in an event.  A note is durable before the tool answers, and appears in the prompt from the
next refresh on (core/memory.py), as the tool's answer says.  An interrupted call is repeated: its
idempotency key prevents a second note.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from bridle.core.effects import LoadMemory, RetrieveContext
from bridle.core.memory import FORGET_TOOL, REMEMBER_TOOL, make_memory_loaded
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.run_context import RunContext
from bridle.ports.store import Store
from bridle.ports.tool import Json, Tool
from bridle.values.events import Event
from bridle.values.memory import ContextRetrieved, Memory
from bridle.values.message import Text
from bridle.values.request import ToolSpec
from bridle.values.text import repair_surrogates

from .notes import Notes, make_note_id, make_note_removed, make_note_written, read_notes
from .retrieval import Retriever

NOTES_RESOURCE = "notes"
NO_RETRIEVER = "this agent has no `retrieve`"
NOTE_KEPT = "Kept as {id}. {when}; until then you know it from here."
NOTE_SHOWN_WHEN = {
    "session": "It is shown to you from the next conversation on",
    "run": "It is shown to you from the next turn on",
}
NOTE_REMOVED = "{id} is removed. It may stand among the notes above for a while; take no notice of it."


class MemoryRunner:
    """Loads memory and context for one session; `state` returns its current state."""

    def __init__(
        self,
        session: str,
        store: Store,
        clock: Clock,
        state: Callable[[], State],
        record: Callable[[Event], Awaitable[None]],
        retriever: Retriever | None,
    ) -> None:
        self._session, self._store, self._clock = session, store, clock
        self._state, self._record, self._retriever = state, record, retriever
        self.tools: Mapping[str, Tool] = {
            REMEMBER_TOOL.name: _NoteTool(REMEMBER_TOOL, self._remember),
            FORGET_TOOL.name: _NoteTool(FORGET_TOOL, self._forget),
        }

    async def perform(self, effect: LoadMemory | RetrieveContext) -> None:
        state = self._state()
        if isinstance(effect, LoadMemory):
            notes, load_error = await read_notes(self._store, effect.tenant)
            await self._record(make_memory_loaded(state, notes, effect, load_error))
        elif self._retriever is None:
            await self._record(ContextRetrieved(load_error=NO_RETRIEVER))
        else:
            left = None if effect.deadline is None else max(0.0, effect.deadline - self._clock.now())
            await self._record(
                await self._retriever.retrieve_context(effect.query, self._session, state, left)
            )

    async def _remember(self, arguments: Mapping[str, Json], context: RunContext) -> str:
        text, state = repair_surrogates(str(arguments["note"])).strip(), self._state()
        memory = state.settings.memory or Memory()
        if arguments.get("scope") == "conversation":
            existing = state.memory
            if context.idempotency_key in existing.note_keys:
                id_ = make_note_id(existing.note_keys.index(context.idempotency_key) + 1, self._session)
            else:
                id_ = make_note_id(len(existing.note_keys) + 1, self._session)
                await self._record(
                    make_note_written(
                        existing, text, memory.characters_max, id_, "model", context.idempotency_key
                    )
                )
        else:
            note = await Notes(self._store, memory=memory, clock=self._clock).add(
                text,
                tenant=state.run.origin.tenant,
                by="model",
                key=context.idempotency_key,
                written_in=self._session,
            )
            id_ = note.id
        return NOTE_KEPT.format(id=id_, when=NOTE_SHOWN_WHEN[memory.refresh])

    async def _forget(self, arguments: Mapping[str, Json], context: RunContext) -> str:
        id_, state = str(arguments["id"]).strip(), self._state()
        notes = Notes(self._store, memory=state.settings.memory, clock=self._clock)
        own = id_.startswith("s")
        left = state.memory.notes if own else await notes.list(tenant=state.run.origin.tenant)
        # A second attempt may find that the first one removed the note.
        if context.attempt == 1 or any(note.id == id_ for note in left):
            if own:
                await self._record(make_note_removed(state.memory, id_, "model"))
            else:
                await notes.remove(id_, tenant=state.run.origin.tenant, by="model")
        return NOTE_REMOVED.format(id=id_)


class _NoteTool:
    def __init__(
        self, spec: ToolSpec, work: Callable[[Mapping[str, Json], RunContext], Awaitable[str]]
    ) -> None:
        self.spec, self._work = spec, work

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Sequence[Text]:
        return (Text(text=await self._work(arguments, context)),)

    def claim_resource(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """Calls about notes are serialized with each other only."""
        return NOTES_RESOURCE, False
