"""Models with an undocumented output limit: the simulator enforces none."""

import pytest

from bridle import Agent

TABLE = """
[models.mine.ids.new-model]
context_tokens = 400_000

[endpoints.mine]
like = "{vendor}"
models = ["mine"]
"""
VENDORS = ("anthropic", "openai", "openai-chat", "gemini", "bedrock")
BEYOND_ANY_GUESS = 100_000


@pytest.fixture
def table(tmp_path, monkeypatch):
    def write(vendor):
        path = tmp_path / "models.toml"
        path.write_text(TABLE.format(vendor=vendor))
        monkeypatch.setenv("BRIDLE_MODELS", str(path))

    return write


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_long_reply_may_be_asked_for_where_no_limit_is_known(table, vendor):
    table(vendor)
    name = "global.anthropic.new-model" if vendor == "bedrock" else "new-model"
    agent = Agent(f"sim:mine/{name}", max_tokens=BEYOND_ANY_GUESS)
    assert not agent.settings.model.abilities.output_limited
    result = agent.run_sync("!say hello")
    assert (result.text, result.stop) == ("hello", "done"), result.reason
