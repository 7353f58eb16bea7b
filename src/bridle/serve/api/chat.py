"""Chat endpoints in the protocols of front ends: a chat or thread is a session, a request is a run.

A client that leaves cancels the run, as these clients expect of their stop button; `?on_leave=continue` lets it go on.
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Literal

from msgspec.structs import replace
from starlette.responses import Response

from bridle.run.calls.approval import list_approved_calls, list_pending_approvals
from bridle.run.calls.catalogue import list_taken_names
from bridle.run.calls.verdicts import EXPECTED, check_names, read_verdict
from bridle.run.context.run_options import RunOptions
from bridle.run.validate_input import check_session
from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost, AnyAgent
from bridle.serve.identity import missing_session
from bridle.serve.session_list import is_running
from bridle.serve.streams.ag_ui import AgUiAdapter
from bridle.serve.streams.sse import EventStream, StreamAdapter
from bridle.serve.streams.ui_messages import UiMessageAdapter
from bridle.tools.external import ExternalTool, external_tool
from bridle.values.base import Value
from bridle.values.errors import MisuseError
from bridle.values.events import Prompted
from bridle.values.message import Media, MediaKind, Outcome, Text, ToolResult

from .call import ApiCall
from .chat_sessions import find_chat_session, fork_before_prompt, is_visible_chat
from .control import WHOLE_ID, answer, check_answer, hold_answers, is_no_id, resume_answered
from .reading import read_session
from .types import ApprovalBody, StartedRun

AG_UI_STATUSES = ("resolved", "cancelled")
UI_ANSWER_FIELDS = ("approved", "reason", "arguments")
UNCLEAR = "unclear_answer"
NO_QUESTION = "to answer a message again, the last message must be that one, of the user"
QUESTION_HINT = "send the messages before the answer, as `regenerate()` of the AI SDK does"
SDK_HEADER = "x-ai-sdk"
SDK_VERSIONS = ("6", "5", "7")
"""Versions that the header may name; the first if there is none, because the SDK itself sends no version."""
NO_FILE_HANDLE = (
    "must have its bytes or a URL: a handle of a file at the provider names any file of the server's account"
)
AG_UI_MEDIA: dict[str, MediaKind] = {
    "image": "image", "audio": "audio", "video": "video", "document": "document",
}  # fmt: skip
NO_PROMPT = "the last message must be one of the user, a tool result, or answer an approval"


class ChatQuery(Value, kw_only=True, forbid_unknown_fields=True):
    on_leave: Literal["cancel", "continue"] = "cancel"
    """Effect on the run if the client disconnects before its end."""


class UiApproval(Value, kw_only=True, gc=True):
    id: str = ""
    approved: object = None
    reason: object = ""
    arguments: object = None


class UiPart(Value, kw_only=True, gc=True, rename="camel"):
    type: str
    text: str = ""
    url: str = ""
    media_type: str = ""
    filename: str = ""
    state: str = ""
    approval: UiApproval | None = None


class UiMessage(Value, kw_only=True, gc=True):
    role: str
    parts: tuple[UiPart, ...] = ()


class UiChatBody(Value, kw_only=True, gc=True, rename="camel"):
    """Request of the Vercel AI SDK; fields that it may have besides these are not used."""

    id: str
    messages: tuple[UiMessage, ...]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    """Of the message of the user that is edited, or of the answer to replace; these are the last, or after the last."""


async def stream_ui_messages(call: ApiCall, query: ChatQuery, body: UiChatBody) -> Response:
    """Run a chat request of the Vercel AI SDK and stream its UI messages."""
    version = _read_version(call)
    if not await is_visible_chat(call.host, call.access, body.id):
        raise missing_session(body.id)
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
            call,
            await find_chat_session(call.host, body.id),
            [
                (each.id, _read_answer({name: getattr(each, name) for name in UI_ANSWER_FIELDS}))
                for each in answers
            ],
        )
    return _stream(call.host, run, query, UiMessageAdapter(run.session, version))


def _read_version(call: ApiCall) -> int:
    """Version of the AI SDK that reads the stream: parts that came with 7 are errors for an earlier one."""
    given = call.request.headers.get(SDK_HEADER, SDK_VERSIONS[0])
    if given not in SDK_VERSIONS:
        problem = f"the header {SDK_HEADER} must be one of: {', '.join(SDK_VERSIONS)}; not {given!r}"
        raise ServeError(400, "invalid_request", problem)
    return int(given)


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
    if not await is_visible_chat(host, call.access, call.session):
        return Response(status_code=204)
    session = await find_chat_session(host, call.session)
    if not await host.store.read(session, limit=1) or not await is_running(host, session):
        return Response(status_code=204)
    records, _ = await read_session(host, session)
    starts = [record.seq - 1 for record in records if isinstance(record.event, Prompted)]
    run = StartedRun(session=session, agent="", after=starts[-1] if starts else 0)
    adapter = UiMessageAdapter(session, _read_version(call))
    return _stream(host, run, ChatQuery(on_leave="continue"), adapter)


class AgUiSource(Value, kw_only=True, rename="camel"):
    type: str
    value: str = ""
    mime_type: str = ""


class AgUiContent(Value, kw_only=True, gc=True, rename="camel"):
    """A part of a message; `binary` is the only one with media before version 1.0, with fields of its own."""

    type: str
    text: str = ""
    source: AgUiSource | None = None
    metadata: object = None
    mime_type: str = ""
    data: str = ""
    url: str = ""
    filename: str = ""


class AgUiMessage(Value, kw_only=True, gc=True, rename="camel"):
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
    status: str = ""
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
        content = self.messages[-1].content if self.messages else ()
        has_metadata = any(part.metadata for part in content or () if isinstance(part, AgUiContent))
        given["metadata of content"] = has_metadata
        return [name for name, value in given.items() if value]


async def stream_ag_ui(call: ApiCall, query: ChatQuery, body: AgUiBody) -> Response:
    """Run a request of an AG-UI client and stream its events."""
    last = body.messages[-1] if body.messages else AgUiMessage(role="")
    results = dict(_read_results(body.messages))
    if body.resume:
        run = await _answer_all(call, body.thread_id, [_read_resume(each) for each in body.resume])
    elif last.role == "tool":
        await call.access.check_session(call.host.store, check_session(body.thread_id))
        agent = await call.host.find_session_agent(body.thread_id)
        now = RunOptions(tools=[*agent.parts.inputs.tools, *_read_tools(agent, body.tools)])
        run = await call.host.resume(body.thread_id, agent=agent, results=results, access=call.access, **now)
    else:
        run = await _start(call, body.thread_id, _read_content(last), body.tools)
    return _stream(call.host, run, query, AgUiAdapter(run.session, body.run_id, body.list_ignored(), results))


def _read_content(message: AgUiMessage) -> list[Text | Media]:
    parts = _read_ag_ui_parts(message)
    if message.role != "user" or not parts:
        raise ServeError(400, "invalid_request", NO_PROMPT)
    return parts


def _read_ag_ui_parts(message: AgUiMessage) -> list[Text | Media]:
    content = message.content
    if isinstance(content, str):
        return [Text(text=content)] if content else []
    return [_read_ag_ui_part(part) for part in content or ()]


def _read_ag_ui_part(part: AgUiContent) -> Text | Media:
    if part.type == "text":
        return Text(text=part.text)
    if part.type == "binary":
        if not part.data and not part.url:
            raise ServeError(400, "not_supported", f"content of type 'binary' {NO_FILE_HANDLE}")
        return _read_media(part.data, part.url, part.mime_type, part.filename)
    kind = AG_UI_MEDIA.get(part.type)
    if kind is None:
        raise ServeError(400, "not_supported", f"content of type {part.type!r} is not supported here")
    source = part.source
    if source is None or source.type not in ("data", "url"):
        raise ServeError(400, "not_supported", f"content of type {part.type!r} {NO_FILE_HANDLE}")
    encoded, url = (source.value, "") if source.type == "data" else ("", source.value)
    return _read_media(encoded, url, source.mime_type, kind=kind)


def _read_results(messages: Sequence[AgUiMessage]) -> Iterator[tuple[str, ToolResult]]:
    """Results of calls that the client ran: the last messages."""
    for message in takewhile(lambda each: each.role == "tool", reversed(messages)):
        error = (Text(text=message.error),) if message.error else ()
        outcome: Outcome = "error" if message.error else "ok"
        parts = (*_read_ag_ui_parts(message), *error)
        yield message.tool_call_id, ToolResult(call_id=message.tool_call_id, parts=parts, outcome=outcome)


def _read_tools(agent: AnyAgent, tools: Sequence[AgUiTool]) -> Iterator[ExternalTool]:
    """Tools that the client runs."""
    taken = list_taken_names(agent.tools, agent.settings)
    for each in tools:
        # guard: ag-ui-tool-name-taken
        if each.name in taken:
            problem = f"the agent has a tool {each.name!r} of its own; rename that of the client"
            raise ServeError(400, "invalid_request", problem)
        made = external_tool(each.name, each.description, each.parameters or None)
        yield ExternalTool(replace(made.spec, always_visible=True))


def _read_resume(entry: AgUiResume) -> tuple[str, ApprovalBody]:
    if entry.status not in AG_UI_STATUSES:
        raise ServeError(400, UNCLEAR, f"status must be one of {', '.join(AG_UI_STATUSES)}; {EXPECTED}")
    is_cancelled = entry.status == "cancelled"
    given = False if is_cancelled and entry.payload is None else entry.payload
    answer = _read_answer(given)
    if is_cancelled and answer.answer != "reject":
        raise ServeError(400, UNCLEAR, f"a cancelled interrupt approves nothing; {EXPECTED}")
    return entry.interrupt_id, answer


def _read_answer(given: object) -> ApprovalBody:
    try:
        verdict = read_verdict(given)
    except MisuseError as error:
        raise ServeError(400, UNCLEAR, str(error)) from None
    if verdict.answer == "done":
        raise ServeError(400, UNCLEAR, f"`done` has no meaning here; {EXPECTED}")
    return ApprovalBody(
        answer=verdict.answer, reason=verdict.reason, arguments=verdict.arguments, by=verdict.by
    )


async def _start(
    call: ApiCall, session: str, parts: Sequence[Text | Media], tools: Sequence[AgUiTool] = ()
) -> StartedRun:
    agent = call.host.find_agent(call.path["agent"])
    options = (
        RunOptions(tools=[*agent.parts.inputs.tools, *_read_tools(agent, tools)]) if tools else RunOptions()
    )
    access = call.access
    return await call.host.prompt(
        agent,
        tuple(parts),
        session,
        new=await access.find_new(call.host.store, check_session(session)),
        caller=access.caller,
        tenant=access.tenant,
        access=access,
        **options,
    )


async def _answer_all(call: ApiCall, session: str, answers: Sequence[tuple[str, ApprovalBody]]) -> StartedRun:
    """Record all answers and continue the run; if one of them is refused, none is recorded."""
    host = call.host
    call.access.require("approve")
    if not answers:
        raise ServeError(400, "invalid_request", NO_PROMPT)
    try:
        check_names(await call.request.body())
    except MisuseError as error:
        raise ServeError(400, UNCLEAR, str(error)) from None
    await call.access.check_session(host.store, check_session(session))
    answers = [(approval, call.access.narrow(given)) for approval, given in answers]
    ids = [approval for approval, _ in answers]
    if len({*ids}) < len(ids):
        raise ServeError(400, UNCLEAR, "a question is answered twice in one request; nothing is recorded")
    async with hold_answers(call, session) as outer:
        _, state = await read_session(host, session)
        pending = {each.id: each for each in list_pending_approvals(session, state)}
        for approval, given in answers:
            if approval in pending:
                await check_answer(host, session, approval, given)
            # guard: answer-names-question
            if is_no_id(approval, [*pending.values(), *list_approved_calls(session, state)]):
                raise ServeError(400, UNCLEAR, WHOLE_ID)
        # One that is not asked is refused, before the others are recorded.
        for approval, given in sorted(answers, key=lambda each: each[0] in pending):
            await answer(host, session, approval, given)
        run = await resume_answered(call, session, outer)
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
    return _read_media("", part.url, part.media_type, part.filename)


def _read_media(
    encoded: str, url: str, media_type: str, name: str = "", kind: MediaKind | None = None
) -> Media:
    """Media from base64, or from a URL, which may contain it; `kind` if the protocol names it."""
    if not encoded and not url.startswith("data:"):
        return Media.from_url(url, media_type=media_type, name=name, kind=kind)
    if not encoded:
        head, _, encoded = url.partition(",")
        if not head.endswith(";base64"):
            raise ServeError(400, "invalid_request", "a data URL must be in base64")
        media_type = media_type or head.removeprefix("data:").removesuffix(";base64")
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ServeError(400, "invalid_request", f"the data of a file is not base64: {error}") from None
    return Media.from_bytes(data, media_type=media_type, name=name, kind=kind)
