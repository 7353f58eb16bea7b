"""Defines a provider's rules as data and checks requests against them.

A rule checks a request as it arrived, as the provider does. It finds either nothing or the values that fill its
message. Rules are checked in the order of their table, and the first finding is the answer.

`evidence` says where the message was seen. Every rule has examples in tests/sim/rules/examples: a request that
is accepted, one that is refused, and its message. A rule without them fails the tests.

    evidence  S  seen in a provider's answer, recorded or pasted in a public issue
              D  in the provider's documents
              F  in public code or fixtures only: weaker
              K  known to us, nowhere found in writing
"""

from collections.abc import Callable, Mapping, Sequence

from bridle.values.base import Value
from bridle.values.errors import Failure, FailureKind
from bridle.values.model import Abilities

RuleFinding = Mapping[str, object]
"""Values that fill a rule's wording, by the names it uses."""


class RawRequest(Value, kw_only=True, gc=True):
    """A request as it arrived."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: Mapping[str, object]
    """Empty if the bytes were not a JSON object."""
    size: int = 0
    malformed: str = ""
    """Reason why the bytes were not a JSON object."""
    abilities: Abilities | None = None
    """Abilities of the requested model; None if the model is unknown."""
    prompt_tokens: int = 0


class ProviderRule(Value, kw_only=True, gc=True):
    id: str
    find: Callable[[RawRequest], RuleFinding | None]
    wording: str
    evidence: str
    models: str = "all"
    """Description of the models it applies to; `find` checks their abilities."""
    status: int = 400
    type: str = ""
    """The provider's own error type."""
    kind: FailureKind = "invalid"
    param: str = ""
    """Template of the offending field, if the provider reports it separately from the message."""


class RuleViolation(Value, kw_only=True, gc=True):
    rule: ProviderRule
    message: str
    param: str = ""

    @property
    def failure(self) -> Failure:
        rule = self.rule
        return Failure(kind=rule.kind, message=self.message, status=rule.status, code=rule.type)


def find_violation(rules: Sequence[ProviderRule], request: RawRequest) -> RuleViolation | None:
    for rule in rules:
        found = rule.find(request)
        if found is not None:
            message, param = rule.wording.format(**found), rule.param.format(**found)
            return RuleViolation(rule=rule, message=message, param=param)
    return None


def rules_as_markdown(rules: Sequence[ProviderRule]) -> str:
    """Format the rules as a Markdown table."""
    lines = ["| rule | models | status | message | evidence |", "|---|---|---|---|---|"]
    for rule in rules:
        words = show_blanks(rule).replace("|", "\\|")
        lines.append(f"| `{rule.id}` | {rule.models} | {rule.status} | {words} | {rule.evidence} |")
    return "\n".join(lines)


def show_blanks(rule: ProviderRule) -> str:
    """Return a rule's wording on one line, with the names of its blanks."""
    return " ".join(rule.wording.format_map(_BlankNames()).split())


class _BlankNames(dict[str, str]):
    """Fills each placeholder of a message with its own name, to show the message as a template."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"
