"""Continue an unfinished session: interrupted, out of budget, or waiting for an approval.

Model, instructions and output type are those of the session. Tools must be given again, because the log does not
contain code. For a session with hooks or validators, name the Python file of its agent: -a FILE.py or FILE.py:name.
Tools that need a context get what the function of --context makes, which `bridle serve` calls as well.
With --all, every run whose process ended is continued, one after the other, and so is every waiting run that has an
answer. A run that another process works on is left alone.
"""

import argparse

from bridle.cli.agent_options import add_agent_options, add_context_option
from bridle.cli.log_access import add_store_option, add_tenant_option
from bridle.cli.session_names import add_latest_argument
from bridle.values.errors import MisuseError

from .control.resume_all import resume_all
from .run import run_agent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_latest_argument(parser)
    parser.add_argument(
        "--all", action="store_true", help="every session whose process ended or that has an answer"
    )
    add_agent_options(parser)
    add_context_option(parser)
    add_tenant_option(parser)
    parser.add_argument("--across-tenants", action="store_true", help="allow a session of another tenant")
    parser.add_argument(
        "--take-over",
        action="store_true",
        help="take the session from a process that is alive and does not answer",
    )
    parser.add_argument(
        "--trust-approvals",
        action="store_true",
        help="accept approvals in the log that were not given by you (default: ask again)",
    )
    add_store_option(parser)


def execute(options: argparse.Namespace) -> int:
    if options.all and options.session:
        raise MisuseError("name a session, or continue all unfinished ones with --all, not both")
    if options.all and options.take_over:
        raise MisuseError("--take-over needs a session: it takes one from a process that is alive")
    if options.all:
        return resume_all(options)
    return run_agent(options, session=options.session, prompt=None)
