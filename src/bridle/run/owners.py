"""Label extras and hosted tools with the wire family they belong to, before a chain of models sees them."""

from msgspec.structs import replace

from ..providers.ownership import owners_of_field, owners_of_tool
from ..values.request import ToolSpec
from ..values.settings import Settings


def with_owners(settings: Settings) -> Settings:
    """The settings with an owner on every extra and hosted tool; what the caller has labelled stays."""
    first = settings.model.endpoint
    specs = (*settings.tools, *settings.hidden)
    if not settings.extras and all(spec.native is None for spec in specs):
        return settings

    def labelled(spec: ToolSpec) -> ToolSpec:
        if spec.native is None or spec.native_to:
            return spec
        return replace(spec, native_to=owners_of_tool(spec.native, first))

    extras = tuple(
        extra if extra.to else replace(extra, to=owners_of_field(extra.name, first))
        for extra in settings.extras
    )
    return replace(
        settings,
        extras=extras,
        tools=tuple(map(labelled, settings.tools)),
        hidden=tuple(map(labelled, settings.hidden)),
    )
