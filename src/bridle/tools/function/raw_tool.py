"""Makes a tool from a JSON Schema and a function.

For schemas from another process, a file or a service.  The function gets a plain dict that satisfies the
schema; nothing is converted.  A parameter annotated `RunContext` receives the context of the call.
"""

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json
from bridle.tools.names import check_tool_name
from bridle.tools.schema.external_schema import parse_parameters_schema
from bridle.values.errors import BadTool
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

from .invoker import make_invoker
from .options import DeclaredTool, ToolBehavior, ToolOptions


class RawTool(DeclaredTool):
    spec: ToolSpec

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, object] | str,
        run: Callable[..., object],
        **options: Unpack[ToolOptions],
    ) -> None:
        """`schema` is a dict, or JSON text that is sent unchanged."""
        check_tool_name(name)
        try:
            parameters = parse_parameters_schema(schema)
        except ValueError as error:
            raise BadTool(f"tool `{name}`: its schema {error}") from None
        self._invoker = make_invoker(name, run)
        behavior = ToolBehavior(name, description, parameters, options)
        super().__init__(behavior, self._invoker.context_type)

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> tuple[Text | Media, ...]:
        given: dict[str, Any] = dict(arguments)
        return await self._invoker((given,), {}, context)
