"""The model calls of a session, each with its request rebuilt from the log: `bridle show --as raw`, `read_call`.

The recorded digest proves that a rebuilt request is the one that was sent. It does not cover the delivery (streamed or
whole), which a log records only with `Agent(keep_raw=…)`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from bridle.core.lineage.replay import AskedCall, LogReplay, describe_unchecked, name_event
from bridle.core.lineage.request_difference import PromptSide, add_bodies, compare_requests
from bridle.core.state import State
from bridle.ports.codec import HttpRequest
from bridle.providers.catalogue import auth_headers
from bridle.run.context.resources import StoreLike
from bridle.run.private_extras import HIDDEN_MARK
from bridle.run.validate_input import check_session, check_tenant
from bridle.values.errors import BadTool, MisuseError
from bridle.values.events import ModelAsked, ModelFailed, ModelReplied, RunEnded
from bridle.values.lineage import RecordedCall
from bridle.values.model import Model
from bridle.values.record import Record
from bridle.values.redaction import (
    Redactor,
    find_header_secrets,
    hide_user_info,
    is_credential_name,
    redact_query,
)

from .changed_settings import AgentSettingsNow
from .log_wire import LogWire
from .replay_session import make_wire, read_records, use_store

if TYPE_CHECKING:
    from bridle.run.agent import Agent

OTHER_DIGEST = (
    "the rebuilt request has another digest: another version or another codec encoded the one that was sent"
)
NOT_EXPLAINED = "no decision of this version leads to this request"
_ADDRESS = re.compile(r"(?i)https?://[^/?#]")


async def read_call(
    session: str,
    number: int,
    *,
    store: StoreLike = None,
    agent: "Agent[Any, Any] | None" = None,
    stream: bool = False,
    tenant: str | None = None,
) -> RecordedCall:
    """One model call of a session by its number, counted from 1 with retries; -1 is the latest.

    `agent` supplies what a log does not hold: values of extras, and a codec of your own. `stream` chooses the delivery
    of a request whose delivery is not recorded. Raises `MisuseError` if there is no such call.
    """
    check_session(session)
    now = AgentSettingsNow(agent) if agent is not None else None
    async with use_store(store, agent) as log:
        records = await read_records(log, session)
    reader = CallReader(make_wire(now), stream=stream)
    count = sum(isinstance(record.event, ModelAsked) for record in records)
    wanted = number if number > 0 else count + 1 + number
    found = [call for call in reader.read(records, wanted) if call.number == wanted]
    check_tenant(session, reader.state, tenant)
    if not found:
        raise MisuseError(
            f"session {session!r} has no model call {number}; `bridle show {session} --as raw` lists them"
        )
    return found[0]


class CallReader:
    """Reads the model calls of a log, in order."""

    def __init__(self, wire: LogWire, *, stream: bool = False) -> None:
        self._wire, self._stream = wire, stream
        self._replay = LogReplay(wire)
        self._previous: tuple[PromptSide, bytes] | None = None

    @property
    def state(self) -> State:
        return self._replay.state

    def read(self, records: Sequence[Record], compared: int = 0) -> Iterator[RecordedCall]:
        """The calls; the one with the number `compared` with its difference to the request before it."""
        number, open_call = 0, None
        for record in records:
            before, event = self._replay.state, record.event
            self._replay.apply_record(record)
            if isinstance(event, ModelAsked):
                if open_call is not None:
                    yield open_call[0]
                number += 1
                open_call = self._make_call(record, event, number, before, compares=number == compared)
            elif open_call is not None and isinstance(event, ModelReplied | ModelFailed | RunEnded):
                yield self._close_call(*open_call, record)
                open_call = None
        if open_call is not None:
            yield open_call[0]

    def _make_call(
        self, record: Record, event: ModelAsked, number: int, before: State, *, compares: bool
    ) -> tuple[RecordedCall, AskedCall | None]:
        asked = self._replay.asked
        if asked is None or asked.record.seq != record.seq:
            return _make_unknown(record, event, number, self._explain(record, NOT_EXPLAINED)), None
        request = asked.effect.request
        encoded, problem = self._wire.encode(request), self._wire.problem
        is_proven = encoded is not None and encoded.digest == event.digest
        if encoded is not None and not is_proven:
            problem = self._explain(record, OTHER_DIGEST)
        shown = self._encode_shown(asked, streamed=self._stream)
        side, difference = PromptSide(request, before), None
        if compares and self._previous is not None:
            earlier, body = self._previous
            difference = compare_requests(earlier, side)
            if (
                difference is not None
                and earlier.request.model.endpoint.family == request.model.endpoint.family
            ):
                difference = add_bodies(difference, body, shown.body)
        self._previous = side, shown.body
        call = RecordedCall(
            number=number,
            seq=record.seq,
            step=event.step,
            attempt=event.attempt,
            model=request.model.name,
            method=shown.method,
            url=_make_url(request.model, shown.path),
            headers=_list_headers(request.model, shown),
            signing=list_signing(request.model),
            body=shown.body,
            digest=event.digest,
            is_proven=is_proven,
            problem=problem,
            is_summary=bool(event.summarizes_until),
            difference=difference,
        )
        return call, asked

    def _explain(self, record: Record, otherwise: str) -> str:
        return describe_unchecked(record.seq) if self._replay.follows_removed else otherwise

    def _close_call(self, call: RecordedCall, asked: AskedCall | None, record: Record) -> RecordedCall:
        event = record.event
        raw = event.raw if isinstance(event, ModelReplied | ModelFailed) else None
        if raw is not None and asked is not None and raw.streamed != self._stream:
            shown = self._encode_shown(asked, streamed=raw.streamed)
            model = asked.effect.request.model
            url, headers = _make_url(model, shown.path), _list_headers(model, shown)
            call = replace(call, body=shown.body, url=url, headers=headers)
        return replace(
            call,
            outcome=name_event(event),
            outcome_seq=record.seq,
            stop=_describe_outcome(event),
            raw=raw,
            is_streamed=raw.streamed if raw is not None else None,
        )

    def _encode_shown(self, asked: AskedCall, *, streamed: bool) -> HttpRequest:
        try:
            return self._wire.encode_shown(replace(asked.effect.request, stream=streamed))
        except (MisuseError, BadTool):
            return HttpRequest(path="", body=b"")


def _make_unknown(record: Record, event: ModelAsked, number: int, problem: str) -> RecordedCall:
    return RecordedCall(
        number=number, seq=record.seq, step=event.step, attempt=event.attempt, model=event.model_key, method="",
        url="", headers=(), body=b"", digest=event.digest, is_proven=False, problem=problem,
        is_summary=bool(event.summarizes_until),
    )  # fmt: skip


def _describe_outcome(event: object) -> str:
    match event:
        case ModelReplied(reply=reply):
            return reply.stop.value
        case ModelFailed(failure=failure):
            return f"{failure.kind}: {failure.message}"
        case RunEnded(stop=stop):
            return stop
    return ""


def _make_url(model: Model, path: str) -> str:
    return redact_query(hide_user_info(model.endpoint.base_url.rstrip("/")) + path, "[key]")


def _list_headers(model: Model, shown: HttpRequest) -> tuple[tuple[str, str], ...]:
    hidden = ((name, _hide_credentials(name, value)) for name, value in shown.headers)
    return (*hidden, *list_credentials(model))


def _hide_credentials(name: str, value: str) -> str:
    # guard: credential-header-hidden
    if is_credential_name(name):
        return HIDDEN_MARK
    return Redactor(find_header_secrets(name, value), HIDDEN_MARK).redact_text(value)


def list_credentials(model: Model) -> tuple[tuple[str, str], ...]:
    """The headers that carry a credential, with the name of its variable as `$NAME`."""
    endpoint = model.endpoint
    # guard: curl-key-variable
    return auth_headers(endpoint, f"${endpoint.key_env[0]}") if endpoint.key_env else ()


def list_signing(model: Model) -> tuple[str, ...]:
    """Service, region and variables of an endpoint whose requests are signed, if it takes no key."""
    endpoint = model.endpoint
    if not endpoint.signing or endpoint.key_env or len(endpoint.signing_env) < 2:
        return ()
    service, _, region = endpoint.signing.partition("/")
    return service, region, *endpoint.signing_env[:2]


def is_addressable(url: str) -> bool:
    """True if a program can send a request there; the built-in simulator has no address."""
    return _ADDRESS.match(url) is not None
