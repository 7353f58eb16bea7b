"""What a driver does about notes and about things to be looked up; each ends in an event.

`remember` and `forget` are tools like any other, for the model.  What they write is durable before they
answer, and shows in the prompt from the next chosen point on (core/memory.py), which is what they say.  A
call of them that was cut off is simply made again: its key writes once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from ..core.effects import Gather, LoadMemory
from ..core.memory import FORGET, REMEMBER, loaded
from ..core.state import State
from ..ports.clock import Clock
from ..ports.store import Store
from ..ports.tool import CallContext, Json, Tool
from ..values.event import Event
from ..values.memory import Memory
from ..values.parts import Text
from ..values.request import ToolSpec
from ..values.retrieval import ContextGathered
from ..values.text import sound
from .gathering import Gatherer
from .notes import Notes, note_id, read_notes, removed, written

RESOURCE = "notes"
KEPT = "Kept as {id}. {when}; until then you know it from here."
WHEN = {
    "session": "It is shown to you from the next conversation on",
    "run": "It is shown to you from the next turn on",
}
REMOVED = "{id} is removed. It may stand among the notes above for a while; take no notice of it."


class Recall:
    """`state` is asked anew every time; `record` writes into the session's own log."""

    def __init__(
        self,
        session: str,
        store: Store,
        clock: Clock,
        state: Callable[[], State],
        record: Callable[[Event], Awaitable[None]],
        gatherer: Gatherer | None,
    ) -> None:
        self._session, self._store, self._clock = session, store, clock
        self._state, self._record, self._gatherer = state, record, gatherer
        self.tools: Mapping[str, Tool] = {
            REMEMBER.name: _NoteTool(REMEMBER, self._remember),
            FORGET.name: _NoteTool(FORGET, self._forget),
        }

    async def perform(self, effect: LoadMemory | Gather) -> None:
        state = self._state()
        if isinstance(effect, LoadMemory):
            notes, trouble = await read_notes(self._store, effect.tenant)
            await self._record(loaded(state, notes, effect, trouble))
        elif self._gatherer is None:
            await self._record(ContextGathered(trouble="nobody is here to look it up"))
        else:
            left = None if effect.deadline is None else max(0.0, effect.deadline - self._clock.now())
            await self._record(await self._gatherer.gather(effect.words, self._session, state, left))

    async def _remember(self, arguments: Mapping[str, Json], context: CallContext) -> str:
        words, state = sound(str(arguments["note"])).strip(), self._state()
        memory = state.settings.memory or Memory()
        if arguments.get("scope") == "conversation":
            book = state.notebook
            if context.key in book.keys:
                id_ = note_id(book.keys.index(context.key) + 1, self._session)
            else:
                id_ = note_id(len(book.keys) + 1, self._session)
                await self._record(written(book, words, memory.characters_max, id_, "model", context.key))
        else:
            note = await Notes(self._store, memory=memory, clock=self._clock).add(
                words, tenant=state.run.tenant, by="model", key=context.key, written_in=self._session
            )
            id_ = note.id
        return KEPT.format(id=id_, when=WHEN[memory.refresh])

    async def _forget(self, arguments: Mapping[str, Json], context: CallContext) -> str:
        id_, state = str(arguments["id"]).strip(), self._state()
        notes = Notes(self._store, memory=state.settings.memory, clock=self._clock)
        own = id_.startswith("s")
        left = state.notebook.notes if own else await notes.list(tenant=state.run.tenant)
        # The second attempt at a call finds that the first one did it.
        if context.attempt == 1 or any(note.id == id_ for note in left):
            if own:
                await self._record(removed(state.notebook, id_, "model"))
            else:
                await notes.remove(id_, tenant=state.run.tenant, by="model")
        return REMOVED.format(id=id_)


class _NoteTool:
    def __init__(
        self, spec: ToolSpec, work: Callable[[Mapping[str, Json], CallContext], Awaitable[str]]
    ) -> None:
        self.spec, self._work = spec, work

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> Sequence[Text]:
        return (Text(text=await self._work(arguments, context)),)

    def claim(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """Notes disturb nothing but notes."""
        return RESOURCE, False
