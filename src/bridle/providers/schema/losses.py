"""Records the constraints that a rewritten schema lost, one line each: location, keyword, result.

Losses explain why a model writes arguments that its tool rejects. They are listed in order of occurrence,
without duplicates, and depend only on the schema.
"""

import json


class SchemaLosses:
    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self._count = 0

    def add(self, at: str, keyword: str, became: str) -> None:
        self._count += 1
        self._lines.setdefault(f"{at}: {keyword} {became}")

    def __len__(self) -> int:
        return self._count

    def to_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)


class UnfitSchema(Exception):
    """Raised if a strict dialect cannot express a schema without forbidding values it allows."""

    def __init__(self, at: str, keyword: str, why: str) -> None:
        super().__init__(f"{at}: {keyword} {why}")


def abbreviate_json(value: object, length_max: int = 60) -> str:
    """Format a value as JSON, cut to `length_max` characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
