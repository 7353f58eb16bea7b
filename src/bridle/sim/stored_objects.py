"""Objects that a provider stores between requests: replies, conversations, threads, cached contents.

Items are the provider's own JSON. When there are too many, the oldest are dropped, as a real provider drops
objects after some weeks.
"""

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from bridle.values.base import Value

OBJECTS_MAX = 5_000
Json = dict[str, object]


class StoredReply(Value, kw_only=True, gc=True):
    """A reply with the items that led to it."""

    response: Json
    input_items: tuple[Json, ...]
    """Items that the client sent with this request."""
    earlier_items: tuple[Json, ...] = ()
    """Items stored before this request."""

    @property
    def output(self) -> tuple[Json, ...]:
        output = self.response.get("output")
        return tuple(item for item in output if isinstance(item, dict)) if isinstance(output, list) else ()

    @property
    def conversation_items(self) -> tuple[Json, ...]:
        return (*self.earlier_items, *self.input_items, *self.output)


class StoredConversation(Value, kw_only=True, gc=True):
    id: str
    created_at: float
    metadata: Mapping[str, object]
    items: tuple[Json, ...] = ()


class CachedContent(Value, kw_only=True, gc=True):
    """The start of a prompt, stored under a name for one account and one model."""

    name: str
    account: str
    model: str
    prompt_head: Json
    """The request fields that this object replaces."""
    tokens: int
    created_at: float
    updated_at: float
    expires_at: float
    display_name: str = ""
    stored_token_seconds: float = 0.0
    """Token seconds charged before the last extension of its lifetime."""


class StoredThread(Value, kw_only=True, gc=True):
    """A conversation up to one response, with the number of times it may still be continued."""

    id: str
    model: str
    prompt_head: Json
    """The request fields that a continuation must not repeat."""
    messages: tuple[Json, ...]
    expires_at: float
    continuations: int = 1


class StoredObjects:
    def __init__(self) -> None:
        self.threads: dict[str, StoredThread] = {}
        self.prompts: dict[str, CachedContent] = {}
        self.replies: dict[str, StoredReply] = {}
        self.conversations: dict[str, StoredConversation] = {}
        self._ids_made = 0

    def store_reply(self, name: str, reply: StoredReply) -> None:
        self.replies[name] = reply
        if len(self.replies) > OBJECTS_MAX:
            del self.replies[next(iter(self.replies))]

    def store_conversation(self, conversation: StoredConversation) -> None:
        self.conversations[conversation.id] = conversation
        if len(self.conversations) > OBJECTS_MAX:
            del self.conversations[next(iter(self.conversations))]

    def store_thread(self, thread: StoredThread) -> None:
        self.threads[thread.id] = thread
        if len(self.threads) > OBJECTS_MAX:
            del self.threads[next(iter(self.threads))]

    def store_prompt(self, prompt: CachedContent) -> None:
        self.prompts[prompt.name] = prompt
        if len(self.prompts) > OBJECTS_MAX:
            del self.prompts[next(iter(self.prompts))]

    def new_id(self, prefix: str) -> str:
        self._ids_made += 1
        return f"{prefix}_{blake2b(str(self._ids_made).encode(), digest_size=24).hexdigest()}"

    def with_id(self, item: Json, prefix: str) -> Json:
        """Return the item with an id, which every stored item needs."""
        if isinstance(item.get("id"), str) and item["id"]:
            return item
        made = blake2b(msgspec.json.encode((self._ids_made, item)), digest_size=24).hexdigest()
        self._ids_made += 1
        return {"id": f"{prefix}_{made}", **item}
