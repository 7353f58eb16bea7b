"""Health and metrics: `/health/live`, `/health/ready`, `/metrics`."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from bridle.watchers.otel.prometheus import PrometheusMetrics

from .guarded_route import GuardedRoute
from .host import AgentHost


def make_health_routes(host: AgentHost) -> Sequence[BaseRoute]:
    def report(status: str, code: int = 200) -> Response:
        return Response(msgspec.json.encode({"status": status}), code, media_type="application/json")

    async def live(request: Request) -> Response:
        return report("ok")

    async def ready(request: Request) -> Response:
        if not host.is_ready:
            return report("not ready", 503)
        await host.store.sessions(limit=1)
        return report("ok")

    async def metrics(request: Request) -> Response:
        await host.census.refresh()
        return Response(host.metrics.render(host), media_type=PrometheusMetrics.CONTENT_TYPE)

    return (
        GuardedRoute("/health", ready, right="public"),
        GuardedRoute("/health/live", live, right="public"),
        GuardedRoute("/health/ready", ready, right="public"),
        GuardedRoute("/metrics", metrics, right="administer"),
    )
