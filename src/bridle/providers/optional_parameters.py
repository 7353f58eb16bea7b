"""Optional parameters that a server may refuse: a forced tool choice, and cache parameters.

Gateways and servers of one's own often take only a part of a wire.  The field that they name decides
(`param`, a field violation); their words decide where they name no field.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..values.errors import OptionalParameter

_NAMES: dict[OptionalParameter, re.Pattern[str]] = {
    "tool_choice": re.compile(r"tool[ _]?choice|function[ _]?calling[ _]?config", re.IGNORECASE),
    "cache": re.compile(
        r"cache[ _]?(?:control|point)|prompt[ _]cach(?:ing|e[ _](?:key|retention|options|breakpoint))",
        re.IGNORECASE,
    ),
}
_NO_FIELD = ("", "None", "null")
"""Some gateways write the absence of a field as a word."""


def find_refused_parameter(message: str, error: Mapping[str, Any] | None = None) -> OptionalParameter | None:
    """The optional parameter that a refusal is about; None when it is about something else."""
    fields = " ".join(_named_fields(error or {}))
    said = fields or message
    return next((name for name, pattern in _NAMES.items() if pattern.search(said)), None)


def _named_fields(error: Mapping[str, Any]) -> Iterator[str]:
    named = error.get("param")
    if isinstance(named, str) and named not in _NO_FIELD:
        yield named
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        violations = detail.get("fieldViolations") if isinstance(detail, dict) else None
        for violation in violations if isinstance(violations, list) else ():
            field = violation.get("field") if isinstance(violation, dict) else None
            if isinstance(field, str) and field:
                yield field
