"""Requests that the server of a tool makes during a call: to the model (sampling) or to a person (elicitation).

They are refused unless the user allows them per server.  Each is bound to the call and to its exact content, and is
recorded before anyone is asked; its answer is recorded before the server gets it.
"""

from typing import Literal

from .base import EventBase, Value
from .message import Message
from .usage import Budget

RequestKind = Literal["sampling", "elicitation"]
ElicitationAction = Literal["accept", "decline", "cancel"]


class RequestRefused(Exception):
    """A request of a server was not allowed, or could not be answered; the server reads the message."""


class SamplingRequest(Value):
    """A conversation that a server wants the model to continue."""

    server: str
    messages: tuple[Message, ...]
    """In turn; the last one is the user's."""
    max_tokens: int
    instructions: str = ""
    temperature: float | None = None
    stop_sequences: tuple[str, ...] = ()
    budget: Budget = Budget()
    """Of this request, besides that of the run."""

    @property
    def kind(self) -> RequestKind:
        return "sampling"


class ElicitationRequest(Value):
    """A question of a server to the person that approves calls."""

    server: str
    message: str
    fields: str = ""
    """JSON Schema of the answer as text; empty for a question with an address."""
    url: str = ""
    """Address that the person should open; Bridle never opens it."""

    @property
    def kind(self) -> RequestKind:
        return "elicitation"


ServerRequest = SamplingRequest | ElicitationRequest


class ServerReply(Value):
    """The answer to a request of a server."""

    action: ElicitationAction = "accept"
    text: str = ""
    """The model's text, or the person's values as a JSON object."""
    model: str = ""
    """Model that answered."""
    is_cut: bool = False
    """True if the model's text ends at the limit that the server set."""


class ServerAsked(EventBase, tag="server_asked"):
    """The server of a tool asks the model or a person during a call; neither has been asked yet."""

    call_id: str
    attempt: int
    kind: RequestKind
    server: str
    binding: str
    """Hash of the call and the exact request; an answer applies to exactly this."""
    request: str
    """The request as JSON text, as a person sees it."""
    rule: str = ""
    """Rule that decides who answers."""

    @property
    def unique_key(self) -> str | None:
        return f"server-ask:{self.binding}#{self.attempt}"


class ServerAnswered(EventBase, tag="server_answered"):
    """A request of a server was allowed, answered or refused; a repeated call gets the same answer."""

    call_id: str
    attempt: int
    kind: RequestKind
    server: str
    binding: str
    action: ElicitationAction
    content: str = ""
    """The person's values as a JSON object; the model's answer is in a session of its own."""
    reason: str = ""
    by: str = ""
    proof: str = ""
    """As in `ApprovalAnswered`; an answer without a valid one is not used again."""

    @property
    def unique_key(self) -> str | None:
        return f"server-answer:{self.binding}#{self.attempt}"
