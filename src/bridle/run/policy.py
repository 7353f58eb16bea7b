"""A policy from a TOML file, and the check of its rules against the tools of an agent."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..core.rule_check import find_blind_rule, find_dead_rule
from ..ports.tool import HidesDefaults, Tool
from ..values.errors import MisuseError
from ..values.policy import Policy
from ..values.settings import Settings


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """Raises `MisuseError` with one line about what is wrong: a rule that is not read protects nobody."""
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        return msgspec.convert(given, Policy)
    except OSError as error:
        raise MisuseError(
            f"the policy {os.fspath(path)!r} cannot be read: {error.strerror or error}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise MisuseError(f"the policy {os.fspath(path)!r} is not one: {error}") from None


def policy_of(given: Policy | str | os.PathLike[str] | None) -> Policy:
    if isinstance(given, Policy):
        return given
    return read_policy(given) if given else Policy()


def check_rules(settings: Settings, tools: Mapping[str, Tool]) -> Settings:
    """The same settings; raises `MisuseError` for a rule that can never match or sees nothing."""
    unseen = {name: tool.unseen_defaults for name, tool in tools.items() if isinstance(tool, HidesDefaults)}
    fault = find_dead_rule(settings.policy, settings.every_tool) or find_blind_rule(
        settings.policy, settings.every_tool, unseen
    )
    if fault:
        raise MisuseError(fault)
    return settings
