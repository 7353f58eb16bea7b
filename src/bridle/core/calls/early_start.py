"""Starts read-only calls while their reply is still streaming.

A call may start early only if its tool reads, needs no approval and has no receipts (`once_per`), the call is
valid, and the reply has no earlier call that could change what it reads. All others wait for the end of the
reply, because a reply that breaks off is discarded together with its results.

Nothing is recorded before the reply is complete. So a streamed run leaves the same log as one that was not
streamed, and a crash leaves nothing in doubt.
"""

from collections.abc import Mapping

from bridle.core.budget.limits import deadline, tool_calls_left
from bridle.core.context.assemble import callable_tools
from bridle.core.effects import RunTool
from bridle.core.state import State
from bridle.values.message import ToolCall

from .dispatch import find_call_problem, make_call_id, make_call_key
from .pending import PendingCall
from .permission import decide_permission


def count_reads(state: State, ready: Mapping[int, ToolCall], known: int) -> int:
    """Number of leading calls of the reply that only read, given that the first `known` do.

    An incomplete call may turn out to be anything.
    """
    tools = state.settings.tools_by_name
    while known in ready and (spec := tools.get(ready[known].name)) and spec.effect == "read":
        known += 1
    return known


def start_early(
    state: State, ready: Mapping[int, ToolCall], index: int, running: int, reads: int
) -> RunTool | None:
    """Effect that starts a completed call early; None if it has to wait.

    `running` calls were started already; `reads` leading calls only read. A tool with `at_once_max` waits:
    the batch enforces that limit.
    """
    if not state.settings.hook_points.isdisjoint(("before_tool", "after_model")):
        return None
    call = ToolCall(
        id=make_call_id(state.totals.reply_count + 1, index),
        name=ready[index].name,
        arguments=ready[index].arguments,
    )
    item, spec = PendingCall(call=call), state.settings.find_tool(call.name)
    if (
        state.run.evaluation.tools_forbidden
        or spec is None
        or spec.effect != "read"
        or spec.once_per is not None
    ):
        return None
    if find_call_problem(call, callable_tools(state)):
        return None
    if decide_permission(state, item, spec).permission != "allow":
        return None
    if reads < index:
        return None
    left, limit = tool_calls_left(state), state.settings.reply_calls_max
    if limit is not None and index >= limit:
        return None
    if left is not None and index >= left[0]:
        return None
    if running >= state.settings.tools_at_once_max or spec.at_once_max is not None:
        return None
    return RunTool(
        call=item.call,
        key=make_call_key(state.calls.request_hash, item.call.id),
        attempt=1,
        timeout_seconds=spec.timeout_seconds,
        deadline=deadline(state),
    )
