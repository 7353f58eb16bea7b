"""The rules of `bridle check prompts`, one row each: what is found, why it costs money, what to write instead.

Rules above ten are found by loading the agents again under other conditions; the others by reading the code.
"""

from typing import NamedTuple

MAKE_IT_A_FACT = "pass it as a fact, `Agent(facts=lambda: {…})`, or put it into the prompt"


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
        "it differs at every start, so no cached prompt can be used again",
        MAKE_IT_A_FACT,
    ),
    LintRule(
        "L2",
        "random",
        "a random number or id",
        "it differs in every process, so no two processes share a cached prompt",
        f"remove it, make it a constant, or {MAKE_IT_A_FACT}",
    ),
    LintRule(
        "L3",
        "identity",
        "an object's address or hash",
        "it differs in every process, and means nothing to a model",
        "identify the object by a stable name or number",
    ),
    LintRule(
        "L4",
        "environment",
        "a property of the machine, the user or the process",
        "machines do not share cached prompts, and moving a server invalidates all of them",
        f"make it a constant, or {MAKE_IT_A_FACT}",
    ),
    LintRule(
        "L5",
        "unordered",
        "the order of a set or of a folder",
        "it differs in every process or on every disk",
        "sort it with `sorted(…)`, or use a list or a dict",
    ),
    LintRule(
        "L6",
        "outside",
        "the output of another program or a network response",
        "the next response may differ",
        f"save the response to a file in your project, or {MAKE_IT_A_FACT}",
    ),
    LintRule(
        "L11",
        "each-time",
        "the start of the prompt differs in a second, identical process",
        "no two processes share a cached prompt, and none survives a restart",
        "find and remove the random, counted or timed value",
    ),
    LintRule(
        "L12",
        "hash-seed",
        "the start of the prompt differs with another PYTHONHASHSEED",
        "Python chooses a new seed for every process, so no two processes share a cached prompt",
        "sort sets before they become text: `sorted(…)`",
    ),
    LintRule(
        "L13",
        "other-day",
        "the start of the prompt differs at another time",
        "every cached prompt is lost when the date in it changes",
        MAKE_IT_A_FACT,
    ),
    LintRule(
        "L14",
        "elsewhere",
        "the start of the prompt differs in another environment",
        "machines do not share cached prompts",
        f"make it a constant, or {MAKE_IT_A_FACT}",
    ),
)
LINT_RULES_BY_NAME = {rule.name: rule for rule in LINT_RULES}


def get_rule(name: str) -> LintRule:
    return LINT_RULES_BY_NAME[name]


def find_rule_name(word: str) -> str:
    """The name of the rule with this name or id; empty if there is none."""
    return next((rule.name for rule in LINT_RULES if word.lower() in (rule.name, rule.id.lower())), "")
