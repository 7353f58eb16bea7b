"""Calls of the provider's own tool types that our side has to answer.

Some tools are declared to the provider and run by the client: a shell, a patch, a computer, the approval of
a remote call.  Each has an item type for the call and one for its answer.  They are surfaced as ordinary
calls of a tool with a fixed name (`HOSTED`), so that policies, unknown-tool answers and results work as for
any other call.  An unanswered one would be refused in every later request.

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
"""A picture of one pixel: the answer to a computer call is a picture, also when there is none."""
APPROVE = "approve"


class HostedCall(NamedTuple):
    name: str
    """The name of the tool on our side."""
    asked: tuple[str, ...]
    """The members that say what is to be done."""
    output: str
    """The type of the answer."""
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
    """Whether an item is a call that our side must answer; `items` are those of the same reply."""
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
    """A hosted call as a call of ours; the whole item is kept, because it goes back as it came."""
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
    """The answer to a hosted call; `call` is its item."""
    words = "\n".join(repair_surrogates(part.text) for part in result.parts if isinstance(part, Text))
    words = words or (f"The call ended without a word: {result.outcome}." if result.is_error else "")
    answer: Block = {"type": HOSTED_CALLS[kind].output}
    match kind:
        case "shell_call":
            said = {"stdout": "", "stderr": words} if result.is_error else {"stdout": words, "stderr": ""}
            outcome = {"type": "exit", "exit_code": 1 if result.is_error else 0}
            return {**answer, "call_id": sent_id, "output": [{**said, "outcome": outcome}]}
        case "local_shell_call":
            return {**answer, "id": sent_id, "output": words}
        case "apply_patch_call":
            status = "failed" if result.is_error else "completed"
            return {**answer, "call_id": sent_id, "status": status, "output": words}
        case "computer_call":
            screen: Block = {"type": "computer_screenshot", "image_url": _screenshot_url(result)}
            # Only a tool that ran has seen to them; the harness acknowledges nothing for a person.
            checks = None if result.is_error else call.get("pending_safety_checks")
            more = {"acknowledged_safety_checks": checks} if checks else {}
            return {**answer, "call_id": sent_id, "output": screen, **more}
    approved = not result.is_error and words.strip().lower() == APPROVE
    reason = {} if approved or not words else {"reason": words}
    return {**answer, "approval_request_id": sent_id, "approve": approved, **reason}


def _screenshot_url(result: ToolResult) -> str:
    picture = next((part for part in result.parts if isinstance(part, Media) and part.kind == "image"), None)
    if picture is None:
        return BLANK_SCREENSHOT
    return picture.url or f"data:{picture.media_type or 'image/png'};base64,{picture.data}"
