"""A tool from a raw JSON Schema and a function that takes what the model sent.

For schemas that come from elsewhere: another process, a file, a service.  The function
gets a plain dict that satisfies the schema; nothing is converted.  A parameter of the
function annotated `CallContext` is filled in.
"""

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from ..ports.tool import CallContext, Json
from ..values.errors import BadTool
from ..values.parts import Media, Text
from ..values.request import ToolSpec
from .body import body_of
from .conduct import Conduct, ToolOptions
from .given import given_parameters
from .names import check_name


class RawTool:
    spec: ToolSpec

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, object] | str,
        run: Callable[..., object],
        **options: Unpack[ToolOptions],
    ) -> None:
        """`schema`: a dict, or its JSON text, which is then sent exactly as it is."""
        check_name(name)
        try:
            parameters = given_parameters(schema)
        except ValueError as error:
            raise BadTool(f"tool `{name}`: its schema {error}") from None
        self.conduct = Conduct(name, description, parameters, options)
        self.spec = self.conduct.spec
        self.claim, self.probe = self.conduct.claim, self.conduct.probe
        self._body = body_of(name, run)

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> tuple[Text | Media, ...]:
        given: dict[str, Any] = dict(arguments)
        return await self._body((given,), {}, context)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"
