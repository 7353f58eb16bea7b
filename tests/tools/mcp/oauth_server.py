"""An MCP server behind OAuth, made with the server side of the `mcp` package: `python oauth_server.py PORT [MODE]`.

It accepts every sign-in at once, unless the mode is `refuse`.  Tokens are valid for an hour; `short` makes the first
one invalid after the first use, so that it must be refreshed; `leak` makes tokens that the client refuses to read;
`lead` names an authorization server at a link-local address; `sse` serves the old transport at /sse.

`POST /control/NAME` changes it while it runs: `revoke_access` and `revoke_all` make tokens invalid, `refuse` and `accept`
decide about the next sign-ins.  `GET /control/seen` lists the tokens that it was sent.
"""

import asyncio
import secrets
import sys
import time
from typing import Any

import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthToken
from starlette.responses import JSONResponse
from starlette.routing import Route

PORT, MODE = int(sys.argv[1]), (sys.argv[2] if len(sys.argv) > 2 else "")
URL = f"http://127.0.0.1:{PORT}"
STATE: dict[str, Any] = {"refuse": MODE == "refuse", "seen": []}


class Provider:
    def __init__(self):
        self.clients, self.codes, self.access, self.refresh = {}, {}, {}, {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params):
        if STATE["refuse"]:
            return construct_redirect_uri(str(params.redirect_uri), error="access_denied", state=params.state)
        code = f"code-{secrets.token_hex(16)}"
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    def issue(self, client_id, resource):
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=[], resource=resource)
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=[], resource=resource)
        lasts = 1 if MODE == "short" and len(self.access) == 1 else 3600
        return OAuthToken(access_token=access, refresh_token=refresh, token_type="Bearer", expires_in=lasts)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self.issue(client.client_id, authorization_code.resource)

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refresh[refresh_token.token]
        return self.issue(client.client_id, refresh_token.resource)

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        self.access.pop(token.token, None)


provider = Provider()
app = MCPServer(
    "private",
    auth_server_provider=provider,  # type: ignore[arg-type]
    auth=AuthSettings(
        issuer_url=URL,  # type: ignore[arg-type]
        resource_server_url=f"{URL}/sse" if MODE == "sse" else f"{URL}/mcp",  # type: ignore[arg-type]
        client_registration_options=ClientRegistrationOptions(enabled=True),
    ),
)


@app.tool()
def secret() -> str:
    """A tool for those who have signed in."""
    return "the treasure"


@app.tool()
async def hang() -> str:
    """A tool that does not end."""
    await asyncio.Event().wait()


@app.resource("text://secret")
def text() -> str:
    return "the treasure"


def main():
    made = app.sse_app() if MODE == "sse" else app.streamable_http_app()
    if MODE == "leak":

        async def answer_badly(request):
            return JSONResponse({"access_token": ["access-leaked-0123456789"], "token_type": "Bearer"})

        made.router.routes.insert(0, Route("/token", answer_badly, methods=["POST"]))

    async def control(request):
        name = request.path_params["name"]
        if name.startswith("revoke"):
            provider.access.clear()
            if name == "revoke_all":
                provider.refresh.clear()
        elif name in ("refuse", "accept"):
            STATE["refuse"] = name == "refuse"
        return JSONResponse(STATE["seen"])

    made.router.routes.insert(0, Route("/control/{name}", control, methods=["GET", "POST"]))
    if MODE == "lead":

        async def lead(request):
            return JSONResponse(
                {"resource": f"{URL}/mcp", "authorization_servers": ["http://169.254.169.254/latest"]}
            )

        made.router.routes.insert(0, Route("/.well-known/oauth-protected-resource/mcp", lead))

    async def noting(scope, receive, send):
        if scope["type"] == "http":
            for name, value in scope["headers"]:
                if name == b"authorization":
                    STATE["seen"].append(value.decode())
        await made(scope, receive, send)

    class Announcing(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            print("up", flush=True)

    Announcing(uvicorn.Config(noting, host="127.0.0.1", port=PORT, log_level="error")).run()


main()
