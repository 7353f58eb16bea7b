"""Reads answers to approval questions: one parser for every entry.

The API, AG-UI, the Vercel AI SDK, the command line, approvers in Python and engines all pass their answers through
`read_verdict`. Only an explicit yes in a known form approves, a clear no rejects, and anything else is no answer: it is
refused, and the question stays open.
"""

import json
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from bridle.core.calls.argument_changes import find_lost_digits
from bridle.values.calls import ApprovalAnswer, ApprovalVerdict
from bridle.values.errors import MisuseError

from .approval import encode_arguments

ANSWERS: tuple[str, ...] = get_args(ApprovalAnswer)
VERDICT_FIELDS = ("answer", "approved", "arguments", "reason", "by")
LOST_DIGITS = (
    "the number at {place} has lost digits on its way, as in JavaScript: give the arguments as JSON text, in which"
    " numbers stay as they are written; the question stays open"
)
EXPECTED = "expected approved: true or false, or answer: approve, reject or done; the question stays open"


def read_verdict(given: object) -> ApprovalVerdict:
    """The answer of a person: a verdict, true or false, or a mapping with `approved` or `answer`.

    A mapping may also have `arguments` (an object, to run the call with instead), `reason` and `by`, and nothing
    else. Raises `MisuseError` for anything else.
    """
    if isinstance(given, ApprovalVerdict):
        fields: Mapping[str, Any] = {name: getattr(given, name) for name in given.__struct_fields__}
    elif isinstance(given, bool):
        fields = {"approved": given}
    elif isinstance(given, Mapping):
        fields = given
    else:
        raise MisuseError(f"unclear answer to an approval: {_describe(given)}; {EXPECTED}")
    if unknown := [str(name) for name in fields if name not in VERDICT_FIELDS]:
        raise MisuseError(f"unclear answer to an approval: unknown field {_describe(unknown[0])}; {EXPECTED}")
    answer = _read_answer(fields)
    arguments, reason, by = fields.get("arguments"), fields.get("reason", ""), fields.get("by", "")
    if not isinstance(reason, str) or not isinstance(by, str):
        raise MisuseError(f"unclear answer to an approval: reason and by must be texts; {EXPECTED}")
    if arguments is not None:
        _check_arguments(answer, arguments)
    return ApprovalVerdict(answer=answer, arguments=arguments, reason=reason, by=by)


def check_names(text: str | bytes) -> None:
    """Raise `MisuseError` if an object of the JSON repeats a name: `{"approved": false, "approved": true}` is unclear.

    A text that is not JSON is left to its reader.
    """
    try:
        # guard: repeated-names-refused
        json.loads(text, object_pairs_hook=_check_pairs)
    except (ValueError, RecursionError):
        return


def _check_pairs(pairs: list[tuple[str, object]]) -> None:
    names = [name for name, _ in pairs]
    if len({*names}) < len(names):
        repeated = next(name for at, name in enumerate(names) if name in names[:at])
        raise MisuseError(f"unclear answer to an approval: {_describe(repeated)} is given twice; {EXPECTED}")


def encode_edited(asked: str, arguments: Mapping[str, Any] | str | None) -> str | None:
    """The arguments of an answer as JSON text; raises `MisuseError` if a program on the way has rounded a number."""
    # guard: lost-digits-refused
    if isinstance(arguments, Mapping) and (place := find_lost_digits(asked, arguments)):
        raise MisuseError(LOST_DIGITS.format(place=place))
    return encode_arguments(arguments)


def _read_answer(fields: Mapping[str, Any]) -> ApprovalAnswer:
    approved, answer = fields.get("approved"), fields.get("answer")
    if ("approved" in fields) == ("answer" in fields):
        raise MisuseError(f"unclear answer to an approval: give one of approved and answer; {EXPECTED}")
    if "approved" in fields:
        # guard: approved-is-boolean
        if not isinstance(approved, bool):
            raise MisuseError(f"unclear answer to an approval: approved is {_describe(approved)}; {EXPECTED}")
        return "approve" if approved else "reject"
    if not isinstance(answer, str) or answer not in ANSWERS:
        raise MisuseError(f"unclear answer to an approval: answer is {_describe(answer)}; {EXPECTED}")
    verdict: ApprovalAnswer = msgspec.convert(answer, ApprovalAnswer)
    return verdict


def _check_arguments(answer: ApprovalAnswer, arguments: object) -> None:
    """Raise `MisuseError` for arguments that are no object, or that come with another answer than `approve`."""
    if answer != "approve":
        raise MisuseError(f"unclear answer to an approval: only `approve` takes arguments; {EXPECTED}")
    if isinstance(arguments, str):
        try:
            check_names(arguments)
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise MisuseError(f"the arguments of an answer are not JSON: {error}") from None
    if not isinstance(arguments, Mapping):
        raise MisuseError(f"the arguments of an answer must be an object, not {_describe(arguments)}")


def _describe(value: object) -> str:
    return f"{value!r:.60}"
