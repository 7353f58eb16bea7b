"""Send a message to a run that another process works on.

The model gets it with its next request; a run that was about to end continues with it.
"""

import argparse

from .request import add_request_options, send_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_options(parser)
    parser.add_argument("text", help="the message")


def execute(options: argparse.Namespace) -> int:
    return send_request(options, "steer", options.text)
