"""Every weakened rule is noticed by its examples.

By default a sample of the mutants is tried, the same one every time; BRIDLE_CAMPAIGN=10 tries them all.
"""

import pytest

from bridle.sim.families import list_families
from tests.sim.rules.rule_mutants import is_killed, is_sound, load_changed_rules, mutants
from tests.suite.campaign import SCALE

SHARE = min(1.0, SCALE / 10)

EQUIVALENT = {
    "bridle.sim.openai_chat.rules_compatible_servers._is_object: `return False` became `return None`": "both are false",
    "bridle.sim.rules.media_data.is_base64: `return False` became `return None`": "both are false",
    "bridle.sim.anthropic.compaction.limit: `150000` became `150001`": "a default of compaction; no rule checks it",
    "bridle.sim.anthropic.compaction.limit: `150000` became `149999`": "a default of compaction; no rule checks it",
    "bridle.sim.openai_responses.signatures.limit: `255` became `256`": "an index that no item has; no rule here reads it",
    "bridle.sim.openai_responses.signatures.limit: `255` became `254`": "an index that no item has; no rule here reads it",
    "bridle.sim.openai.rules_media._explain_bad_url: `return ''` became `return None`": "both say nothing",
}
"""Mutants that do what the rule does, each with the reason."""


def test_the_rules_as_they_are_pass_their_examples():
    for family in list_families():
        with load_changed_rules(family, {}) as rules:
            assert rules
            assert is_sound(family, rules)


@pytest.mark.full
@pytest.mark.slow
def test_every_mutant_is_killed():
    tried, survivors, seen = 0, [], set()
    for number, mutant in enumerate(mutants(list_families())):
        seen.add(mutant.name)
        # Every tenth, and so on: neighbours are much alike, so a sample is spread over all of them.
        if int(number * SHARE) == int((number - 1) * SHARE):
            continue
        tried += 1
        if mutant.name not in EQUIVALENT and not is_killed(mutant):
            survivors.append(mutant.name)
    print(f"{tried} mutants tried, {tried - len(survivors)} killed or equivalent, {len(EQUIVALENT)} listed")
    assert survivors == []
    assert set(EQUIVALENT) <= seen, "a mutant is explained that there is not"
    assert tried >= len(seen) * SHARE - 1
