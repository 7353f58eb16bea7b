"""What `bridle lint` looks for, one row each: what it is, why it costs money, what to write instead.

Rules above ten are found by loading the agents again in other circumstances; the others by reading the code.
"""

from typing import NamedTuple

MAKE_IT_A_FACT = "make it a fact of the turn, `Agent(facts=lambda: {…})`, or say it in the prompt"


class LintRule(NamedTuple):
    id: str
    name: str
    what: str
    why: str
    instead: str


LINT_RULES = (
    LintRule(
        "L1",
        "clock",
        "the time or the date",
        "it is another one at every start, and with it every cached prompt",
        MAKE_IT_A_FACT,
    ),
    LintRule(
        "L2",
        "random",
        "a random number or id",
        "it is another one in every process, so no two of them share a cached prompt",
        f"leave it out, make it a constant, or {MAKE_IT_A_FACT}",
    ),
    LintRule(
        "L3",
        "identity",
        "an object's address or hash",
        "it is another one in every process, and says nothing to a model",
        "name the thing by something of its own, such as a name or a number",
    ),
    LintRule(
        "L4",
        "environment",
        "what the machine, the user or the process is",
        "machines that should share cached prompts do not, and a moved server pays for all of them anew",
        f"make it a constant, or {MAKE_IT_A_FACT}",
    ),
    LintRule(
        "L5",
        "unordered",
        "the order of a set or of a folder",
        "it is another one in every process or on every disk",
        "put it in order: `sorted(…)`, or a list or a dict from the beginning",
    ),
    LintRule(
        "L6",
        "outside",
        "the answer of another program or of the network",
        "whoever answers may answer otherwise the next time",
        f"keep the answer in a file of your own, or {MAKE_IT_A_FACT}",
    ),
    LintRule(
        "L11",
        "each-time",
        "another beginning in a second process, with nothing changed",
        "no two processes share a cached prompt, and none survives a restart",
        "find what is random, counted or timed in it, and leave it out",
    ),
    LintRule(
        "L12",
        "hash-seed",
        "another beginning under another PYTHONHASHSEED",
        "Python draws a new one for every process, so no two of them share a cached prompt",
        "put sets in order before they become words: `sorted(…)`",
    ),
    LintRule(
        "L13",
        "other-day",
        "another beginning at another time",
        "every cached prompt is lost when the date in it changes",
        MAKE_IT_A_FACT,
    ),
    LintRule(
        "L14",
        "elsewhere",
        "another beginning in another environment",
        "machines that should share cached prompts do not",
        f"make it a constant, or {MAKE_IT_A_FACT}",
    ),
)
LINT_RULES_BY_NAME = {rule.name: rule for rule in LINT_RULES}


def get_rule(name: str) -> LintRule:
    return LINT_RULES_BY_NAME[name]


def find_rule_name(word: str) -> str:
    """A rule's name, by its name or its id; empty when there is none."""
    return next((rule.name for rule in LINT_RULES if word.lower() in (rule.name, rule.id.lower())), "")
