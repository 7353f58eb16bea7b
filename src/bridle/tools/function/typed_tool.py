"""A tool whose arguments are one value of a type: a dataclass, a TypedDict, a pydantic model…

    TypedTool(Booking, run=book)

For when the arguments have a name of their own in the program.  The fields of the type
are the parameters the model sees, its docstring is the description, and `run` gets an
instance.  A parameter of `run` annotated `CallContext` is filled in.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, Unpack

from bridle.ports.tool import CallContext, Json
from bridle.tools.names import check_tool_name
from bridle.tools.schema.annotations import NoJsonForm
from bridle.tools.schema.builder import SchemaBuilder
from bridle.tools.schema.document import encode_schema
from bridle.values.errors import BadTool
from bridle.values.message import Media, Text
from bridle.values.request import ToolSpec

from .invoker import make_invoker
from .options import ToolBehavior, ToolOptions

T = TypeVar("T")


class TypedTool(Generic[T]):
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
        """The name is the type's, unless another one is given."""
        called = name or str(getattr(arguments, "__name__", arguments))
        check_tool_name(called)
        try:
            shapes = SchemaBuilder()
            shape = shapes.read_type(arguments)
            schema = shapes.make_document(shape.schema)
        except NoJsonForm as refusal:
            where = f"field `{refusal.path}` " if refusal.path else "its type "
            raise BadTool(f"tool `{called}`: {where}{refusal.what}") from None
        if schema.get("type") != "object":
            raise BadTool(
                f"tool `{called}`: its type has no fields; use a dataclass, a TypedDict or a pydantic model"
            )
        own = str(schema.pop("description", ""))
        self.behavior = ToolBehavior(
            called, own if description is None else description, encode_schema(schema), options
        )
        self.spec = self.behavior.spec
        self.claim_resource, self.probe = self.behavior.claim_resource, self.behavior.probe
        self.unseen_defaults = shapes.unseen_defaults
        self._load: Callable[[Any], T] = shape.load
        self._invoker = make_invoker(called, run)

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> tuple[Text | Media, ...]:
        """Raises ValueError for arguments of another shape, and whatever the function raises."""
        return await self._invoker((self._load(arguments),), {}, context)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"
