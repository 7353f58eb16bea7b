"""Decides about requests that servers make during tool calls: to the model or to a person.

The policy sees a request as a call of `mcp_sampling__SERVER` or `mcp_elicitation__SERVER`, names that no tool has.  A
request to the model needs a person's approval unless a rule allows it; one to a person always needs the person.
"""

from collections.abc import Mapping
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from bridle.core.state import State
from bridle.values.calls import (
    ElicitationRequest,
    RequestKind,
    ServerAnswered,
    ServerRequest,
)
from bridle.values.message import Media, Text, ToolCall
from bridle.values.request import ToolSpec

from .pending import PendingCall, find_call
from .permission import ASKED_BY_TOOL, PermissionDecision, decide_permission

REQUESTS_MAX = 16
"""Requests of a server during one call."""
PREFIXES: Mapping[RequestKind, str] = {"sampling": "mcp_sampling__", "elicitation": "mcp_elicitation__"}


def find_running_call(state: State, call_id: str) -> PendingCall | None:
    """The call with this id if it has started and has no result."""
    place = find_call(state.calls.batch.pending, call_id)
    item = state.calls.batch.pending[place] if place is not None else None
    return item if item is not None and item.running and item.result is None else None


def name_request(request: ServerRequest) -> str:
    """The name of a request in rules and questions."""
    return f"{PREFIXES[request.kind]}{request.server}"


def show_request(request: ServerRequest, tool: str) -> str:
    """A request as JSON text for a person and for rules; media are named by type and size."""
    if isinstance(request, ElicitationRequest):
        shown: dict[str, object] = {"tool": tool, "message": request.message}
        shown.update(
            {"url": request.url} if request.url else {"fields": msgspec.Raw(request.fields.encode())}
        )
    else:
        messages = [
            {"role": message.role, "text": "\n".join(_show_part(part) for part in message.parts)}
            for message in request.messages
        ]
        shown = {"tool": tool, "instructions": request.instructions, "messages": messages}
        shown["max_tokens"] = request.max_tokens
    return msgspec.json.encode(shown).decode()


def _show_part(part: object) -> str:
    if isinstance(part, Text):
        return part.text
    return f"[{part.media_type}, {len(part.data) * 3 // 4:,} bytes]" if isinstance(part, Media) else ""


def decide_request(state: State, request: ServerRequest, shown: str) -> PermissionDecision:
    """Permission of a request; by default a person is asked."""
    name = name_request(request)
    call = ToolCall(id="", name=name, arguments=shown)
    # guard: sampling-approval
    spec = ToolSpec(name=name, effect="write", approve="always")
    decided = decide_permission(state, PendingCall(call=call), spec)
    return replace(decided, rule="") if decided.rule == ASKED_BY_TOOL else decided


def bind_request(item: PendingCall, request: ServerRequest, number: int) -> str:
    """Hash of everything that an answer applies to; `number` counts equal requests of one attempt."""
    bound = (item.key, item.call.id, item.call.name, item.arguments, request, number)
    return sha256(msgspec.json.encode(bound, order="sorted")).hexdigest()


def find_request_answer(item: PendingCall, binding: str) -> ServerAnswered | None:
    """The answer to the same request of an earlier attempt of the call, or of this one."""
    return next((each for each in reversed(item.server_answers) if each.binding == binding), None)


def describe_request(request: ServerRequest, tool: str, rule: str) -> str:
    """Why a person is asked."""
    if isinstance(request, ElicitationRequest):
        return f"the MCP server {request.server} asks you during {tool}"
    return (
        f"the MCP server {request.server} wants to ask the model during {tool}{f' ({rule})' if rule else ''}"
    )
