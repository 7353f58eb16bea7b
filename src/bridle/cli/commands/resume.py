"""Go on with a session that was left unfinished: cut off, out of budget, or waiting for an answer.

The model and the instructions are the session's own; the tools must be named again, because
a log holds no code.
"""

import argparse

from bridle.cli.agent_options import add_agent_options
from bridle.cli.log_access import add_store_option, add_tenant_option

from .run import run_agent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", help="its id, as `bridle sessions` lists it")
    add_agent_options(parser)
    add_tenant_option(parser)
    parser.add_argument(
        "--across-tenants", action="store_true", help="go on although the session is another tenant's"
    )
    parser.add_argument(
        "--trust-approvals",
        action="store_true",
        help="let approvals in the log count that were not given by you; without it they are asked for again",
    )
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    return run_agent(options, session=options.session, prompt=None)
