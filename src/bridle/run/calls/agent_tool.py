"""An agent as a tool of another agent.

Each call is a run of the inner agent in a session of its own.  The session is named after the call's idempotency
key, so a call that a crash interrupted finds its session again: it is finished, or its answer is reused, and
never started twice.  run/budget/nested.py charges the run to the outer one and shows it to the outer viewers.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, cast

import msgspec

from bridle.ports.run_context import RunContext
from bridle.ports.store import Store
from bridle.ports.tool import ANY_ERROR, Json
from bridle.run.budget.nested import current_nested_run
from bridle.tools.function.invoker import make_result_parts
from bridle.tools.function.options import ToolBehavior, ToolOptions
from bridle.tools.schema.output_type import OutputType
from bridle.values.errors import BadTool, BridleError
from bridle.values.message import Media, Text
from bridle.values.request import ToolEffect
from bridle.values.result import Result

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from bridle.run.session import Session

    C_contra = TypeVar("C_contra", contravariant=True, default=object)
else:
    from typing import TypeVar

    C_contra = TypeVar("C_contra", contravariant=True)

PROMPT_PARAMETER = "prompt"
PARAMETERS = msgspec.json.encode(
    {
        "type": "object",
        "properties": {
            PROMPT_PARAMETER: {
                "type": "string",
                "description": "The task, with everything needed to do it: the agent sees nothing else.",
            }
        },
        "required": [PROMPT_PARAMETER],
        "additionalProperties": False,
    }
).decode()
DEFAULT_DESCRIPTION = "Gives a task to the agent {name} and returns its answer."


class AgentToolOptions(TypedDict, total=False):
    """The options of `Agent.as_tool`; each has the meaning that it has for `@tool(…)`."""

    effect: ToolEffect
    """"read" for an agent that changes nothing: several calls run at the same time."""
    approve: bool | Callable[..., object]
    timeout: float | None
    """Seconds until the call is abandoned and its run cancelled; by default there is no limit."""
    once_per: Literal["run", "session"] | float
    at_once: int
    always: bool


class AgentStopped(BridleError):
    """The run of an agent inside a tool ended without an answer; the outer model reads the message."""


RunPrompt = Callable[[str, str | None, object], Awaitable[Result[Any]]]
"""Runs a prompt in the session of that id (None for a new one) with that context."""
OpenInner = Callable[[str, object, Store], "Session"]
"""Opens the session of that id with that context; in that store, unless the agent has its own."""


class AgentTool(Generic[C_contra]):
    declared_errors = ANY_ERROR

    def __init__(
        self,
        name: str,
        description: str | None,
        run: RunPrompt,
        context_type: object,
        options: AgentToolOptions,
        open_session: "OpenInner",
        output_type: OutputType[Any] | None = None,
        agent: object = None,
    ) -> None:
        """`open_session` opens the session of an earlier call; `output_type` is that of the agent's answers."""
        if not name:
            raise BadTool('the agent has no name; write agent.as_tool(name="…") or Agent(name="…")')
        unknown = set(options) - set(AgentToolOptions.__annotations__)
        if unknown:
            known = ", ".join(AgentToolOptions.__annotations__)
            raise BadTool(f"as_tool of `{name}`: unknown option {min(unknown)!r}; choose one of: {known}")
        given: dict[str, Any] = {"timeout": None, **options, "on_unknown": "retry"}
        described = description or DEFAULT_DESCRIPTION.format(name=name)
        self.behavior = ToolBehavior(name, described, PARAMETERS, cast("ToolOptions", given))
        self.spec, self.claim_resource = self.behavior.spec, self.behavior.claim_resource
        self.context_type, self._run, self.open_session = context_type, run, open_session
        self._output_type, self.agent = output_type, agent

    async def run(
        self, arguments: Mapping[str, Json], context: RunContext[C_contra]
    ) -> tuple[Text | Media, ...]:
        name, key, outer = self.spec.name, context.idempotency_key, current_nested_run()
        session = f"{name}-{key}" if key else None
        result = await self._run(str(arguments[PROMPT_PARAMETER]), session, context.context)
        if result.stop == "waiting" and outer is not None:
            outer.wait_for_person(result.session, result.reason)
            return ()
        if not result.done:
            raise AgentStopped(_describe_stop(name, result))
        shown = result.output if self._output_type is None else self._output_type.show(result.output)
        return make_result_parts(shown, name)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"


def _describe_stop(name: str, result: Result[Any]) -> str:
    why = f": {result.reason}" if result.reason else ""
    text = f". Its text so far: {result.text}" if result.text else ""
    return (
        f"the agent {name} stopped as {result.stop!r} without an answer{why} (session {result.session}){text}"
    )
