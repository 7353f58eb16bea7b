"""Which call may start while the reply that makes it is still coming.

Only one that reads, that nobody has to allow, that no receipt may answer, that is valid as it
stands, and before which the reply has asked for nothing that could change what it reads.
Everything else waits for the end of the reply: a reply that breaks off is thrown away, and what
was done for it with it.

Nothing is recorded of it before the reply is complete and its call is a fact.  So a run that
was streamed leaves the same log as one that was not, and a crash leaves nothing in doubt.
"""

from collections.abc import Mapping

from bridle.core.budget.limits import deadline, tool_calls_left
from bridle.core.effects import RunTool
from bridle.core.state import State
from bridle.values.message import ToolCall

from .dispatch import callable_tools, find_call_problem, make_call_id, make_call_key
from .pending import PendingCall
from .permission import decide_permission


def count_reads(state: State, ready: Mapping[int, ToolCall], known: int) -> int:
    """How many calls at the beginning of the reply only read, where `known` of them are known to.

    One that is not complete yet may turn out to be anything.
    """
    reading = {spec.name for spec in state.settings.all_tools if spec.effect == "read"}
    while known in ready and ready[known].name in reading:
        known += 1
    return known


def start_early(
    state: State, ready: Mapping[int, ToolCall], index: int, running: int, reads: int
) -> RunTool | None:
    """The effect of starting one of the calls that are complete so far, or None to let it wait.

    `running` is how many were started already, `reads` how many calls at the beginning only read.
    A limit per tool makes it wait: it is the batch's to keep.
    """
    known = {spec.name: spec for spec in state.settings.all_tools}
    call = ToolCall(
        id=make_call_id(state.reply_count + 1, index),
        name=ready[index].name,
        arguments=ready[index].arguments,
    )
    item, spec = PendingCall(call=call), known.get(call.name)
    if state.run.tools_forbidden or spec is None or spec.effect != "read" or spec.once_per is not None:
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
        key=make_call_key(state.request_hash, item.call.id),
        attempt=1,
        timeout_seconds=spec.timeout_seconds,
        deadline=deadline(state),
    )
