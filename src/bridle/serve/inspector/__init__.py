"""The inspector: pages that show the sessions of a server in a browser, at `/`.

Belongs here: static files without a build step, and the route that serves them. They read and change everything
through `/api`. Does not belong here: a report that another client could use (serve/api/).

Everything that a page shows may be hostile. Text becomes DOM text only (`dom.js`), images are checked by their bytes
(`media.js`), and the policy of the page forbids inline scripts, foreign content and strings as markup.
"""

from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from bridle.serve.errors import ServeError
from bridle.serve.guarded_route import GuardedRoute
from bridle.serve.host import AgentHost
from bridle.serve.security import SECURITY_HEADERS

TYPES = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}
FILES = {path.name: path for path in sorted(Path(__file__).parent.iterdir()) if path.suffix in TYPES}
PAGE = "index.html"
PUBLIC_PATHS = ("/", *(f"/inspector/{name}" for name in FILES if name != PAGE))
"""The pages hold no data of a session and need no token; what they show does."""
# guard: inspector-trusted-types
PAGE_POLICY = (
    f"{SECURITY_HEADERS['content-security-policy']}; require-trusted-types-for 'script'; trusted-types 'none'"
)


def make_inspector_routes(host: AgentHost) -> Sequence[BaseRoute]:
    contents = {name: path.read_bytes() for name, path in FILES.items()}

    def reply(name: str) -> Response:
        headers = {"content-security-policy": PAGE_POLICY}
        kind = f"{TYPES[Path(name).suffix]}; charset=utf-8"
        return Response(contents[name], headers=headers, media_type=kind)

    async def page(request: Request) -> Response:
        return reply(PAGE)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in contents or name == PAGE:
            raise ServeError(404, "not_found", "there is no such file", "open / for the inspector")
        return reply(name)

    return (
        GuardedRoute("/", page, right="public"),
        GuardedRoute("/inspector/{name}", file, right="public"),
    )
