"""A tool whose arguments are one value of a type: a dataclass, a TypedDict, a pydantic model…

    TypedTool(Booking, run=book)

For when the arguments have a name of their own in the program.  The fields of the type
are the parameters the model sees, its docstring is the description, and `run` gets an
instance.  A parameter of `run` annotated `CallContext` is filled in.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, Unpack

from ..ports.tool import CallContext, Json
from ..values.errors import BadTool
from ..values.parts import Media, Text
from ..values.request import ToolSpec
from .annotations import NoJsonForm
from .body import body_of
from .conduct import Conduct, ToolOptions
from .document import schema_text
from .names import check_name
from .schema import Shapes

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
        check_name(called)
        try:
            shapes = Shapes()
            shape = shapes.of(arguments)
            schema = shapes.document(shape.schema)
        except NoJsonForm as refusal:
            where = f"field `{refusal.path}` " if refusal.path else "its type "
            raise BadTool(f"tool `{called}`: {where}{refusal.what}") from None
        if schema.get("type") != "object":
            raise BadTool(
                f"tool `{called}`: its type has no fields; use a dataclass, a TypedDict or a pydantic model"
            )
        own = str(schema.pop("description", ""))
        self.conduct = Conduct(
            called, own if description is None else description, schema_text(schema), options
        )
        self.spec = self.conduct.spec
        self.claim, self.probe = self.conduct.claim, self.conduct.probe
        self.unseen_defaults = shapes.unseen_defaults
        self._load: Callable[[Any], T] = shape.load
        self._body = body_of(called, run)

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> tuple[Text | Media, ...]:
        """Raises ValueError for arguments of another shape, and whatever the function raises."""
        return await self._body((self._load(arguments),), {}, context)

    def __repr__(self) -> str:
        return f"<tool {self.spec.name}>"
