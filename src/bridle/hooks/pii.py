"""Personal data as patterns, and the hook that redacts or blocks it.

Patterns find data by its form. They cannot find names or addresses, and they may redact a number that only
looks like personal data; add patterns of your own for identifiers of your domain.
"""

from collections.abc import Sequence
from typing import Literal

from bridle.ports.run_context import RunContext
from bridle.values.errors import MisuseError
from bridle.values.hooks import Change, HookDecision, ModelInput, Refuse
from bridle.values.message import ViewChange

from .text_filter import PatternFilter, TextBlocked, TextPattern, edit_head, edit_message, make_joined_edit

PII_ACTIONS = ("redact", "refuse", "allow")
CARD_DIGITS = range(13, 20)
DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
"""The sum of the digits of twice each digit."""


def is_card_number(text: str) -> bool:
    """True if the digits have the length and the check digit of a payment card (Luhn)."""
    digits = text.replace(" ", "").replace("-", "")
    if len(digits) not in CARD_DIGITS:
        return False
    return (sum(map(int, digits[-1::-2])) + sum([DOUBLED[int(each)] for each in digits[-2::-2]])) % 10 == 0


def is_iban(text: str) -> bool:
    """True if the check digits of an IBAN are right (ISO 13616: remainder 1 modulo 97)."""
    plain = "".join(text.split())
    digits = "".join(str(int(each, 36)) for each in plain[4:] + plain[:4])
    return int(digits) % 97 == 1


PII: dict[str, TextPattern] = {
    each.name: each
    for each in (
        TextPattern(
            name="email",
            pattern=r"[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}",
            open_end=r"[\w.+-]{1,64}(?:@[A-Za-z0-9.-]{0,255})?",
        ),
        TextPattern(
            name="card number",
            pattern=r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)",
            open_end=r"(?<!\d)\d(?:[ -]?\d){0,18}[ -]?",
            check=is_card_number,
        ),
        TextPattern(
            name="IBAN",
            pattern=r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",
            open_end=r"\b[A-Z](?:[A-Z](?:\d(?:\d[A-Z0-9 ]{0,40})?)?)?",
            check=is_iban,
        ),
        TextPattern(
            name="phone number",
            pattern=r"(?<![\w+])\+\d(?:[ ().-]{0,2}\d){7,14}(?!\d)",
            open_end=r"(?<![\w+])\+(?:\d?(?:[ ().-]{0,2}\d){0,14})[ ().-]{0,2}",
        ),
        TextPattern(
            name="US social security number",
            pattern=r"(?<![\d-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?!-?\d)",
            open_end=r"(?<![\d-])\d{1,3}(?:-\d{0,2}(?:-\d{0,4}-?)?)?",
        ),
        TextPattern(
            name="IP address",
            pattern=r"(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\.?\d)",
            open_end=r"(?<![\d.])\d{1,3}(?:\.\d{0,3}){0,4}",
        ),
    )
}


def redact_pii(text: str) -> str:
    """The text with every kind of personal data replaced by its name; for logs and traces (`redact=redact_pii`)."""
    return PatternFilter(tuple(PII.values())).replace(text)


class RedactPii:
    """Redacts personal data in what models are sent and in what they answer, or refuses it.

    `input` is what the provider is sent for the first time, whatever its origin: prompts, tool results, imported
    history, text documents, the system prompt and the definitions of tools. `output` is the model's text,
    filtered while it streams and before it is recorded. Each is "redact", "refuse" or "allow". The log keeps the
    prompt as it was given.
    """

    name = "redact_pii"

    def __init__(
        self,
        kinds: Sequence[str] = tuple(PII),
        *,
        patterns: Sequence[TextPattern] = (),
        input: Literal["redact", "refuse", "allow"] = "redact",  # noqa: A002 - the word users expect
        output: Literal["redact", "refuse", "allow"] = "redact",
    ) -> None:
        if isinstance(kinds, str):
            raise MisuseError(f"kinds is a list; write kinds=[{kinds!r}]")
        unknown = [kind for kind in kinds if kind not in PII]
        if unknown:
            raise MisuseError(f"unknown kind of personal data: {', '.join(unknown)}; known: {', '.join(PII)}")
        for option, given in (("input", input), ("output", output)):
            if given not in PII_ACTIONS:
                raise MisuseError(f"{option}={given!r} is unknown; choose one of: {', '.join(PII_ACTIONS)}")
        self._patterns = (*(PII[kind] for kind in kinds), *patterns)
        self._input, self._output = input, output

    def before_model(self, run: RunContext[object], request: ModelInput) -> HookDecision:
        """Edit or refuse the messages that are sent for the first time."""
        if self._input == "allow":
            return None
        block = self._input == "refuse"
        edit = make_joined_edit(lambda: PatternFilter(self._patterns, block=block))
        edits, refused, reason = list[ViewChange](), list[str](), ""
        for message in request.new_messages:
            try:
                # guard: prompt-parts-redacted
                edits += edit_message(message, edit, reads_ids=True)
            except TextBlocked as found:
                refused.append(message.id)
                reason = reason or str(found).replace("the reply", "the prompt")
        try:
            # guard: system-prompt-redacted
            head = edit_head(request.new_texts, edit)
        except TextBlocked as found:
            reason = str(found).replace("the reply", "the system prompt or a tool")
        if reason:
            return Refuse(reason=reason, messages=tuple(refused))
        return Change(edits=edits, head=head) if edits or head else None

    def text_filter(self) -> PatternFilter | None:
        return (
            None if self._output == "allow" else PatternFilter(self._patterns, block=self._output == "refuse")
        )
