"""One simulated wire family: everything in which it differs from the others, as one value.

`families.py` lists the values. Shared modules take the attribute they need and never look a family up by name.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from bridle.ports.codec import HttpReply
from bridle.ports.served_wire import ClientTool
from bridle.sim.cache.cache_report import CacheReporter
from bridle.sim.cache.prompt_layout import PromptReader
from bridle.sim.rules.engine import ProviderRule, RawRequest
from bridle.sim.rules.profiles import FIRST_PARTY, ServerProfile
from bridle.values.base import Value
from bridle.values.errors import Failure
from bridle.values.message import Opaque, Reply
from bridle.values.request import Request

from .endpoints import ExtraEndpoints
from .request_forms import MessageJoiner, SchemaReader

ReplyTransform = Callable[[RawRequest, Reply], Reply]


class ReplyEncoder(Protocol):
    """Puts a reply on the wire as the provider does, whole or as a stream."""

    def __call__(self, reply: Reply, *, stream: bool) -> HttpReply: ...


def keep_reply(request: RawRequest, reply: Reply) -> Reply:
    """Return the reply unchanged, for a family that adds nothing."""
    return reply


class CompactionDue(Value, kw_only=True):
    """Result of `find_due_compaction`: the conversation must be compacted now."""

    pauses_after: bool = False
    """The provider stops after the summary instead of answering."""


class FamilyCompaction(Value, kw_only=True, gc=True):
    """Compaction as the providers of one family perform it."""

    make_requested_summary: Callable[[RawRequest, str], tuple[Opaque, ...]]
    """Makes the items for a whole conversation when the client requests a summary."""
    make_automatic_summary: Callable[[RawRequest, str], tuple[Opaque, ...]]
    """Makes the items that precede the answer when the provider compacts automatically."""
    find_due_compaction: Callable[[RawRequest], CompactionDue | None]
    """Returns a value if the request allows automatic compaction and the conversation is long enough."""
    read_summary_text: Callable[[Opaque], str]
    """Reads the text of a summary item, which only the provider's own models can decrypt."""


class SimulatedFamily(Value, kw_only=True, gc=True):
    """One wire family as the simulator needs it; it is a `ServerCodec`. Without rules it accepts every request."""

    name: str
    encode_reply: ReplyEncoder
    encode_failure: Callable[[Failure], HttpReply]
    rules: tuple[ProviderRule, ...] = ()
    window_rules: tuple[ProviderRule, ...] = ()
    """Limits on the length of a prompt, checked after all other rules."""
    window_rules_by_profile: Mapping[str, tuple[ProviderRule, ...]] = {}
    profiles: tuple[ServerProfile, ...] = (
        ServerProfile(name=FIRST_PARTY, description="the provider itself"),
    )
    """Servers that speak this wire; the first one is the provider itself."""
    signature_rules: tuple[ProviderRule, ...] = ()
    sign_reply: ReplyTransform = keep_reply
    complete_reasoning: ReplyTransform = keep_reply
    """Adds the reasoning that the provider requires back with the tool results."""
    display_reasoning: ReplyTransform = keep_reply
    """Removes the reasoning that the request does not ask to see."""
    prompt_reader: PromptReader | None = None
    endpoints: ExtraEndpoints = ExtraEndpoints()
    cache_reporter: CacheReporter | None = None
    find_schema: SchemaReader | None = None
    list_client_tools: Callable[[Request], Iterator[ClientTool]] | None = None
    join_model_messages: MessageJoiner | None = None
    compaction: FamilyCompaction | None = None
