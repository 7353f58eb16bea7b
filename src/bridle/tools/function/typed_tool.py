"""Makes a tool whose arguments are one instance of a type: a dataclass, a TypedDict, a pydantic model…

    TypedTool(Booking, run=book)

The fields of the type are the parameters the model sees, its docstring is the description, and `run` gets an
instance.  A parameter of `run` annotated `RunContext` receives the context of the call.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, Unpack

from bridle.ports.run_context import RunContext
from bridle.ports.tool import Json
from bridle.tools.names import check_tool_name
from bridle.tools.schema.annotations import NoJsonForm
from bridle.tools.schema.builder import SchemaBuilder
from bridle.tools.schema.document import encode_schema
from bridle.values.errors import BadTool
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

from .invoker import make_invoker
from .options import DeclaredTool, ToolBehavior, ToolOptions

T = TypeVar("T")


class TypedTool(DeclaredTool, Generic[T]):
    spec: ToolSpec

    def __init__(
        self,
        arguments: type[T],
        run: Callable[..., object],
        *,
        name: str | None = None,
        description: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        """The default name is that of the type."""
        tool_name = name or str(getattr(arguments, "__name__", arguments))
        check_tool_name(tool_name)
        try:
            builder = SchemaBuilder()
            loadable = builder.read_type(arguments)
            schema = builder.make_document(loadable.schema)
        except NoJsonForm as error:
            where = f"field `{error.path}` " if error.path else "its type "
            raise BadTool(f"tool `{tool_name}`: {where}{error.what}") from None
        if schema.get("type") != "object":
            raise BadTool(
                f"tool `{tool_name}`: its type has no fields; use a dataclass, a TypedDict or a pydantic model"
            )
        own = str(schema.pop("description", ""))
        behavior = ToolBehavior(
            tool_name, own if description is None else description, encode_schema(schema), options
        )
        self.unseen_defaults = builder.unseen_defaults
        self._load: Callable[[Any], T] = loadable.load
        self._invoker = make_invoker(tool_name, run)
        super().__init__(behavior, self._invoker.context_type)

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> tuple[Text | Media, ...]:
        """Call the function; raises ValueError for invalid arguments, and what the function raises."""
        return await self._invoker((self._load(arguments),), {}, context)
