"""From a reply's calls to what is done about each.

A call is numbered and checked once, when its reply comes in.  From then on it is in
one of four conditions: answered, wrong (it gets an excuse, at no risk), in doubt
(started by a driver that is gone: its tool's policy decides), or runnable.

A batch must come out as if it had been run in the order the model wrote it.  A call
may therefore start only when no earlier unfinished call could disturb it; calls that
only read disturb nobody.
"""

from hashlib import sha256

from msgspec.structs import replace

from ..values.message import Reply, Stop
from ..values.parts import Part, ToolCall, ToolResult
from ..values.request import ToolSpec
from ..values.settings import Settings
from .context import shown_tools
from .effects import Effect, Excuse, RunTool
from .state import OpenCall, State
from .validation import Problem, check_arguments, unknown_tool

ACCEPTED = "Accepted."
FORBIDDEN = "No tool may be called now. Answer without."
TRUNCATED = "The arguments were truncated: the reply reached its length limit. Nothing was run; call again."
IN_DOUBT = (
    "This call was started and then interrupted. Whether it took effect is unknown; it was not run again."
    " Find out before you repeat it."
)


def numbered(reply: Reply, turn: int) -> Reply:
    """The reply with ids of ours on its calls: unique in the session, legal on every wire."""
    if not reply.calls:
        return reply
    index = 0
    parts: list[Part] = []
    for part in reply.parts:
        if isinstance(part, ToolCall):
            parts.append(replace(part, id=f"c{turn}_{index}"))
            index += 1
        else:
            parts.append(part)
    return replace(reply, parts=tuple(parts))


def opened(reply: Reply, settings: Settings, objection: str, *, forbidden: bool) -> tuple[OpenCall, ...]:
    """The calls of a reply, each with what is wrong with it.  `forbidden`: none was to be made."""
    calls = reply.calls
    shown = shown_tools(settings.tools, settings.output)
    by_name = {spec.name: spec for spec in shown if spec.native is None}
    answer = settings.output.name if settings.output is not None and settings.output.mode == "tool" else None
    return tuple(
        OpenCall(
            call=call,
            problem=(TRUNCATED if call is calls[-1] and _cut_off(reply) else _problem(call, by_name))
            or (objection if call.name == answer else FORBIDDEN if forbidden else ""),
        )
        for call in calls
    )


def effects_for(state: State) -> tuple[Effect, ...]:
    """What to do now about the calls that have no result yet."""
    by_name = {spec.name: spec for spec in state.settings.tools}
    output = state.settings.output
    wanted: list[Effect] = []
    unfinished: list[ToolSpec] = []
    for open_call in state.calls:
        call = open_call.call
        if open_call.result is not None:
            continue
        if open_call.problem:
            wanted.append(Excuse(call=call, outcome="invalid", why=open_call.problem))
            continue
        if output is not None and output.mode == "tool" and call.name == output.name:
            wanted.append(Excuse(call=call, outcome="ok", why=ACCEPTED))
            continue
        spec = by_name.get(call.name)
        if spec is None:
            # Known when the reply came, gone now: the session was resumed with other tools.
            wanted.append(Excuse(call=call, outcome="invalid", why=unknown_tool(call.name, tuple(by_name))))
            continue
        if open_call.in_doubt and spec.on_unknown == "report":
            wanted.append(Excuse(call=call, outcome="unknown", why=IN_DOUBT))
            continue
        running = open_call.attempt > 0 and not open_call.in_doubt
        if not running and not any(_disturbs(earlier, spec) for earlier in unfinished):
            wanted.append(
                RunTool(
                    call=call,
                    key=call_key(state.proof, call.id),
                    attempt=open_call.attempt + 1,
                    timeout_seconds=spec.timeout_seconds,
                    deadline=deadline(state),
                )
            )
        unfinished.append(spec)
    return tuple(wanted)


def call_key(proof: str, call_id: str) -> str:
    """The same for every attempt at a call, in every fork that inherited it; of no other call ever."""
    return sha256(f"{proof}:{call_id}".encode()).hexdigest()[:32]


def deadline(state: State) -> float | None:
    seconds = state.run.budget.seconds
    return None if seconds is None else state.run.started_at + seconds


def answered(calls: tuple[OpenCall, ...]) -> tuple[tuple[ToolCall, ToolResult], ...]:
    """Calls with their results, in the order the model asked, whatever order they finished in."""
    return tuple((item.call, item.result) for item in calls if item.result is not None)


def _cut_off(reply: Reply) -> bool:
    """Whether the last call may be missing its arguments: with none at all, nobody can tell."""
    return reply.stop is Stop.LENGTH and reply.calls[-1].arguments.strip() in ("", "{}")


def _disturbs(earlier: ToolSpec, later: ToolSpec) -> bool:
    return not (earlier.effect == "read" and later.effect == "read")


def _problem(call: ToolCall, by_name: dict[str, ToolSpec]) -> str:
    spec = by_name.get(call.name)
    if spec is None:
        return unknown_tool(call.name, tuple(by_name))
    checked = check_arguments(spec, call.arguments)
    return checked.text if isinstance(checked, Problem) else ""
