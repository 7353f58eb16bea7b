"""Chat endpoints in the protocols of front ends: a chat or thread is a session, a request is a run.

A client that leaves cancels the run, as these clients expect of their stop button; `?on_leave=continue` lets it go on.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal

from starlette.responses import Response

from bridle.run.context.run_options import RunOptions
from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost, AnyAgent
from bridle.serve.session_list import is_running
from bridle.serve.streams.ag_ui import AgUiAdapter
from bridle.serve.streams.sse import EventStream, StreamAdapter
from bridle.serve.streams.ui_messages import UiMessageAdapter
from bridle.tools.external_tool import ExternalTool, external_tool
from bridle.values.base import Value
from bridle.values.events import Prompted
from bridle.values.message import Media, Outcome, Text, ToolResult

from .call import ApiCall
from .chat_sessions import find_chat_session, fork_before_prompt
from .control import answer, hold_answers, resume_answered
from .reading import read_session
from .types import ApprovalBody, StartedRun

NO_QUESTION = "to answer a message again, the last message must be that one, of the user"
QUESTION_HINT = "send the messages before the answer, as `regenerate()` of the AI SDK does"
NO_PROMPT = "the last message must be one of the user, a tool result, or answer an approval"


class ChatQuery(Value, kw_only=True, forbid_unknown_fields=True):
    on_leave: Literal["cancel", "continue"] = "cancel"
    """Effect on the run if the client disconnects before its end."""


class UiApproval(Value, kw_only=True):
    id: str = ""
    approved: bool = False
    reason: str = ""


class UiPart(Value, kw_only=True, rename="camel"):
    type: str
    text: str = ""
    url: str = ""
    media_type: str = ""
    filename: str = ""
    state: str = ""
    approval: UiApproval | None = None


class UiMessage(Value, kw_only=True):
    role: str
    parts: tuple[UiPart, ...] = ()


class UiChatBody(Value, kw_only=True, rename="camel"):
    """Request of the Vercel AI SDK; fields that it may have besides these are not used."""

    id: str
    messages: tuple[UiMessage, ...]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    """Of the message of the user that is edited, or of the answer to replace; these are the last, or after the last."""


async def stream_ui_messages(call: ApiCall, query: ChatQuery, body: UiChatBody) -> Response:
    """Run a chat request of the Vercel AI SDK and stream its UI messages."""
    last = body.messages[-1] if body.messages else UiMessage(role="")
    if last.role == "user":
        parts = [_read_part(part) for part in last.parts]
        run = await _start(call, await _find_session(call.host, body), parts)
    elif body.trigger == "regenerate-message":
        raise ServeError(400, "invalid_request", NO_QUESTION, QUESTION_HINT)
    else:
        answers = [
            part.approval for part in last.parts if part.approval and part.state == "approval-responded"
        ]
        run = await _answer_all(
            call.host,
            await find_chat_session(call.host, body.id),
            [(each.id, _make_answer(each.reason, is_approved=each.approved)) for each in answers],
        )
    return _stream(call.host, run, query, UiMessageAdapter(run.session))


async def _find_session(host: AgentHost, body: UiChatBody) -> str:
    """The session to prompt: that of the chat, or a fork if a message is edited or answered again."""
    if body.trigger == "submit-message" and body.message_id is None:
        return await find_chat_session(host, body.id)
    texts = [
        "".join(part.text for part in message.parts if part.type == "text")
        for message in body.messages
        if message.role == "user"
    ]
    return await fork_before_prompt(host, body.id, texts, is_edited=body.trigger == "submit-message")


async def continue_ui_messages(call: ApiCall, query: ChatQuery) -> Response:
    """Stream the run in progress of a chat again, from its start; 204 if there is none."""
    host = call.host
    session = await find_chat_session(host, call.session)
    if not await host.store.read(session, limit=1) or not await is_running(host, session):
        return Response(status_code=204)
    records, _ = await read_session(host, session)
    starts = [record.seq - 1 for record in records if isinstance(record.event, Prompted)]
    run = StartedRun(session=session, agent="", after=starts[-1] if starts else 0)
    return _stream(host, run, ChatQuery(on_leave="continue"), UiMessageAdapter(session))


class AgUiContent(Value, kw_only=True):
    type: str
    text: str = ""


class AgUiMessage(Value, kw_only=True, rename="camel"):
    role: str
    content: str | tuple[AgUiContent, ...] | None = None
    tool_call_id: str = ""
    error: str | None = None


class AgUiTool(Value, kw_only=True, gc=True):
    name: str
    description: str = ""
    parameters: dict[str, object] | None = None


class AgUiResume(Value, kw_only=True, gc=True, rename="camel"):
    interrupt_id: str
    status: str = "resolved"
    payload: object = None


class AgUiBody(Value, kw_only=True, gc=True, rename="camel"):
    """Request of an AG-UI client. Its tools are run by the client: the run waits for their results."""

    thread_id: str
    run_id: str
    messages: tuple[AgUiMessage, ...] = ()
    tools: tuple[AgUiTool, ...] = ()
    resume: tuple[AgUiResume, ...] | None = None
    state: object = None
    context: object = None
    forwarded_props: object = None

    def list_ignored(self) -> list[str]:
        given = {"state": self.state, "context": self.context, "forwardedProps": self.forwarded_props}
        return [name for name, value in given.items() if value]


async def stream_ag_ui(call: ApiCall, query: ChatQuery, body: AgUiBody) -> Response:
    """Run a request of an AG-UI client and stream its events."""
    last = body.messages[-1] if body.messages else AgUiMessage(role="")
    results = dict(_read_results(body.messages))
    if body.resume:
        run = await _answer_all(call.host, body.thread_id, [_read_resume(each) for each in body.resume])
    elif last.role == "tool":
        run = await call.host.resume(body.thread_id, results=results)
    else:
        run = await _start(call, body.thread_id, _read_content(last), body.tools)
    return _stream(call.host, run, query, AgUiAdapter(run.session, body.run_id, body.list_ignored(), results))


def _read_content(message: AgUiMessage) -> list[Text | Media]:
    content = message.content
    parts = (AgUiContent(type="text", text=content),) if isinstance(content, str) else content
    if message.role != "user" or not parts:
        raise ServeError(400, "invalid_request", NO_PROMPT)
    if other := next((part.type for part in parts if part.type != "text"), ""):
        raise ServeError(400, "not_supported", f"content of type {other!r} is not supported here")
    return [Text(text=part.text) for part in parts]


def _read_results(messages: Sequence[AgUiMessage]) -> Iterator[tuple[str, ToolResult]]:
    """Results of calls that the client ran: the last messages."""
    for message in takewhile(lambda each: each.role == "tool", reversed(messages)):
        content = message.content
        pieces = (content,) if isinstance(content, str) else [part.text for part in content or ()]
        parts = tuple(Text(text=piece) for piece in (*pieces, message.error) if piece)
        outcome: Outcome = "error" if message.error else "ok"
        yield message.tool_call_id, ToolResult(call_id=message.tool_call_id, parts=parts, outcome=outcome)


def _read_tools(agent: AnyAgent, tools: Sequence[AgUiTool]) -> Iterator[ExternalTool]:
    """Tools that the client runs."""
    for each in tools:
        if each.name in agent.tools:
            problem = f"the agent has a tool {each.name!r} of its own; rename that of the client"
            raise ServeError(400, "invalid_request", problem)
        yield external_tool(each.name, each.description, each.parameters or None)


def _read_resume(entry: AgUiResume) -> tuple[str, ApprovalBody]:
    payload = entry.payload if isinstance(entry.payload, dict) else {"approved": entry.payload is not False}
    reason, arguments = payload.get("reason", ""), payload.get("arguments")
    is_approved = entry.status == "resolved" and payload.get("approved", True) is True
    edited = arguments if is_approved and isinstance(arguments, dict) else None
    return entry.interrupt_id, _make_answer(str(reason), is_approved=is_approved, arguments=edited)


def _make_answer(
    reason: str, *, is_approved: bool, arguments: dict[str, object] | None = None
) -> ApprovalBody:
    return ApprovalBody(answer="approve" if is_approved else "reject", reason=reason, arguments=arguments)


async def _start(
    call: ApiCall, session: str, parts: Sequence[Text | Media], tools: Sequence[AgUiTool] = ()
) -> StartedRun:
    agent = call.host.find_agent(call.path["agent"])
    options = (
        RunOptions(tools=[*agent.parts.inputs.tools, *_read_tools(agent, tools)]) if tools else RunOptions()
    )
    return await call.host.prompt(agent, tuple(parts), session, **options)


async def _answer_all(
    host: AgentHost, session: str, answers: Sequence[tuple[str, ApprovalBody]]
) -> StartedRun:
    if not answers:
        raise ServeError(400, "invalid_request", NO_PROMPT)
    async with hold_answers(host, session) as outer:
        for approval, given in answers:
            await answer(host, session, approval, given)
        run = await resume_answered(host, session, outer)
    if run is None:
        raise ServeError(
            409, "not_resumed", "the answers are recorded; the run waits for others, or runs elsewhere"
        )
    return run


def _stream(host: AgentHost, run: StartedRun, query: ChatQuery, adapter: StreamAdapter) -> Response:
    view = host.feeds.view(run.session, run.after, until_end=True)
    on_leave = (lambda: host.cancel(run.session)) if query.on_leave == "cancel" else None
    return EventStream(view, adapter, on_leave)


def _read_part(part: UiPart) -> Text | Media:
    if part.type == "text":
        return Text(text=part.text)
    if part.type != "file":
        raise ServeError(400, "not_supported", f"a part of type {part.type!r} is not supported in a prompt")
    if not part.url.startswith("data:"):
        return Media.from_url(part.url, media_type=part.media_type, name=part.filename)
    head, _, encoded = part.url.partition(",")
    if not head.endswith(";base64"):
        raise ServeError(400, "invalid_request", "a data URL must be in base64")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ServeError(400, "invalid_request", f"a data URL is not base64: {error}") from None
    return Media.from_bytes(data, media_type=part.media_type, name=part.filename)
