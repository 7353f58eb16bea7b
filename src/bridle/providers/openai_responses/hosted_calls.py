"""Calls of the provider's own tool types that the client has to answer.

Some tools are declared to the provider and run by the client: a shell, a patch, a computer, the approval of a
remote call. Each has an item type for the call and one for its answer. They become ordinary calls of a tool
with a fixed name (`HOSTED_CALLS`), so that policies, unknown-tool answers and results work as for any other
call. An unanswered one would be refused in every later request.

A call that the provider runs itself, or has answered in the same reply, stays an opaque item.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bridle.providers.wire.json import drop_nulls, dumps, repair_surrogates, text_or_empty
from bridle.values.message import Media, Text, ToolCall, ToolResult

from .content import Block

BLANK_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Erk"
    "Jggg=="
)
"""An image of one pixel: the answer to a computer call must be an image, even if there is none."""
APPROVE = "approve"


class HostedCall(NamedTuple):
    name: str
    asked: tuple[str, ...]
    """The members that describe the action."""
    output: str
    id_member: str = "call_id"
    """The member the answer refers to."""


HOSTED_CALLS = {
    "shell_call": HostedCall("shell", ("action",), "shell_call_output"),
    "local_shell_call": HostedCall("local_shell", ("action",), "local_shell_call_output"),
    "apply_patch_call": HostedCall("apply_patch", ("operation",), "apply_patch_call_output"),
    "computer_call": HostedCall(
        "computer", ("action", "actions", "pending_safety_checks"), "computer_call_output"
    ),
    "mcp_approval_request": HostedCall(
        "mcp_approval", ("server_label", "name", "arguments"), "mcp_approval_response", id_member="id"
    ),
}


def needs_answer(item: Block, items: Sequence[object]) -> bool:
    """Return True if an item is a call that the client must answer; `items` are those of the same reply."""
    hosted = HOSTED_CALLS.get(text_or_empty(item.get("type")))
    if hosted is None:
        return False
    place = item.get("environment")
    if isinstance(place, dict) and text_or_empty(place.get("type")).startswith("container"):
        return False
    return not any(
        isinstance(other, dict)
        and other.get("type") == hosted.output
        and other.get("call_id") == item.get("call_id")
        for other in items
    )


def decode_hosted_call(item: Block) -> ToolCall:
    """Convert a hosted call to a `ToolCall`; the whole item is kept, because it is sent back unchanged."""
    hosted = HOSTED_CALLS[item["type"]]
    asked = {name: item[name] for name in hosted.asked if item.get(name) not in (None, [])}
    given = next(iter(asked.values())) if len(hosted.asked) == 1 and asked else asked
    if isinstance(given, dict):
        given = drop_nulls(given)
    return ToolCall(
        id="",
        name=hosted.name,
        arguments=dumps(given).decode(),
        wire_id=text_or_empty(item.get(hosted.id_member)),
        native=dumps(item).decode(),
    )


def encode_hosted_result(kind: str, sent_id: str, result: ToolResult, call: Mapping[str, Any]) -> Block:
    """Encode the answer to a hosted call; `call` is its item."""
    text = "\n".join(repair_surrogates(part.text) for part in result.parts if isinstance(part, Text))
    text = text or (f"The call ended without a word: {result.outcome}." if result.is_error else "")
    answer: Block = {"type": HOSTED_CALLS[kind].output}
    match kind:
        case "shell_call":
            streams = {"stdout": "", "stderr": text} if result.is_error else {"stdout": text, "stderr": ""}
            outcome = {"type": "exit", "exit_code": 1 if result.is_error else 0}
            return {**answer, "call_id": sent_id, "output": [{**streams, "outcome": outcome}]}
        case "local_shell_call":
            return {**answer, "id": sent_id, "output": text}
        case "apply_patch_call":
            status = "failed" if result.is_error else "completed"
            return {**answer, "call_id": sent_id, "status": status, "output": text}
        case "computer_call":
            screen: Block = {"type": "computer_screenshot", "image_url": _screenshot_url(result)}
            # Only a tool that ran has handled them; the harness acknowledges nothing on behalf of a user.
            checks = None if result.is_error else call.get("pending_safety_checks")
            more = {"acknowledged_safety_checks": checks} if checks else {}
            return {**answer, "call_id": sent_id, "output": screen, **more}
    approved = not result.is_error and text.strip().lower() == APPROVE
    reason = {} if approved or not text else {"reason": text}
    return {**answer, "approval_request_id": sent_id, "approve": approved, **reason}


def _screenshot_url(result: ToolResult) -> str:
    image = next((part for part in result.parts if isinstance(part, Media) and part.kind == "image"), None)
    if image is None:
        return BLANK_SCREENSHOT
    return image.url or f"data:{image.media_type or 'image/png'};base64,{image.data}"
