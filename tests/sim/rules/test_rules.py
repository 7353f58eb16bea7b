"""Every rule accepts what it should and refuses what it should, with the provider's message.

The examples are data (`examples/<family>.json`), and a rule without examples fails here.
"""

import string

import pytest

from bridle.sim.families import list_families, list_profile_names, list_profiles, list_rules
from bridle.sim.rules.engine import RawRequest, find_violation, rules_as_markdown
from bridle.values.errors import MisuseError
from bridle.values.model import Abilities
from tests.sim.rules.rule_examples import find_examples, list_all_rules, load_examples

FAMILIES = list_families()
MANNERS = [(family, profile.name) for family in FAMILIES for profile in list_profiles(family)]
RULES = [(family, profile, rule) for family, profile in MANNERS for rule in list_rules(family, profile)]
IDS = [f"{family}-{profile}-{rule.id}" for family, profile, rule in RULES]


def find_refusal(rules, asked):
    """The rule that refuses a request and its words."""
    violation = find_violation(rules, asked)
    return violation and (violation.rule.id, violation.message)


@pytest.mark.parametrize(("family", "profile", "rule"), RULES, ids=IDS)
def test_what_passes_passes_every_rule(family, profile, rule):
    assert find_refusal(list_rules(family, profile), find_examples(family, rule).accepted) is None


@pytest.mark.parametrize(("family", "profile", "rule"), RULES, ids=IDS)
def test_what_offends_is_refused_by_this_rule_in_these_words(family, profile, rule):
    examples = find_examples(family, rule)
    violation = find_violation(list_rules(family, profile), examples.refused)
    assert violation is not None
    assert (violation.rule.id, violation.message) == (rule.id, examples.message)
    failure = violation.failure
    assert (failure.status, failure.code, failure.message) == (rule.status, rule.type, examples.message)


@pytest.mark.parametrize(("family", "profile", "rule"), RULES, ids=IDS)
def test_without_this_rule_the_offence_would_pass(family, profile, rule):
    """So no rule is there for nothing, and none hides behind another."""
    others = [other for other in list_rules(family, profile) if other.id != rule.id]
    examples = find_examples(family, rule)
    violation = find_violation(others, examples.refused)
    assert violation is None or violation.message != examples.message


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rule_has_examples_and_every_example_a_rule(family):
    assert set(load_examples(family)) == {rule.id for rule in list_all_rules(family)}


@pytest.mark.parametrize("family", FAMILIES)
def test_further_examples_fall_on_their_side_of_the_limit(family):
    for rule in list_all_rules(family):
        for request, message in find_examples(family, rule).more:
            found = rule.find(request)
            assert (found is not None and rule.wording.format(**found)) == (message or False)


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_have_names_of_their_own_and_say_where_they_are_from(family):
    rules = list_rules(family)
    assert len({rule.id for rule in rules}) == len(rules) >= 25
    everything = [rule for of, _, rule in RULES if of == family]
    assert {rule.evidence for rule in everything} <= set("SDFK")
    assert all(rule.type for rule in everything)


def test_there_are_enough_of_them():
    assert len({(family, rule.id) for family, _, rule in RULES}) >= 120


@pytest.mark.parametrize("family", FAMILIES)
def test_profiles_name_rules_there_are(family):
    ids = {rule.id for of, _, rule in RULES if of == family}
    for profile in list_profiles(family):
        assert {*profile.only, *profile.without} <= ids
        assert list_rules(family, profile.name)


def test_an_unknown_profile_is_refused_and_one_of_another_family_is_not():
    with pytest.raises(MisuseError, match="choose one of: first-party"):
        list_rules(FAMILIES[0], "lenient")
    for family in FAMILIES:
        for profile in list_profile_names():
            assert list_rules(family, profile)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_table_shows_every_rule_with_its_blanks(family):
    shown = rules_as_markdown(list_rules(family))
    for rule in list_rules(family):
        assert f"`{rule.id}`" in shown
        blanks = {name for _, name, _, _ in string.Formatter().parse(rule.wording) if name}
        assert all(f"{{{blank}}}" in shown for blank in blanks)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"model": 1, "max_tokens": "many", "messages": "hello", "tools": 3, "system": 4},
        {
            "model": "m",
            "max_tokens": 1,
            "messages": [1, None, {"role": "user"}, {"content": [1, {"type": "text"}]}],
        },
        {
            "messages": [{"role": "assistant", "content": [{"type": "tool_use"}]}],
            "tools": [None, {"input_schema": 1}],
        },
        {"thinking": 1, "output_config": [], "tool_choice": "any", "cache_control": 1, "messages": [{}]},
        {"output_config": {"format": {"schema": {"properties": {"a": 1}, "anyOf": [1], "items": [2]}}}},
        {
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "content": [1, {"cache_control": 2}]}]}
            ]
        },
        {"thinking": {"type": ["enabled"], "budget_tokens": "x"}, "max_tokens": None},
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_rule_stumbles_over_a_body_of_the_wrong_shape(family, body):
    for abilities in (None, Abilities(), Abilities(thinking=("adaptive",), forced_tools=False)):
        for rule in list_rules(family):
            found = rule.find(RawRequest(path="", headers={}, body=body, abilities=abilities))
            assert found is None or rule.wording.format(**found)


def test_a_family_without_a_table_refuses_nothing():
    assert list_rules("scripted") == ()
    assert find_violation((), RawRequest(path="", headers={}, body={})) is None
