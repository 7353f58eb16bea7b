"""What a provider keeps for its callers between two requests: replies and conversations, by id.

Items are the provider's own JSON.  The oldest are forgotten when there are too many, as a
provider forgets after some weeks.
"""

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from ..values.value import Value

KEPT_MAX = 5_000
Json = dict[str, object]


class KeptReply(Value):
    """A reply with everything that led to it."""

    response: Json
    given: tuple[Json, ...]
    """What the caller sent with this request."""
    before: tuple[Json, ...] = ()
    """What was kept before."""

    @property
    def output(self) -> tuple[Json, ...]:
        output = self.response.get("output")
        return tuple(item for item in output if isinstance(item, dict)) if isinstance(output, list) else ()

    @property
    def line(self) -> tuple[Json, ...]:
        return (*self.before, *self.given, *self.output)


class KeptConversation(Value):
    id: str
    at: float
    metadata: Mapping[str, object]
    items: tuple[Json, ...] = ()


class KeptPrompt(Value):
    """The front of a prompt, under a name, for whoever made it and one model."""

    name: str
    account: str
    model: str
    front: Json
    """The members of a request it stands for."""
    tokens: int
    created_at: float
    updated_at: float
    until: float
    label: str = ""
    stored: float = 0.0
    """Token seconds that were paid for before it was last kept for longer."""


class KeptThread(Value):
    """A conversation up to one response, and how often that may still be continued."""

    id: str
    model: str
    head: Json
    """The members of the request that a continuation may not repeat."""
    messages: tuple[Json, ...]
    until: float
    continuations: int = 1


class Keeping:
    def __init__(self) -> None:
        self.threads: dict[str, KeptThread] = {}
        self.prompts: dict[str, KeptPrompt] = {}
        self.replies: dict[str, KeptReply] = {}
        self.conversations: dict[str, KeptConversation] = {}
        self._made = 0

    def keep(self, name: str, reply: KeptReply) -> None:
        self.replies[name] = reply
        if len(self.replies) > KEPT_MAX:
            del self.replies[next(iter(self.replies))]

    def hold(self, conversation: KeptConversation) -> None:
        self.conversations[conversation.id] = conversation
        if len(self.conversations) > KEPT_MAX:
            del self.conversations[next(iter(self.conversations))]

    def hold_thread(self, thread: KeptThread) -> None:
        self.threads[thread.id] = thread
        if len(self.threads) > KEPT_MAX:
            del self.threads[next(iter(self.threads))]

    def name_prompt(self, prompt: KeptPrompt) -> None:
        self.prompts[prompt.name] = prompt
        if len(self.prompts) > KEPT_MAX:
            del self.prompts[next(iter(self.prompts))]

    def new_id(self, prefix: str) -> str:
        self._made += 1
        return f"{prefix}_{blake2b(str(self._made).encode(), digest_size=24).hexdigest()}"

    def named(self, item: Json, prefix: str) -> Json:
        """The item with an id, as everything that is kept has one."""
        if isinstance(item.get("id"), str) and item["id"]:
            return item
        made = blake2b(msgspec.json.encode((self._made, item)), digest_size=24).hexdigest()
        self._made += 1
        return {"id": f"{prefix}_{made}", **item}
