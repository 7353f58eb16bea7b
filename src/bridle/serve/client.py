"""`Client`: the API of a server, with types.

    client = bridle.serve.Client("http://127.0.0.1:8420", token="…")
    run = await client.prompt("Where is order 4411?", agent="shop")
    async for item in client.stream(run.session, after=run.after):
        print(item.text, end="")
    detail = await client.session(run.session)

A stream that breaks is continued after the last record that arrived, so that no record is missing or repeated.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from bridle.core.audit.report import AuditReport
from bridle.ports.transport import OutgoingRequest, Transport
from bridle.providers.wire.sse import SseReader
from bridle.run.control.requests import ControlOutcome
from bridle.transports.http import Deadlines, HttpTransport
from bridle.values.base import Value
from bridle.values.errors import BridleError, MisuseError, ProviderError
from bridle.values.events import Event, ModelReplied, UnknownEvent
from bridle.values.lineage import Comparison, Fork, Replay
from bridle.values.message import Media, Text
from bridle.values.record import decode_event
from bridle.values.result import AttemptRestarted, Delta, TextDelta
from bridle.values.usage import Budget

from .api import types as t
from .api.types import ErrorReply, StartedRun

T = TypeVar("T")
DEADLINES = Deadlines(first_byte_seconds=120.0, idle_seconds=60.0, total_seconds=None)
"""A server sends a comment every fifteen seconds, so a stream that is silent for longer is broken."""
# not from outside: time that we wait for our own work
RECONNECTS_MAX, RECONNECT_SECONDS, RECONNECT_SECONDS_MAX = 60, 0.5, 5.0
"""Some minutes in all: a server that restarts with many runs may need that on a busy machine."""
_decode_delta = msgspec.json.Decoder(Delta).decode
_decode_log_event = msgspec.json.Decoder(t.LogEvent).decode


class ServedEvent(Value, kw_only=True):
    """An event of a stream, with its number in the log."""

    seq: int
    at: float
    event: Event
    text: str = ""
    """Text of a reply that no delta has shown, so that printing every `text` shows all of it."""


class ApiError(BridleError):
    """The server answered with an error, or did not answer (status 0)."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.status, self.code, self.hint = status, code, hint


class Client:
    """A client of one server; its requests use the connections of the event loop."""

    def __init__(self, url: str, *, token: str = "", transport: Transport | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise MisuseError(f"{url!r} is not the address of a server; write it like http://127.0.0.1:8420")
        self._url, self._token = url.rstrip("/"), token
        self._transport = transport or HttpTransport(DEADLINES)

    async def agents(self) -> t.AgentList:
        return await self._get("/agents", t.AgentList)

    async def sessions(self, query: t.SessionQuery | None = None) -> t.SessionPage:
        return await self._get("/sessions", t.SessionPage, query)

    async def prompt(
        self,
        prompt: str | Sequence[Text | Media],
        *,
        agent: str = "",
        session: str = "",
        new: bool = False,
        budget: Budget | None = None,
        caller: str = "",
        tenant: str = "",
    ) -> StartedRun:
        """Start a run: in a session that exists, or in a new one without `session` or with `new`."""
        given = prompt if isinstance(prompt, str) else tuple(prompt)
        body = t.PromptBody(prompt=given, agent=agent, budget=budget, caller=caller, tenant=tenant)
        if session and not new:
            return await self._post(f"/sessions/{_quote(session)}/prompts", StartedRun, body)
        return await self._post("/sessions", StartedRun, msgspec.structs.replace(body, session=session))

    async def session(self, session: str) -> t.SessionDetail:
        return await self._get(f"/sessions/{_quote(session)}", t.SessionDetail)

    async def events(self, session: str, *, after: int = 0, limit: int = t.PAGE_DEFAULT) -> t.EventPage:
        return await self._get(
            f"/sessions/{_quote(session)}/events", t.EventPage, t.EventQuery(after=after, limit=limit)
        )

    async def messages(self, session: str) -> t.MessageList:
        return await self._get(f"/sessions/{_quote(session)}/messages", t.MessageList)

    async def steer(self, session: str, text: str, *, by: str = "") -> ControlOutcome:
        body = t.SteerBody(text=text, by=by)
        return await self._post(f"/sessions/{_quote(session)}/steer", ControlOutcome, body)

    async def cancel(self, session: str, *, by: str = "") -> ControlOutcome:
        return await self._post(f"/sessions/{_quote(session)}/cancel", ControlOutcome, t.ControlBody(by=by))

    async def pause(self, session: str, *, by: str = "") -> ControlOutcome:
        return await self._post(f"/sessions/{_quote(session)}/pause", ControlOutcome, t.ControlBody(by=by))

    async def resume(self, session: str, *, agent: str = "", budget: Budget | None = None) -> StartedRun:
        body = t.ResumeBody(agent=agent, budget=budget)
        return await self._post(f"/sessions/{_quote(session)}/resume", StartedRun, body)

    async def fork(self, session: str, at: int | str | None = None, *, new: str | None = None) -> Fork:
        return await self._post(f"/sessions/{_quote(session)}/fork", Fork, t.ForkBody(at=at, session=new))

    async def approvals(self, session: str) -> t.ApprovalList:
        return await self._get(f"/sessions/{_quote(session)}/approvals", t.ApprovalList)

    async def answer(
        self,
        session: str,
        approval: str,
        answer: Literal["approve", "reject", "done"],
        *,
        arguments: Mapping[str, object] | None = None,
        reason: str = "",
        by: str = "",
        resume: bool = True,
    ) -> t.ApprovalReply:
        """Approve a call, with other `arguments` if given, reject it, or report that a call in doubt was done."""
        edited = None if arguments is None else dict(arguments)
        body = t.ApprovalBody(answer=answer, arguments=edited, reason=reason, by=by, resume=resume)
        return await self._post(
            f"/sessions/{_quote(session)}/approvals/{_quote(approval)}", t.ApprovalReply, body
        )

    async def cost(self, session: str) -> t.CostReply:
        return await self._get(f"/sessions/{_quote(session)}/cost", t.CostReply)

    async def cache(self, session: str) -> t.CacheReply:
        return await self._get(f"/sessions/{_quote(session)}/cache", t.CacheReply)

    async def calls(self, session: str) -> t.CallList:
        return await self._get(f"/sessions/{_quote(session)}/calls", t.CallList)

    async def call(self, session: str, number: int) -> t.RawCallReply:
        return await self._get(f"/sessions/{_quote(session)}/calls/{number}", t.RawCallReply)

    async def replay(self, session: str, *, agent: str = "") -> Replay:
        return await self._get(f"/sessions/{_quote(session)}/replay", Replay, t.ReplayQuery(agent=agent))

    async def audit(self, session: str) -> AuditReport:
        return await self._get(f"/sessions/{_quote(session)}/audit", AuditReport)

    async def branches(self, session: str) -> t.BranchList:
        return await self._get(f"/sessions/{_quote(session)}/branches", t.BranchList)

    async def compare(self, session: str, other: str) -> Comparison:
        return await self._get(
            f"/sessions/{_quote(session)}/compare", Comparison, t.CompareQuery(other=other)
        )

    async def stream(
        self, session: str, *, after: int = 0, until: Literal["end", "never"] = "end"
    ) -> AsyncGenerator[ServedEvent | Delta, None]:
        """Yield the events after a record, and deltas between them; ends with the run.

        Connects again if the connection breaks. Deltas of that time are missing; their reply is an event.
        """
        failures, shown = 0, ShownText()
        while True:
            try:
                async for name, data in self._read_stream(session, after, until):
                    failures = 0
                    if name == b"end":
                        return
                    item = shown.complete(_decode_item(name, data))
                    if isinstance(item, ServedEvent):
                        after = item.seq
                    yield item
                problem = ApiError(503, "shutting_down", "the server ended the stream before the run ended")
            except ProviderError as error:
                problem = ApiError(0, error.failure.kind, str(error))
            failures += 1
            if failures > RECONNECTS_MAX:
                raise problem
            await asyncio.sleep(min(failures * RECONNECT_SECONDS, RECONNECT_SECONDS_MAX))

    async def _read_stream(
        self, session: str, after: int, until: str
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        query = t.StreamQuery(after=after, until="never" if until == "never" else "end")
        outgoing = self._make_request("GET", f"/sessions/{_quote(session)}/stream", query=query)
        async with self._transport.open(outgoing) as response:
            if response.status != 200:
                raise _make_error(response.status, b"".join([chunk async for chunk in response.chunks()]))
            reader = SseReader()
            async for chunk in response.chunks():
                for event in reader.feed(chunk):
                    yield event

    async def _get(self, path: str, reply: type[T], query: msgspec.Struct | None = None) -> T:
        return await self._send(self._make_request("GET", path, query=query), reply)

    async def _post(self, path: str, reply: type[T], body: msgspec.Struct) -> T:
        return await self._send(self._make_request("POST", path, body=body), reply)

    async def _send(self, outgoing: OutgoingRequest, reply: type[T]) -> T:
        """Send a request and decode its reply; one that only reads is sent again if the connection broke."""
        try:
            return await self._send_once(outgoing, reply)
        except ProviderError as error:
            if outgoing.method != "GET":
                raise ApiError(0, error.failure.kind, str(error)) from None
        try:
            return await self._send_once(outgoing, reply)
        except ProviderError as error:
            raise ApiError(0, error.failure.kind, str(error)) from None

    async def _send_once(self, outgoing: OutgoingRequest, reply: type[T]) -> T:
        async with self._transport.open(outgoing) as response:
            body = b"".join([chunk async for chunk in response.chunks()])
            if not 200 <= response.status < 300:
                raise _make_error(response.status, body)
            return msgspec.json.decode(body, type=reply)

    def _make_request(
        self,
        method: str,
        path: str,
        *,
        query: msgspec.Struct | None = None,
        body: msgspec.Struct | None = None,
    ) -> OutgoingRequest:
        headers = [("accept", "application/json, text/event-stream"), ("x-bridle-client", "python")]
        if self._token:
            headers.append(("authorization", f"Bearer {self._token}"))
        if body is not None:
            headers.append(("content-type", "application/json"))
        given = (
            {}
            if query is None
            else {name: str(v) for name, v in msgspec.to_builtins(query).items() if v != ""}
        )
        address = f"{self._url}/api{path}" + (f"?{urlencode(given)}" if given else "")
        data = b"" if body is None else msgspec.json.encode(body)
        return OutgoingRequest(method=method, url=address, headers=tuple(headers), body=data)


class ShownText:
    """Text of the current reply that deltas have shown; a viewer that connects late or again missed some."""

    def __init__(self) -> None:
        self._text = ""

    def complete(self, item: ServedEvent | Delta) -> ServedEvent | Delta:
        """The item, with the text that is missing if it is a complete reply."""
        if isinstance(item, AttemptRestarted):
            self._text = ""
        elif isinstance(item, TextDelta):
            self._text += item.text
        elif isinstance(item, ServedEvent) and isinstance(item.event, ModelReplied):
            shown, self._text = self._text, ""
            whole = "" if item.event.summarizes_until else item.event.reply.text
            rest = whole[len(shown) :] if whole.startswith(shown) else f"\n{whole}"
            return msgspec.structs.replace(item, text=rest)
        return item


def _decode_item(name: bytes, data: bytes) -> ServedEvent | Delta:
    if not data.startswith(b'{"seq":'):
        delta: Delta = _decode_delta(data)
        return delta
    row = _decode_log_event(data)
    event = decode_event(bytes(row.event)) or UnknownEvent(kind=name.decode())
    return ServedEvent(seq=row.seq, at=row.at, event=event)


def _make_error(status: int, body: bytes) -> ApiError:
    try:
        detail = msgspec.json.decode(body, type=ErrorReply).error
    except msgspec.MsgspecError:
        return ApiError(status, "unknown", f"the server answered {status} without an explanation")
    return ApiError(status, detail.code, detail.message, detail.hint)


def _quote(part: str) -> str:
    return quote(part, safe="")
