"""Carries out effects that prepare a prompt for a driver, and provides the model's tools `remember` and `forget`.

Each effect ends in an event.  A note is durable before the tool answers, and appears in the prompt from the
next refresh on (core/memory.py), as the tool's answer says.  An interrupted call is repeated: its
idempotency key prevents a second note.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from bridle.core.effects import LoadMemory, RetrieveContext, WriteInstruction
from bridle.core.memory import find_notes_caller, make_memory_loaded
from bridle.core.note_tools import FORGET_TOOL, REMEMBER_TOOL
from bridle.ports.run_context import RunContext
from bridle.ports.store import Store
from bridle.ports.tool import ANY_ERROR, Json, Tool
from bridle.run.clock import SessionClock
from bridle.run.context.instructions import AgentInstructions
from bridle.run.context.run_context import RunContexts, RunOwner
from bridle.values.errors import MisuseError
from bridle.values.memory import ContextRetrieved, Memory
from bridle.values.message import Text
from bridle.values.request import ToolSpec
from bridle.values.text import repair_surrogates

from .notes import NO_NOTES, Notes, make_note_id, make_note_removed, make_note_written, read_notes
from .retrieval import Retriever

NOTES_RESOURCE = "notes"
NO_RETRIEVER = "this agent has no `retrieve`"
NOTE_KEPT = "Kept as {id}. {when}; until then you know it from here."
NOTE_SHOWN_WHEN = {
    "session": "It is shown to you from the next conversation on",
    "run": "It is shown to you from the next turn on",
}
NOTE_OF_TENANT = "{id} is a note for everyone; it cannot be removed from a conversation with one person"
NOTE_REMOVED = "{id} is removed. It may stand among the notes above for a while; take no notice of it."


class MemoryRunner:
    """Loads memory, context and instructions for one session."""

    def __init__(
        self,
        run: RunOwner,
        contexts: RunContexts,
        store: Store,
        clock: SessionClock,
        retriever: Retriever | None,
        instructions: AgentInstructions | None,
    ) -> None:
        self._run, self._contexts, self._store, self._clock = run, contexts, store, clock
        self._session, self._record = run.session, run.record
        self._retriever, self._instructions = retriever, instructions
        self.tools: Mapping[str, Tool] = {
            REMEMBER_TOOL.name: _NoteTool(REMEMBER_TOOL, self._remember),
            FORGET_TOOL.name: _NoteTool(FORGET_TOOL, self._forget),
        }

    async def perform(self, effect: LoadMemory | RetrieveContext | WriteInstruction) -> None:
        state = self._run.state
        if isinstance(effect, WriteInstruction):
            await self._write_instruction(effect)
        elif isinstance(effect, LoadMemory):
            notes, load_error = await read_notes(self._store, effect.tenant)
            own = await read_notes(self._store, effect.tenant, effect.caller) if effect.caller else NO_NOTES
            errors = "; ".join(filter(None, (load_error, own.load_error)))
            await self._record(make_memory_loaded(state, notes, effect, errors, own.notes))
        elif self._retriever is None:
            await self._record(ContextRetrieved(load_error=NO_RETRIEVER))
        else:
            left = self._clock.seconds_left(effect.deadline)
            await self._record(
                await self._retriever.retrieve_context(effect.query, self._session, state, left)
            )

    async def _write_instruction(self, effect: WriteInstruction) -> None:
        assert self._instructions is not None
        context, left = (
            self._contexts.for_step(effect.function.name),
            self._clock.seconds_left(effect.deadline),
        )
        await self._record(await self._instructions.write(effect, context, left))

    async def _remember(self, arguments: Mapping[str, Json], context: RunContext) -> str:
        text, state = repair_surrogates(str(arguments["note"])).strip(), self._run.state
        memory = state.settings.memory or Memory()
        if arguments.get("scope") == "conversation":
            existing = state.memory
            if context.idempotency_key in existing.note_keys:
                id_ = make_note_id(existing.note_keys.index(context.idempotency_key) + 1, "s")
            else:
                id_ = make_note_id(len(existing.note_keys) + 1, "s")
                await self._record(
                    make_note_written(
                        existing, text, memory.characters_max, id_, "model", context.idempotency_key
                    )
                )
        else:
            note = await Notes(self._store, memory=memory, clock=self._clock).add(
                text,
                tenant=state.run.origin.tenant,
                caller=find_notes_caller(state),
                by="model",
                key=context.idempotency_key,
                written_in=self._session,
                written_for=state.run.origin.caller,
            )
            id_ = note.id
        return NOTE_KEPT.format(id=id_, when=NOTE_SHOWN_WHEN[memory.refresh])

    async def _forget(self, arguments: Mapping[str, Json], context: RunContext) -> str:
        id_, state = str(arguments["id"]).strip(), self._run.state
        notes = Notes(self._store, memory=state.settings.memory, clock=self._clock)
        own = id_.startswith("s")
        tenant, caller = state.run.origin.tenant, find_notes_caller(state)
        # guard: forget-of-caller
        if caller and id_.startswith("t"):
            raise MisuseError(NOTE_OF_TENANT.format(id=id_))
        left = state.memory.notes if own else await notes.list(tenant=tenant, caller=caller)
        # A second attempt may find that the first one removed the note.
        if context.attempt == 1 or any(note.id == id_ for note in left):
            if own:
                await self._record(make_note_removed(state.memory, id_, "model"))
            else:
                await notes.remove(id_, tenant=tenant, caller=caller, by="model")
        return NOTE_REMOVED.format(id=id_)


class _NoteTool:
    declared_errors = ANY_ERROR

    def __init__(
        self, spec: ToolSpec, work: Callable[[Mapping[str, Json], RunContext], Awaitable[str]]
    ) -> None:
        self.spec, self._work = spec, work

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Sequence[Text]:
        return (Text(text=await self._work(arguments, context)),)

    def claim_resource(self, arguments: Mapping[str, Json]) -> tuple[str | None, bool]:
        """Calls about notes are serialized with each other only."""
        return NOTES_RESOURCE, False
