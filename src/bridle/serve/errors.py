"""Errors of the server as JSON: `{"error": {"code", "message", "hint"}}`, with the status that fits."""

import logging

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from bridle.values.errors import (
    ApprovedCallWaits,
    BridleError,
    CannotContinue,
    Conflict,
    Corrupt,
    MissingKey,
    MisuseError,
    ProviderError,
    SessionNotFound,
    StoreError,
)
from bridle.values.text import escape_text, locate_error

from .api.types import ErrorDetail, ErrorReply

LOG = logging.getLogger("bridle")


class ServeError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}
        self.detail = ErrorDetail(code=code, message=message, hint=hint)


STATUSES: tuple[tuple[type[BridleError], int, str], ...] = (
    (SessionNotFound, 404, "session_not_found"),
    (CannotContinue, 409, "cannot_continue"),
    (ApprovedCallWaits, 409, "approved_call_waits"),
    (MisuseError, 400, "invalid_request"),
    (ProviderError, 502, "provider_failed"),
    (Conflict, 409, "conflict"),
    (Corrupt, 500, "log_damaged"),
    (StoreError, 503, "store_unavailable"),
)


def describe_error(error: Exception) -> ServeError:
    """The error as a reply; of an unexpected one only the type is shown, and the log of the server has the rest."""
    if isinstance(error, ServeError):
        return error
    if isinstance(error, msgspec.MsgspecError):
        return ServeError(400, "invalid_request", f"the request is invalid: {error}")
    if isinstance(error, MissingKey):  # it names variables of the server, which are not the client's
        LOG.warning("%s", escape_text(str(error)))
        return ServeError(500, "missing_key", "the server has no key for the model of this agent")
    if isinstance(error, ClientDisconnect):  # it hears nothing of this, and the log has no use for it
        return ServeError(400, "client_left", "the client left before its request was complete")
    for kind, status, code in STATUSES:
        if isinstance(error, kind):
            return ServeError(status, code, str(error))
    LOG.error("%s", escape_text(f"a request failed: {locate_error(error)}"))
    return ServeError(500, "internal", f"the server failed: {type(error).__name__}", "see the server's log")


def render_problem(error: ServeError) -> Response:
    body = msgspec.json.encode(ErrorReply(error=error.detail))
    return Response(body, error.status, error.headers, media_type="application/json")
