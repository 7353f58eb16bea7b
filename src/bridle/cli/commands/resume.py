"""Continue an unfinished session: interrupted, out of budget, or waiting for an approval.

Model and instructions are those of the session. Tools must be given again, because the log does not contain code.
"""

import argparse

from bridle.cli.agent_options import add_agent_options
from bridle.cli.log_access import add_store_option, add_tenant_option

from .run import run_agent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="session id, as listed by `bridle sessions`")
    add_agent_options(parser)
    add_tenant_option(parser)
    parser.add_argument("--across-tenants", action="store_true", help="allow a session of another tenant")
    parser.add_argument(
        "--trust-approvals",
        action="store_true",
        help="accept approvals in the log that were not given by you (default: ask again)",
    )
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    return run_agent(options, session=options.session, prompt=None)
