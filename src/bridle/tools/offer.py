"""What a tool offers, checked: everything that is equal for all kinds of tools.

A name must be legal on every wire, because the model may be changed in the middle of a
conversation.  What nobody declared is read as the most careful: an undeclared effect
runs in order and never early, and only a tool that reads may be run a second time when
nobody knows whether the first time took effect.
"""

import math
import re
from typing import get_args

from ..values.errors import BadTool
from ..values.request import TOOL_SECONDS_DEFAULT, Effect, OnUnknown, ToolSpec

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def offer(
    name: str,
    description: str,
    parameters: str,
    *,
    effect: Effect = "undeclared",
    timeout: float | None = TOOL_SECONDS_DEFAULT,
    on_unknown: OnUnknown | None = None,
) -> ToolSpec:
    check_name(name)
    if effect not in get_args(Effect):
        raise BadTool(f'tool `{name}`: effect={effect!r} is unknown; write "read", "write" or "exclusive"')
    if on_unknown is not None and on_unknown not in get_args(OnUnknown):
        raise BadTool(f'tool `{name}`: on_unknown={on_unknown!r} is unknown; write "retry" or "report"')
    if timeout is not None and not _is_duration(timeout):
        raise BadTool(
            f"tool `{name}`: timeout={timeout!r} is no deadline; write seconds above 0, or None for no limit"
        )
    careful: OnUnknown = "retry" if effect == "read" else "report"
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        effect=effect,
        on_unknown=on_unknown or careful,
        timeout_seconds=None if timeout is None else float(timeout),
    )


def check_name(name: str) -> None:
    if not _LEGAL_NAME.fullmatch(name):
        raise BadTool(
            f"tool `{name}`: the name is not legal on every provider;"
            " give it 1 to 64 letters, digits, _ or -, with name=…"
        )


def _is_duration(timeout: object) -> bool:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        return False
    return math.isfinite(timeout) and timeout > 0
