"""Prompts that a provider keeps by name: have one made, kept for longer, or dropped, and write it down.

None of it may break a run.  What the provider refuses is recorded with its reason and not tried again;
the request then goes out whole, as it would have without.
"""

from collections.abc import Awaitable, Callable, Mapping

from bridle.core.cache.server_state import storage_usd
from bridle.core.effects import DropPrompt, StorePrompt
from bridle.core.state import State
from bridle.ports.clock import Clock
from bridle.ports.codec import HttpRequest, StoredPromptInfo, SupportsConversations, SupportsStoredPrompts
from bridle.run.budget.sources import BudgetSources
from bridle.values.cache import ConversationDropped, ConversationOpened, PromptDropped, PromptStored
from bridle.values.errors import ProviderError
from bridle.values.events import Event

from .model_connection import ModelConnection, send_request

RecordEvent = Callable[[Event], Awaitable[None]]
STORAGE_NOT_RESERVED = "a shared budget sets nothing aside for storage"
NO_STORED_PROMPTS = "this endpoint keeps nothing by name"
STORED_PROMPT_LABEL = "bridle"


async def update_stored_prompt(
    effect: StorePrompt | DropPrompt,
    lines: Mapping[str, ModelConnection],
    state: State,
    clock: Clock,
    write: RecordEvent,
    purses: BudgetSources,
) -> None:
    line, shared = lines[state.settings.model.model_key], bool(purses.list_sources(state))
    codec = line.codec
    if not isinstance(codec, SupportsStoredPrompts) or shared:
        await write(_make_dropped(effect, line, STORAGE_NOT_RESERVED if shared else NO_STORED_PROMPTS))
        return
    try:
        if isinstance(effect, DropPrompt):
            if not effect.already_dropped:
                await _send_for_prompt(codec, line, codec.encode_drop_prompt(effect.stored.name), clock.now())
            await write(_make_dropped(effect, line, effect.why))
        else:
            await write(await _store_or_extend(effect, codec, line, clock))
    except ProviderError as error:
        await write(_make_dropped(effect, line, error.failure.message))


async def _store_or_extend(
    effect: StorePrompt, codec: SupportsStoredPrompts, line: ModelConnection, clock: Clock
) -> PromptStored:
    began, kept, model = clock.now(), effect.stored, line.model
    if kept is None:
        named = await _send_for_prompt(
            codec, line, codec.encode_store_prompt(effect.request, effect.seconds, STORED_PROMPT_LABEL), began
        )
        paid_seconds = effect.seconds
    else:
        named = await _send_for_prompt(
            codec, line, codec.encode_extend_prompt(kept.name, effect.seconds), began
        )
        paid_seconds = effect.seconds - max(0.0, kept.expires_at - began)
    tokens = named.tokens or (kept.tokens if kept else 0)
    rates = model.price.rates(tokens, began) if model.price else None
    return PromptStored(
        name=named.name or (kept.name if kept else ""),
        model_key=model.model_key,
        prompt_head=effect.prompt_head,
        tokens=tokens,
        seconds=effect.seconds,
        expires_at=began + effect.seconds,
        created=kept is None,
        usd=storage_usd(rates, tokens, paid_seconds, created=kept is None),
    )


def _make_dropped(effect: StorePrompt | DropPrompt, line: ModelConnection, why: str) -> PromptDropped:
    kept = effect.stored
    # What could not be made is not tried again; what was there and is not needed may be made again.
    lasting = isinstance(effect, StorePrompt)
    return PromptDropped(
        name=kept.name if kept else "",
        why=why,
        model_key=line.model.model_key if lasting else "",
        prompt_head=effect.prompt_head if isinstance(effect, StorePrompt) else "",
    )


async def _send_for_prompt(
    codec: SupportsStoredPrompts, line: ModelConnection, wanted: HttpRequest, now: float
) -> StoredPromptInfo:
    return codec.decode_stored_prompt(*await send_request(line, wanted, now))


# Has the provider make a conversation object, and says what came of it.
#
# It may not break a run.  What the provider refuses is recorded with its reason, and everything is sent.


NO_CONVERSATION_OBJECTS = "this wire has no conversation objects"


async def open_conversation(line: ModelConnection, now: float) -> ConversationOpened | ConversationDropped:
    codec, seat = line.codec, line.model.model_key
    if not isinstance(codec, SupportsConversations):
        return ConversationDropped(name="", model_key=seat, why=NO_CONVERSATION_OBJECTS)
    try:
        name = codec.decode_opened_conversation(
            *await send_request(line, codec.encode_open_conversation(line.model), now)
        )
    except ProviderError as error:
        return ConversationDropped(name="", model_key=seat, why=error.failure.message)
    return ConversationOpened(name=name, model_key=seat)
