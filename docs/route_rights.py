"""The routes of a server and the right that each needs, from its table of mounts, for docs/reference/routes.md."""

from bridle.serve.app import MOUNTS
from bridle.serve.guarded_route import GuardedRoute
from bridle.serve.host import AgentHost
from bridle.serve.identity import RIGHTS
from bridle.stores.memory import MemoryStore

METHODS_UNLISTED = ("HEAD", "OPTIONS")
"""They are those of GET."""


def list_routes() -> list[GuardedRoute]:
    host = AgentHost({}, store=MemoryStore())
    routes = [route for mount in MOUNTS for route in mount.make_routes(host)]
    return [route for route in routes if isinstance(route, GuardedRoute)]


def routes() -> str:
    """Every route, and who may use it: a request without an identity, or one with a right."""
    head = ["route", "method", "without identity", *(f"`{right}`" for right in RIGHTS)]
    rows = [head, ["---"] * len(head)]
    for route in list_routes():
        methods = ", ".join(sorted({*(route.methods or ())} - {*METHODS_UNLISTED}))
        is_public = route.right == "public"
        marks = ["yes" if is_public or route.right == right else "" for right in RIGHTS]
        rows.append([f"`{route.path}`", methods, "yes" if is_public else "401", *marks])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
