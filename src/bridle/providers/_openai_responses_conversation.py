"""Conversation objects of the Responses API: made empty, and named by every request that is added to them."""

from collections.abc import Mapping

from ..ports.codec import HttpRequest
from ..values.errors import Failure, ProviderError
from ..values.model import Model
from ._json import loads
from ._openai_responses_failures import failure_of

PATH = "/conversations"


def open_conversation(model: Model) -> HttpRequest:
    headers = {"content-type": "application/json"}
    headers.update((name.lower(), value) for name, value in model.endpoint.headers)
    return HttpRequest(path=PATH, body=b"{}", headers=tuple(headers.items()))


def opened_conversation(status: int, headers: Mapping[str, str], body: bytes) -> str:
    if status >= 300:
        raise ProviderError(failure_of(status, headers, body))
    try:
        made = loads(body.decode())
    except ValueError:
        made = None
    name = made.get("id") if isinstance(made, dict) else None
    if not isinstance(name, str) or not name:
        message = "the answer to the request for a conversation object names none"
        raise ProviderError(Failure(kind="garbled", message=message, status=status))
    return name
