"""Stop the run of a session that another process works on, after its current step.

The run ends as `paused`; `bridle resume SESSION` continues it.
"""

import argparse

from .request import add_request_options, send_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser)


def execute(options: argparse.Namespace) -> int:
    return send_request(options, "pause")
