"""What a driver does about notes and about things to be looked up; each ends in an event.

`remember` and `forget` are tools like any other, for the model.  What they write is durable before they
answer, and shows in the prompt from the next chosen point on (core/memory.py), which is what they say.  A
call of them that was cut off is simply made again: its key writes once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from bridle.core.effects import LoadMemory, RetrieveContext
from bridle.core.memory import FORGET_TOOL, REMEMBER_TOOL, make_memory_loaded
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.store import Store
from bridle.ports.tool import CallContext, Json, Tool
from bridle.values.events import Event
from bridle.values.memory import ContextRetrieved, Memory
from bridle.values.message import Text
from bridle.values.request import ToolSpec
from bridle.values.text import repair_surrogates

from .notes import Notes, make_note_id, make_note_removed, make_note_written, read_notes
from .retrieval import Retriever

NOTES_RESOURCE = "notes"
NOTE_KEPT = "Kept as {id}. {when}; until then you know it from here."
NOTE_SHOWN_WHEN = {
    "session": "It is shown to you from the next conversation on",
    "run": "It is shown to you from the next turn on",
}
NOTE_REMOVED = "{id} is removed. It may stand among the notes above for a while; take no notice of it."


class MemoryRunner:
    """`state` is asked anew every time; `record` writes into the session's own log."""

    def __init__(
        self,
        session: str,
        store: Store,
        clock: Clock,
        state: Callable[[], State],
        record: Callable[[Event], Awaitable[None]],
        gatherer: Retriever | None,
    ) -> None:
        self._session, self._store, self._clock = session, store, clock
        self._state, self._record, self._gatherer = state, record, gatherer
        self.tools: Mapping[str, Tool] = {
            REMEMBER_TOOL.name: _NoteTool(REMEMBER_TOOL, self._remember),
            FORGET_TOOL.name: _NoteTool(FORGET_TOOL, self._forget),
        }

    async def perform(self, effect: LoadMemory | RetrieveContext) -> None:
        state = self._state()
        if isinstance(effect, LoadMemory):
            notes, trouble = await read_notes(self._store, effect.tenant)
            await self._record(make_memory_loaded(state, notes, effect, trouble))
        elif self._gatherer is None:
            await self._record(ContextRetrieved(load_error="nobody is here to look it up"))
        else:
            left = None if effect.deadline is None else max(0.0, effect.deadline - self._clock.now())
            await self._record(
                await self._gatherer.retrieve_context(effect.query, self._session, state, left)
            )

    async def _remember(self, arguments: Mapping[str, Json], context: CallContext) -> str:
        words, state = repair_surrogates(str(arguments["note"])).strip(), self._state()
        memory = state.settings.memory or Memory()
        if arguments.get("scope") == "conversation":
            book = state.memory
            if context.key in book.note_keys:
                id_ = make_note_id(book.note_keys.index(context.key) + 1, self._session)
            else:
                id_ = make_note_id(len(book.note_keys) + 1, self._session)
                await self._record(
                    make_note_written(book, words, memory.characters_max, id_, "model", context.key)
                )
        else:
            note = await Notes(self._store, memory=memory, clock=self._clock).add(
                words, tenant=state.run.tenant, by="model", key=context.key, written_in=self._session
            )
            id_ = note.id
        return NOTE_KEPT.format(id=id_, when=NOTE_SHOWN_WHEN[memory.refresh])

    async def _forget(self, arguments: Mapping[str, Json], context: CallContext) -> str:
        id_, state = str(arguments["id"]).strip(), self._state()
        notes = Notes(self._store, memory=state.settings.memory, clock=self._clock)
        own = id_.startswith("s")
        left = state.memory.notes if own else await notes.list(tenant=state.run.tenant)
        # The second attempt at a call finds that the first one did it.
        if context.attempt == 1 or any(note.id == id_ for note in left):
            if own:
                await self._record(make_note_removed(state.memory, id_, "model"))
            else:
                await notes.remove(id_, tenant=state.run.tenant, by="model")
        return NOTE_REMOVED.format(id=id_)


class _NoteTool:
    def __init__(
        self, spec: ToolSpec, work: Callable[[Mapping[str, Json], CallContext], Awaitable[str]]
    ) -> None:
        self.spec, self._work = spec, work

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> Sequence[Text]:
        return (Text(text=await self._work(arguments, context)),)

    def claim_resource(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """Notes disturb nothing but notes."""
        return NOTES_RESOURCE, False
