"""Names of tools.

A name must be legal on every wire, because the model may be changed in the middle of a
conversation.
"""

import re

from ..values.errors import BadTool

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_name(name: str) -> None:
    if not _LEGAL_NAME.fullmatch(name):
        raise BadTool(
            f"tool `{name}`: the name is not legal on every provider;"
            " give it 1 to 64 letters, digits, _ or -, with name=…"
        )
