"""The seams between features: each pair, and each feature with itself, in a scenario that keeps the promises of both."""

from itertools import combinations

import pytest

from docs.seam_table import SEAMS
from tests.suite.campaign import choose_some
from tests.suite.in_loop import in_loop

from .checks import check_scene, count_steps, list_limit_stops, summarize
from .plan import ORDERED_PAIRS, PAIRS, TRIPLES, make_plan, without_deaths, without_stream
from .scene import SCOPES, Scene

COST_OF_A_CRASHED_INNER_RUN = ("budget", "resume", "nested")
"""`bridle cost` counted a call twice that an inner run had made before the process died."""


def name_features(features):
    return " x ".join(features)


def with_feature(name):
    return [pair for pair in ORDERED_PAIRS if name in pair]


def test_the_table_in_the_docs_has_every_pair():
    assert [*SEAMS] == PAIRS


@pytest.mark.parametrize("pair", ORDERED_PAIRS, ids=name_features)
@in_loop
async def test_a_pair_of_features_keeps_the_promises_of_both(pair):
    await check_scene(await Scene(without_deaths(make_plan(*pair))).play())


@in_loop
async def test_three_features_at_once_keep_their_promises():
    for features in choose_some(TRIPLES, 0.25):
        await check_scene(await Scene(without_deaths(make_plan(*features))).play())


async def play_deaths(features, share):
    """Play the scenario with a process that dies at one write after the other."""
    plan = make_plan(*features)
    whole = await Scene(without_deaths(plan)).play()
    writes = min(visit.life.writes for visit in whole.visits)
    for deaths_at in choose_some([*combinations(range(1, writes), plan.deaths)], share):
        scene = await Scene(plan, deaths_at=deaths_at).play()
        assert {visit.life.deaths for visit in scene.visits} == {plan.deaths}, deaths_at
        await check_scene(scene)


@pytest.mark.parametrize(
    "features", [*with_feature("resume"), COST_OF_A_CRASHED_INNER_RUN], ids=name_features
)
@in_loop
async def test_a_pair_keeps_its_promises_whenever_the_process_dies(features):
    await play_deaths(features, 1)


@pytest.mark.full
@pytest.mark.parametrize("features", [each for each in TRIPLES if "resume" in each], ids=name_features)
@in_loop
async def test_three_features_keep_their_promises_whenever_the_process_dies(features):
    await play_deaths(features, 1)


@pytest.mark.parametrize("pair", with_feature("stream"), ids=name_features)
@in_loop
async def test_a_watched_run_has_the_log_of_one_that_nobody_watches(pair):
    plan = without_deaths(make_plan(*pair))
    watched, whole = await Scene(plan).play(), await Scene(without_stream(plan)).play()
    assert await summarize(watched) == await summarize(whole)


@pytest.mark.parametrize("pair", with_feature("budget"), ids=name_features)
@in_loop
async def test_a_limit_of_each_scope_ends_the_runs_until_it_is_raised(pair):
    plan = without_deaths(make_plan(*pair))
    whole = await Scene(plan).play()
    for scope in SCOPES:
        for steps in range(1, count_steps(whole, scope)):
            scene = await Scene(plan, tight=scope, steps_max=steps).play()
            assert list_limit_stops(scene), (scope, steps)
            await check_scene(scene)
