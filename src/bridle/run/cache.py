"""Creates, extends and drops server-side state: prompts stored by name, and conversation objects.

Failures never break a run.  A refusal is recorded with its reason and not retried; the request is then
sent in full, as it would be without stored state.
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
STORAGE_NOT_RESERVED = "storage cannot be reserved in a shared budget"
NO_STORED_PROMPTS = "this endpoint does not store prompts"
NO_CONVERSATION_OBJECTS = "this wire has no conversation objects"
STORED_PROMPT_LABEL = "bridle"


async def update_stored_prompt(
    effect: StorePrompt | DropPrompt,
    connections: Mapping[str, ModelConnection],
    state: State,
    clock: Clock,
    record: RecordEvent,
    sources: BudgetSources,
) -> None:
    connection, shared = connections[state.settings.model.model_key], bool(sources.list_sources(state))
    codec = connection.codec
    if not isinstance(codec, SupportsStoredPrompts) or shared:
        await record(_make_dropped(effect, connection, STORAGE_NOT_RESERVED if shared else NO_STORED_PROMPTS))
        return
    try:
        if isinstance(effect, DropPrompt):
            if not effect.already_dropped:
                drop = codec.encode_drop_prompt(effect.stored.name)
                await _send_for_prompt(codec, connection, drop, clock.now())
            await record(_make_dropped(effect, connection, effect.why))
        else:
            await record(await _store_or_extend(effect, codec, connection, clock))
    except ProviderError as error:
        # guard: stored-prompt-error-redacted
        why = connection.redact_error(error.failure.message)
        await record(_make_dropped(effect, connection, why))


async def _store_or_extend(
    effect: StorePrompt, codec: SupportsStoredPrompts, connection: ModelConnection, clock: Clock
) -> PromptStored:
    began, existing, model = clock.now(), effect.stored, connection.model
    if existing is None:
        prompt = connection.private_extras.restore(effect.request)
        request = codec.encode_store_prompt(prompt, effect.seconds, STORED_PROMPT_LABEL)
        paid_seconds = effect.seconds
    else:
        request = codec.encode_extend_prompt(existing.name, effect.seconds)
        paid_seconds = effect.seconds - max(0.0, existing.expires_at - began)
    stored = await _send_for_prompt(codec, connection, request, began)
    tokens = stored.tokens or (existing.tokens if existing else 0)
    rates = model.price.rates(tokens, began) if model.price else None
    return PromptStored(
        name=stored.name or (existing.name if existing else ""),
        model_key=model.model_key,
        prompt_head=effect.prompt_head,
        tokens=tokens,
        seconds=effect.seconds,
        expires_at=began + effect.seconds,
        created=existing is None,
        usd=storage_usd(rates, tokens, paid_seconds, created=existing is None),
    )


def _make_dropped(effect: StorePrompt | DropPrompt, connection: ModelConnection, why: str) -> PromptDropped:
    existing = effect.stored
    # A failed creation names the model and the prompt, so that it is not retried; a drop does not.
    failed = isinstance(effect, StorePrompt)
    return PromptDropped(
        name=existing.name if existing else "",
        why=why,
        model_key=connection.model.model_key if failed else "",
        prompt_head=effect.prompt_head if isinstance(effect, StorePrompt) else "",
    )


async def _send_for_prompt(
    codec: SupportsStoredPrompts, connection: ModelConnection, request: HttpRequest, now: float
) -> StoredPromptInfo:
    return codec.decode_stored_prompt(*await send_request(connection, request, now))


async def open_conversation(
    connection: ModelConnection, now: float
) -> ConversationOpened | ConversationDropped:
    """Create a conversation object at the provider; the event records its name or the refusal."""
    codec, key = connection.codec, connection.model.model_key
    if not isinstance(codec, SupportsConversations):
        return ConversationDropped(name="", model_key=key, why=NO_CONVERSATION_OBJECTS)
    try:
        request = codec.encode_open_conversation(connection.model)
        name = codec.decode_opened_conversation(*await send_request(connection, request, now))
    except ProviderError as error:
        why = connection.redact_error(error.failure.message)
        return ConversationDropped(name="", model_key=key, why=why)
    return ConversationOpened(name=name, model_key=key)
