"""Sealed state is taken back as it was given, and refused where the provider refuses it when it was touched."""

import pytest

from bridle.sim.rules import check, rules_of
from bridle.sim.seals import seal_rules_of

SEALING = ("anthropic", "bedrock_converse", "gemini", "openai_responses")
RULES = [(family, rule) for family in SEALING for rule in seal_rules_of(family)]
IDS = [f"{family}-{rule.id}" for family, rule in RULES]


@pytest.mark.parametrize(("family", "rule"), RULES, ids=IDS)
def test_examples(family, rule):
    every = (*rules_of(family), *seal_rules_of(family))
    assert check(every, rule.passes) is None
    for offends, says in ((rule.offends, rule.says), *rule.also):
        violation = check(every, offends)
        told = violation.message if violation else ""
        assert told == says
        assert violation is None or violation.rule.id == rule.id
