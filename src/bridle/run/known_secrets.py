"""Removes the credentials of a run from what its tools and functions return, before it is logged and sent.

Known are the keys of the run's models, the credentials that sign requests, those of its MCP servers, and those of the
runs around it. A tool may find one in a file, in the environment, in the output of a program or in an exception.
"""

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

import msgspec
from msgspec.structs import replace

from bridle.ports.tool import ToolSource
from bridle.run.model_connection import ModelConnection, make_redactor
from bridle.values import events as e
from bridle.values.base import Value
from bridle.values.calls import ApprovalAsked, CompensationFinished, ServerAnswered, ServerAsked, ToolsChanged
from bridle.values.hooks import HookDecided
from bridle.values.media import read_text_document
from bridle.values.memory import ContextRetrieved, InstructionWritten, MemoryLoaded, NoteWritten
from bridle.values.message import Media, Opaque, Text, ToolResult
from bridle.values.redaction import Redactor, find_header_secrets
from bridle.values.result import Progress

GUARDED_EVENTS = frozenset((
    ApprovalAsked, CompensationFinished, ContextRetrieved, HookDecided, InstructionWritten, MemoryLoaded, NoteWritten,
    e.OutputChecked, e.Reprompted, e.RunEnded, ServerAnswered, ServerAsked, e.ToolInterrupted, ToolsChanged,
))  # fmt: skip
"""Events with text of tools, hooks, servers and functions. Results of calls are redacted before they are stored, and
replies while they arrive. A prompt stays as its author wrote it."""
KEPT_FIELDS = frozenset((
    "answer", "binding", "by", "call_id", "caller", "data", "hook", "id", "key", "kind", "media_type", "name", "point",
    "proof", "role", "request", "session", "stop", "tenant", "traceparent", "type", "withheld",
))  # fmt: skip
"""Fields that identify something; they hold no text of a tool."""

V = TypeVar("V", bound=Value)


@runtime_checkable
class SecretSource(Protocol):
    """A source of tools that has credentials."""

    @property
    def secrets(self) -> frozenset[str]: ...


class KnownSecrets:
    """The credentials of one run."""

    def __init__(
        self,
        connections: Iterable[ModelConnection],
        sources: Sequence[ToolSource] = (),
        outer: "KnownSecrets | None" = None,
    ) -> None:
        """Collect them; `outer` are those of the run inside whose call this run happens."""
        self.fixed: frozenset[str] = outer.fixed if outer is not None else frozenset()
        self.sources: tuple[SecretSource, ...] = outer.sources if outer is not None else ()
        found = set(self.fixed)
        for connection in connections:
            found |= connection.secrets
            if connection.sign_request is not None:
                found |= _find_variables(connection.model.endpoint.signing_env, os.environ)
        self.fixed = frozenset(found)
        self.sources = (*self.sources, *(each for each in sources if isinstance(each, SecretSource)))

    def __bool__(self) -> bool:
        return bool(self.fixed or self.sources)

    @property
    def _redactor(self) -> Redactor | None:
        """The redactor now; a server may have got a new token."""
        found = self.fixed
        for source in self.sources:
            # guard: sign-in-secrets-known
            found |= source.secrets
        return make_redactor(found)

    def redact_text(self, text: str) -> str:
        redactor = self._redactor
        return text if redactor is None else redactor.redact_text(text)

    def redact_result(self, result: ToolResult) -> ToolResult:
        """The result without credentials; the same object if there are none in it."""
        redactor = self._redactor
        if redactor is None:
            return result
        parts = tuple([_redact_part(part, redactor) for part in result.parts])
        for new, old in zip(parts, result.parts, strict=True):
            if new is not old:
                return replace(result, parts=parts, native=None)
        return result

    def redact_value(self, event: V) -> V:
        """The event or value without credentials; the same object if there are none in it."""
        redactor = self._redactor
        if redactor is None:
            return event
        whole = msgspec.json.encode(event).decode()
        if redactor.redact_text(whole) == whole:
            return event
        return msgspec.convert(_redact_tree(msgspec.to_builtins(event), redactor), type(event), strict=False)

    def redact_progress(self, progress: Progress) -> Progress:
        message = self.redact_text(progress.message)
        return progress if message == progress.message else replace(progress, message=message)


def collect_secrets(
    connections: Mapping[str, ModelConnection],
    sources: Sequence[ToolSource],
    outer: KnownSecrets | None = None,
) -> KnownSecrets | None:
    """The credentials of a run, with those of the run around it; None if there are none: nothing is searched."""
    known = KnownSecrets(connections.values(), sources, outer)
    return known or None


def _find_variables(names: Iterable[str], environ: Mapping[str, str]) -> set[str]:
    return {found for name in names for found in find_header_secrets(name, environ.get(name, ""))}


def _redact_part(part: Text | Media | Opaque, redactor: Redactor) -> Text | Media | Opaque:
    if isinstance(part, Text):
        text = redactor.redact_text(part.text)
        return part if text == part.text else Text(text=text)
    if isinstance(part, Opaque):
        native, text = redactor.redact_text(part.native), redactor.redact_text(part.text)
        return part if (native, text) == (part.native, part.text) else replace(part, native=native, text=text)
    url, name, content = (
        redactor.redact_text(part.url),
        redactor.redact_text(part.name),
        read_text_document(part),
    )
    clean = redactor.redact_text(content)
    if (url, name, clean) == (part.url, part.name, content):
        return part
    data = part.data if clean == content else base64.b64encode(clean.encode()).decode()
    return replace(part, url=url, name=name, data=data, native=None)


def _redact_tree(tree: object, redactor: Redactor) -> object:
    if isinstance(tree, str):
        return redactor.redact_text(tree)
    if isinstance(tree, list | tuple):
        return [_redact_tree(each, redactor) for each in tree]
    if isinstance(tree, dict):
        return {
            name: value if name in KEPT_FIELDS and isinstance(value, str) else _redact_tree(value, redactor)
            for name, value in tree.items()
        }
    return tree
