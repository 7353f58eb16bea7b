"""Requests of a server during a call: to the model (sampling) and to a person (elicitation).

Both are off, refused and not announced to the server, unless the user allows them.  A request belongs to the call in
progress: a server that may ask gets its calls one after another (link.py), so there is at most one.  The run
behind the call decides and answers (`RunMonitor.answer_request`); here requests are only read, limited and refused.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import Any, NamedTuple

import mcp_types as types
import msgspec
from mcp.client.session import ClientRequestContext

from bridle.ports.run_context import RunContext
from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.values.calls import (
    ElicitationRequest,
    RequestRefused,
    SamplingRequest,
    ServerReply,
    ServerRequest,
)
from bridle.values.text import escape_text, locate_error, repair_surrogates

from .definitions import SCHEMA_CHARACTERS_MAX
from .offers import join_messages
from .results import make_content_part
from .server_settings import ServerSettings

LOG = logging.getLogger("bridle")
MESSAGE_CHARACTERS_MAX = 4_000
"""Of a question to a person, who must be able to read it."""
URL_CHARACTERS_MAX = 2_000
SAMPLING_CHARACTERS_MAX = 200_000
URL_SCHEMES = ("https://", "http://")
STOP_SEQUENCES_MAX = 16


class CallInProgress(NamedTuple):
    context: RunContext
    variables: Context
    """Context variables of the call, which a run inside it needs."""
    answers: set["asyncio.Task[ServerReply]"]


class RequestHandler:
    """Answers the requests of one server."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._call: CallInProgress | None = None

    @contextmanager
    def serve_call(self, context: RunContext) -> Generator[None]:
        """Answer requests for this call; those that are open at its end are abandoned."""
        call = self._call = CallInProgress(context, copy_context(), set())
        try:
            yield
        finally:
            self._call = None
            for task in call.answers:
                task.cancel()

    async def sample(
        self,
        context: ClientRequestContext,
        params: types.CreateMessageRequestParams,
    ) -> types.CreateMessageResult | types.ErrorData:
        try:
            reply = await self._answer(read_sampling(params, self._settings))
        except RequestRefused as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        content = types.TextContent(type="text", text=reply.text)
        stop = "maxTokens" if reply.is_cut else "endTurn"
        return types.CreateMessageResult(
            role="assistant", content=content, model=reply.model, stop_reason=stop
        )

    async def elicit(
        self,
        context: ClientRequestContext,
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        try:
            reply = await self._answer(read_elicitation(params, self._settings))
        except RequestRefused as error:
            return types.ErrorData(code=types.INVALID_REQUEST, message=str(error))
        content: dict[str, Any] | None = msgspec.json.decode(reply.text) if reply.text else None
        return types.ElicitResult(action=reply.action, content=content)

    async def _answer(self, request: ServerRequest) -> ServerReply:
        call = self._call
        if call is None or call.context.monitor is None:
            raise RequestRefused("requests are answered only during a call of an agent")
        answering = asyncio.create_task(
            _ask(call.context, request), context=call.variables.copy(), name=f"mcp {request.kind}"
        )
        call.answers.add(answering)
        try:
            await asyncio.wait((answering,))
        finally:
            answering.cancel()
            call.answers.discard(answering)
        if answering.cancelled():
            raise RequestRefused("the call has ended")
        error = answering.exception()
        if error is not None and not isinstance(error, RequestRefused):
            LOG.warning("a request of the MCP server %s failed: %s", request.server, locate_error(error))
            raise RequestRefused("the request could not be answered")
        return answering.result()


async def _ask(context: RunContext, request: ServerRequest) -> ServerReply:
    assert context.monitor is not None
    return await context.monitor.answer_request(context.call_id, request)


def read_sampling(params: types.CreateMessageRequestParams, settings: ServerSettings) -> SamplingRequest:
    """The request with its limits checked; raises `RequestRefused`."""
    assert settings.sampling is not None
    if params.tools or params.tool_choice is not None:
        raise RequestRefused("tools in sampling requests are not supported")
    if params.max_tokens < 1:
        raise RequestRefused("maxTokens must be at least 1")
    spoken = []
    for message in params.messages:
        for item in message.content if isinstance(message.content, list) else [message.content]:
            if isinstance(item, types.ToolUseContent | types.ToolResultContent):
                raise RequestRefused("tools in sampling requests are not supported")
            spoken.append((message.role, make_content_part(item)))
    messages = join_messages(spoken)
    if not messages or messages[-1].role != "user":
        raise RequestRefused("the last message must be from the user")
    instructions = repair_surrogates(params.system_prompt or "")
    if len(instructions) + sum(len(message.text) for message in messages) > SAMPLING_CHARACTERS_MAX:
        raise RequestRefused(f"a request may have at most {SAMPLING_CHARACTERS_MAX:,} characters")
    return SamplingRequest(
        server=settings.name,
        messages=messages,
        max_tokens=params.max_tokens,
        instructions=instructions,
        temperature=params.temperature,
        stop_sequences=tuple(map(repair_surrogates, (params.stop_sequences or [])[:STOP_SEQUENCES_MAX])),
        budget=settings.sampling,
    )


def read_elicitation(params: types.ElicitRequestParams, settings: ServerSettings) -> ElicitationRequest:
    """The question with its limits checked; raises `RequestRefused`."""
    # guard: server-question-escaped
    message = escape_text(repair_surrogates(params.message), prose=True)
    if len(message) > MESSAGE_CHARACTERS_MAX:
        raise RequestRefused(f"a question may have at most {MESSAGE_CHARACTERS_MAX:,} characters")
    if isinstance(params, types.ElicitRequestURLParams):
        url = params.url
        # guard: server-address-scheme
        if (
            not url.startswith(URL_SCHEMES)
            or len(url) > URL_CHARACTERS_MAX
            or escape_text(url, exact=True) != url
        ):
            raise RequestRefused("the address is not an http(s) address of visible characters")
        return ElicitationRequest(server=settings.name, message=message, url=url)
    try:
        fields = parse_parameters_schema({"type": "object", **params.requested_schema})
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the schema {error}") from None
    if len(fields) > SCHEMA_CHARACTERS_MAX:
        raise RequestRefused(f"a schema may have at most {SCHEMA_CHARACTERS_MAX:,} characters")
    return ElicitationRequest(server=settings.name, message=message, fields=fields)
