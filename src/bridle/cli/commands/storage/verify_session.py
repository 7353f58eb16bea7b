"""Check that a session is what was written: hash chain, stored content, events, anchored heads.

`bridle store verify` checks every session and the file itself, and explains anchors and --head.
"""

import argparse

from bridle.cli.session_names import add_latest_argument

from . import verify


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_latest_argument(parser)
    verify.add_options(parser)


def execute(options: argparse.Namespace) -> int:
    return verify.execute(options)
