"""The table of models: windows and prices agree with other projects' tables, or the difference is settled."""

import time
from decimal import Decimal

import pytest

from bridle import Agent
from bridle.providers.catalogue import find_model
from bridle.testing import FakeClock, ProviderSim
from tests.providers import model_table

DAY_SECONDS = 86_400


@pytest.mark.parametrize(
    "name",
    [
        "gemini:gemini-3.5-flash-lite", "gemini:gemini-2.5-flash-lite", "openai:gpt-5.4-nano", "openai:gpt-5.5-pro",
        "openai:gpt-5.2", "openai:gpt-5.1", "openai:gpt-5-mini", "kimi:kimi-k2.6", "kimi:kimi-k2.5", "zai:glm-5.1",
        "zai:glm-5.2", "zai:glm-4.7", "mistral:mistral-medium-3-5", "mistral:mistral-small-latest", "xai:grok-4.5",
        "xai:grok-4.6", "xai:grok-4.20",
    ],
)  # fmt: skip
def test_current_models_have_a_price(name):
    model = find_model(name, environ={})
    assert model.price is not None
    assert model.abilities.context_tokens >= 200_000


def test_a_prompt_is_held_against_the_input_window_and_not_the_total_one():
    model = find_model("openai:gpt-6.1-sol", environ={})
    assert model.abilities.context_tokens == 1_050_000
    assert Agent("sim:openai/gpt-6.1-sol").settings.window_tokens == 922_000
    assert find_model("openai:gpt-5.4-mini", environ={}).abilities.prompt_tokens_max == 272_000


@pytest.mark.refusals("prompt-window")
@pytest.mark.parametrize("wire", ["sim:openai/gpt-5.4-mini", "sim:openai-chat/gpt-5.4-mini"])
def test_the_simulator_refuses_a_prompt_above_the_input_window(wire):
    provider = ProviderSim(clock=FakeClock())
    agent = Agent(provider.model(find_model(wire, environ={})), compaction=None, attempts_max=1)
    result = agent.run_sync("word " * 300_000)
    assert result.stop != "done"


def test_every_settled_difference_has_a_reason_and_a_date():
    rows = model_table.load_settled_rows().values()
    assert all(row["reason"] and row["evidence"] and row["date"] for row in rows)
    known = {model for _, model in model_table.our_models()}
    assert {model for _, model, _ in model_table.load_settled_rows()} <= known


def test_a_wrong_price_is_a_difference():
    assert list(model_table.differ("x", "m", "input", Decimal(2), Decimal("2.5"))) == [
        ("x", "m", "input", "2", "2.5")
    ]
    assert list(model_table.differ("x", "m", "input", Decimal("2.50"), Decimal("2.5"))) == []


@pytest.mark.parametrize("source", ["litellm", "genai-prices"])
def test_the_table_agrees_with_others_or_the_difference_is_settled(source):
    noon = (
        time.time() // DAY_SECONDS * DAY_SECONDS + DAY_SECONDS / 2
    )  # no peak hours, on which one table has weekends
    if source == "litellm":
        if model_table.litellm_table() is None:
            pytest.skip("litellm is not installed; `make oracles` compares")
        found = list(model_table.compare_with_litellm(noon))
    else:
        pytest.importorskip("genai_prices")
        found = list(model_table.compare_with_genai_prices(noon))
    settled = {key: row for key, row in model_table.load_settled_rows().items() if key[0] == source}
    unsettled = [row for row in found if row[:3] not in settled]
    assert not unsettled, "settle each in models.toml or model_table_settled.toml"
    gone = set(settled) - {row[:3] for row in found}
    assert not gone, "these no longer differ; remove their rows"
