"""Sentences that report to a model what is wrong with the JSON it wrote, as arguments or as an answer."""

from ..values.value import Value


class Wording(Value):
    subject: str
    """Plural: verbs follow it."""
    mismatch: str
    mismatch_end: str
    malformed_end: str
    truncated: str


def word_arguments(name: str) -> Wording:
    return Wording(
        subject=f"The arguments of `{name}`",
        mismatch="are wrong, so nothing was run:",
        mismatch_end="Correct them and call again.",
        malformed_end="Nothing was run; send them again.",
        truncated="were cut off before their end (arguments truncated), so nothing was run. Send the whole"
        " call again; if the content is long, split it over several calls.",
    )


ANSWER = Wording(
    subject="The contents of the answer",
    mismatch="do not fit the schema:",
    mismatch_end="Correct them.",
    malformed_end="Answer with one JSON object that fits the schema, and nothing else.",
    truncated="were cut off before their end.",
)
