"""Completes the options of a command with the settings of files and the environment (config/configuration.py)."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from bridle.config.configuration import Configuration, load_configuration
from bridle.config.settings import SETTINGS

MODELS_VARIABLE = "BRIDLE_MODELS"


def add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", metavar="FILE", help="settings file (default: the nearest bridle.toml or pyproject.toml)"
    )
    parser.add_argument("--no-config", action="store_true", help="use no settings file")


@contextmanager
def apply_configuration(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Iterator[None]:
    """Fill options that were not given, while the command runs; raises `MisuseError` for a bad setting.

    All settings are in `options.configuration`, for those that a command applies itself.
    """
    if not hasattr(options, "no_config"):
        yield
        return
    configuration = load_configuration(os.environ, config=options.config, use_files=not options.no_config)
    options.configuration = configuration
    for setting in SETTINGS:
        action = parser._option_string_actions.get(setting.flag)
        value = configuration.get(setting.name)
        if action is None or setting.only_for or value is None:
            continue
        if getattr(options, action.dest) in (None, []):
            setattr(options, action.dest, [*value] if isinstance(value, tuple) else value)
    with _use_model_tables(configuration):
        yield


@contextmanager
def _use_model_tables(configuration: Configuration) -> Iterator[None]:
    """Let the model tables of a settings file apply as if their variable were set."""
    before = os.environ.get(MODELS_VARIABLE)
    path = configuration.get_text("models")
    if not path or path == before:
        yield
        return
    os.environ[MODELS_VARIABLE] = path
    try:
        yield
    finally:
        del os.environ[MODELS_VARIABLE]
        if before is not None:
            os.environ[MODELS_VARIABLE] = before
