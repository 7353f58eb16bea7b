"""Routes with the right that they need: every route of a server is one, so that none can be open by mistake."""

from collections.abc import Callable, Collection
from typing import Any, Literal

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .identity import Right, read_access

RouteRight = Right | Literal["public"]
"""Right that a route needs; `public` for pages that hold nothing of a session."""


class GuardedRoute(Route):
    """A route that is reached only with its right."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        right: RouteRight,
        methods: Collection[str] | None = None,
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.right = right

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # guard: route-right
        if self.right != "public":
            read_access(scope).require(self.right)
        await super().handle(scope, receive, send)
