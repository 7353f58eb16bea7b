"""What a rewritten schema no longer says, one line for each: the place, the word, and what became of it.

Losses are for people who wonder why a model wrote what its tool refuses.  They are in the order in
which they came up, each once, and depend on nothing but the schema.
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
        """How often something was lost, said before or not."""
        return self._count

    def to_lines(self) -> tuple[str, ...]:
        return tuple(self._lines)


class UnfitSchema(Exception):
    """A schema that cannot be said in a strict dialect without forbidding what it allows."""

    def __init__(self, at: str, keyword: str, why: str) -> None:
        super().__init__(f"{at}: {keyword} {why}")


def abbreviate_json(value: object, length_max: int = 60) -> str:
    """A value as JSON, cut when it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length_max else text[: length_max - 1] + "…"
