"""Names of agents and the prompt cache keys derived from them."""

from msgspec.structs import replace

from bridle.core.cache.breakpoints import KEY_LENGTH_MAX, agent_name, cache_key
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import ToolSpec
from bridle.values.settings import Settings

KEYED = Model(id="m", endpoint=Endpoint(name="here", family="x"), abilities=Abilities(cache_key=True))
AGENT = Settings(model=KEYED, instructions="Be kind.", tools=(ToolSpec(name="look"),))


def test_a_name_is_what_was_given_or_made_of_what_the_agent_is_for():
    assert agent_name(replace(AGENT, name="scout")) == "scout"
    made = agent_name(AGENT)
    assert made == agent_name(replace(AGENT, tools=(ToolSpec(name="look", description="Look around."),)))
    assert made == agent_name(replace(AGENT, tools=(), hidden_tools=AGENT.tools)), "shown or not"
    others = (replace(AGENT, instructions="Be brief."), replace(AGENT, tools=()))
    assert made not in map(agent_name, others)


def test_a_key_keeps_agents_apart_and_tenants_where_that_is_asked_for():
    key = cache_key(AGENT, "acme", "s1")
    assert key == cache_key(AGENT, "globex", "s2"), "tenants share the common prefix"
    assert key != cache_key(replace(AGENT, name="scout"), "acme", "s1")
    apart = replace(AGENT, cache_by="tenant")
    key = cache_key(apart, "acme", "s1")
    assert key == cache_key(apart, "acme", "s2")
    assert key != cache_key(apart, "globex", "s1")
    assert "acme" not in key, "who the tenants are is not told"
    assert cache_key(replace(AGENT, name="scout"), "", "s").startswith("scout-")


def test_a_key_is_never_longer_than_a_provider_takes_nor_made_of_anything_odd():
    key = cache_key(replace(AGENT, name="der überaus lange Name\n" * 9), "t" * 500, "s")
    assert len(key) == KEY_LENGTH_MAX
    assert key.isascii()
    assert not set(key) & set(" \n")


def test_a_busy_agent_is_cut_into_lots_of_sessions():
    busy = replace(AGENT, cache_shards=4)
    keys = [cache_key(busy, "acme", f"s{n}") for n in range(400)]
    assert len(set(keys)) == 4
    assert min(map(keys.count, set(keys))) > 60
    assert cache_key(busy, "acme", "s1") == keys[1]


def test_no_key_where_none_is_taken():
    assert cache_key(Settings(model=replace(KEYED, abilities=Abilities())), "acme", "s") == ""
