"""Encodes the requests of a log again, without sending them.

Codecs are pure, so a request that core assembles from a log has the bytes that were sent. Two things can prevent that:
values of extras and hosted tools, which a log does not hold, and a codec that is not part of Bridle. The agent has
both.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from bridle.core.lineage.replay import EncodedCall
from bridle.ports.codec import Codec, EncodedHistory, HttpRequest
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection
from bridle.run.private_extras import HIDDEN_MARK, NO_PRIVATE_EXTRAS, PrivateExtras
from bridle.run.recovery.rejected_parts import locate_rejected_parts
from bridle.values.errors import BadTool, Failure, MisuseError
from bridle.values.events import PartRef
from bridle.values.model import Model
from bridle.values.redaction import Redactor, redact_json_strings
from bridle.values.request import Request, ToolSpec


class LogWire:
    """Encodes requests of one session; messages are encoded once, as in a run."""

    def __init__(
        self, connections: Mapping[str, ModelConnection] | None = None, extras: Iterable[PrivateExtras] = ()
    ) -> None:
        """`connections` may have codecs of their own; `extras` are those of the agents of the session."""
        self._connections, self._extras = connections or {}, [*extras]
        self._histories: dict[str, EncodedHistory] = {}
        self.problem = ""
        """Reason why the latest request could not be rebuilt; empty if it was."""

    def find_codec(self, model: Model) -> Codec:
        """The codec of a model; raises `MisuseError` if it is not part of Bridle."""
        given = self._connections.get(model.model_key)
        return given.codec if given is not None else load_codec(model.endpoint.family)

    def encode(self, request: Request) -> EncodedCall | None:
        self.problem = ""
        try:
            encoded = self.encode_http(request)
            codec = self.find_codec(request.model)
            losses = tuple(codec.list_losses(request))
            unsent = tuple(codec.list_unsent_media(request.messages, request.model))
        except (MisuseError, BadTool) as error:
            self.problem = str(error)
            return None
        return EncodedCall(encoded.digest, losses, unsent)

    def encode_http(self, request: Request) -> HttpRequest:
        """The request as it was sent; raises `MisuseError` or `BadTool` if the log does not hold all of it."""
        codec, key = self.find_codec(request.model), request.model.model_key
        if key not in self._histories:
            self._histories[key] = codec.new_history()
        return codec.encode(self._restore(request), self._histories[key])

    def encode_shown(self, request: Request) -> HttpRequest:
        """The request for a person to read: private values are hidden, whether they are known here or not."""
        try:
            encoded = self.encode_http(request)
        except (MisuseError, BadTool):
            # Fails again if the codec is missing.
            return self.encode_http(_keep_marks(request))
        body = encoded.body
        for extras in self._extras:
            body = (
                Redactor(extras.credentials, HIDDEN_MARK).redact_bytes(body) if extras.credentials else body
            )
            # guard: shown-request-redacted
            body = redact_json_strings(body, extras.texts, HIDDEN_MARK)
        return replace(encoded, body=body)

    def locate_rejected_parts(self, request: Request, failure: Failure) -> tuple[PartRef, ...] | None:
        try:
            return locate_rejected_parts(self.find_codec(request.model), self._restore(request), failure)
        except (MisuseError, BadTool):
            return None

    def _restore(self, request: Request) -> Request:
        """The request with values that the log does not hold, from the agent that has them."""
        specs = (*request.tools, *request.deferred_tools)
        marks = [each.digest for each in request.extras] + [spec.native_digest for spec in specs]
        marks = [mark for mark in marks if mark]
        if not marks:
            return request
        for extras in self._extras:
            if all(mark in extras.originals or mark in extras.tools for mark in marks):
                return extras.restore(request)
        return NO_PRIVATE_EXTRAS.restore(request)


def _keep_marks(request: Request) -> Request:
    """The request as the log has it, with marks in place of private values."""

    def unmark(specs: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
        return tuple(replace(spec, native_digest="") if spec.native_digest else spec for spec in specs)

    extras = tuple(replace(each, digest="") if each.digest else each for each in request.extras)
    return replace(
        request, extras=extras, tools=unmark(request.tools), deferred_tools=unmark(request.deferred_tools)
    )
