"""Conversation objects of the Responses API: created empty, and named by every request that extends them."""

from collections.abc import Mapping

from bridle.ports.codec import HttpRequest
from bridle.providers.wire.json import loads
from bridle.values.errors import Failure, ProviderError
from bridle.values.model import Model

from .failures import decode_failure

CONVERSATIONS_PATH = "/conversations"


def encode_open_conversation(model: Model) -> HttpRequest:
    headers = {"content-type": "application/json"}
    headers.update((name.lower(), value) for name, value in model.endpoint.headers)
    return HttpRequest(path=CONVERSATIONS_PATH, body=b"{}", headers=tuple(headers.items()))


def decode_opened_conversation(status: int, headers: Mapping[str, str], body: bytes) -> str:
    if status >= 300:
        raise ProviderError(decode_failure(status, headers, body))
    try:
        reply = loads(body.decode())
    except ValueError:
        reply = None
    name = reply.get("id") if isinstance(reply, dict) else None
    if not isinstance(name, str) or not name:
        message = "the reply about a new conversation object has no id"
        raise ProviderError(Failure(kind="garbled", message=message, status=status))
    return name
