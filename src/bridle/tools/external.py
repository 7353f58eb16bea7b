"""Tools that the caller runs: the model sees them like any other, and the harness has no code for them.

    agent = Agent(model, tools=[look_up, external_tool("confirm", "Asks the user.", schema)])
    result = await agent.run("Order it.")                         # stop == "waiting", result.external_calls
    result = await agent.resume(result.session, results={result.external_calls[0].id: "yes"})

The other calls of the reply run as usual.  A call waits in the log, so any process can resume it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from msgspec.structs import replace

from bridle.ports.run_context import RunContext
from bridle.ports.tool import ANY_ERROR, Json
from bridle.tools.names import check_tool_name
from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.values.errors import BadTool
from bridle.values.request import ToolEffect, ToolSpec


@dataclass(frozen=True)
class ExternalTool:
    declared_errors = ANY_ERROR
    spec: ToolSpec

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> NoReturn:
        raise BadTool(f"{self.spec.name!r} is run by the caller: pass its result to agent.resume(results=…)")


def external_tool(
    name: str,
    description: str = "",
    schema: Mapping[str, object] | str | None = None,
    *,
    effect: ToolEffect = "undeclared",
) -> ExternalTool:
    """A tool that the caller runs; `schema` is the JSON Schema of its arguments, none if it takes none."""
    check_tool_name(name)
    spec = ToolSpec(name=name, description=description, effect=effect, external=True)
    if schema is None:
        return ExternalTool(spec)
    try:
        return ExternalTool(replace(spec, parameters=parse_parameters_schema(schema)))
    except ValueError as error:
        raise BadTool(f"tool `{name}`: its schema {error}") from None
