"""A server of the platform. Start several with one BRIDLE_STORE: they continue each other's runs.

    BRIDLE_STORE=postgresql://… python examples/platform/server.py --tokens tokens.toml --port 8420

`tokens.toml` has the hashes of tokens, with the tenant and the rights of each (see README.md).
"""

import argparse
import os

import uvicorn

from bridle.serve import ServeOptions, TokenFile, make_app
from support_agents import STORE, open_desk, triage


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8420)
    parser.add_argument("--tokens", default=os.environ.get("PLATFORM_TOKENS", "tokens.toml"))
    parser.add_argument(
        "--allow-host", action="append", default=[], help="accept this name in the Host header"
    )
    given = parser.parse_args()
    app = make_app(
        {"triage": triage},
        store=STORE,
        identify=TokenFile(given.tokens),
        make_context=open_desk,
        options=ServeOptions(
            host=given.host, allowed_hosts=tuple(given.allow_host), metric_labels=("agent", "tenant")
        ),
    )
    uvicorn.run(app, host=given.host, port=given.port, access_log=False, proxy_headers=False)


if __name__ == "__main__":
    main()
