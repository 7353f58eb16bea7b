"""What a person on call needs: answers given elsewhere, two exporters, lines with owner and cost, outcomes and limits."""

import json
import logging

import pytest

from bridle import Agent, Budget, MisuseError, Telemetry, flush_telemetry, tool
from bridle.run.context import telemetry as module
from bridle.watchers import LogLines, PrometheusMetrics, RedactingWatcher
from tests.suite.in_loop import in_loop
from tests.watchers.otel_receiver import Receiver


class Kept:
    """An exporter that keeps its spans."""

    def __init__(self):
        self.spans = []

    def export(self, spans):
        self.spans += spans

    def flush(self, seconds):
        return True


@tool(effect="write", approve=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    if at == "moon":
        raise ValueError("too far")
    return f"{at} is fine"


@pytest.mark.parametrize("answers_with_telemetry", [False, True])
@in_loop
async def test_a_question_that_another_process_answered_is_one_span(tmp_path, answers_with_telemetry):
    place, kept = str(tmp_path / "log.db"), Kept()
    before = Agent("sim:", name="shop", tools=[pay], store=place, telemetry=Telemetry(exporter=kept))
    waiting = await before.run('!call pay {"amount": 3}\n!then\n!say done', "s", tenant="acme")
    assert waiting.stop == "waiting"
    answering = before if answers_with_telemetry else Agent("sim:", store=place)
    (question,) = await answering.approvals("s")
    await answering.approve("s", question.id)
    after = Agent("sim:", name="shop", tools=[pay], store=place, telemetry=Telemetry(exporter=kept))
    assert (await after.resume("s")).done
    (span,) = [each for each in kept.spans if each.name == "approval pay"]
    assert span.attributes["bridle.approval.answer"] == "approve"
    assert (span.attributes["bridle.tenant"], span.attributes["gen_ai.agent.name"]) == ("acme", "shop")
    assert (await after.run("!say again", "s", tenant="acme")).done
    assert len([each for each in kept.spans if each.name == "approval pay"]) == 1


@pytest.mark.parametrize("names", ["endpoint", "variable"])
def test_prometheus_counts_beside_otlp(monkeypatch, names):
    monkeypatch.setattr(module, "_exporters", [])
    with Receiver() as receiver:
        counted = PrometheusMetrics()
        if names == "endpoint":
            settings = Telemetry(endpoint=receiver.url, exporter=counted, metrics=False)
        else:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
            settings = Telemetry(exporter=counted, metrics=False)
        Agent("sim:", tools=[look], telemetry=settings).run_sync('!call look {"at": "sea"}\n!then\n!say done')
        assert flush_telemetry(60)
        assert "execute_tool look" in [span.name for span in receiver.spans]
        assert (
            'bridle_tool_calls_total{gen_ai_tool_name="look",bridle_tool_outcome="ok"} 1' in counted.render()
        )


def test_prometheus_alone_sends_nothing(monkeypatch):
    monkeypatch.setattr(module, "_exporters", [])
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setattr("bridle.watchers.otel.endpoint.ENDPOINT_DEFAULT", "http://127.0.0.1:9")
    counted = PrometheusMetrics()
    Agent("sim:", telemetry=Telemetry(exporter=counted)).run_sync("!say done")
    assert "bridle_cost_usd_total" in counted.render()
    assert not any(each.__class__.__name__ == "OtlpExporter" for _, each in module._exporters)


def test_two_places_are_refused():
    with pytest.raises(MisuseError, match="one place to send spans to, not endpoint and provider"):
        Telemetry(endpoint="http://127.0.0.1:9", provider=type("P", (), {"get_tracer": lambda self: None})())


@in_loop
async def test_the_line_of_a_run_names_its_owner_its_cost_and_its_trace(tmp_path, caplog):
    caplog.set_level(logging.INFO, "bridle.runs")
    place = str(tmp_path / "log.db")
    await make_shop(place).run('!call pay {"amount": 3}\n!then\n!say done', "s", tenant="acme")
    (question,) = await Agent("sim:", store=place).approvals("s")
    await Agent("sim:", store=place).approve("s", question.id)
    # Another process, which has not seen the prompt, ends the run.
    result = await make_shop(place, watchers=[LogLines(json=True)]).resume("s")
    check_last_line(caplog, result, "acme")
    filtered = RedactingWatcher(LogLines(json=True))
    check_last_line(caplog, await make_shop(place, watchers=[filtered]).run("!say more", "t"), None)


def make_shop(place, **options):
    return Agent(
        "sim:", name="shop", tools=[pay], store=place, telemetry=Telemetry(exporter=Kept()), **options
    )


def check_last_line(caplog, result, tenant):
    line = json.loads(caplog.records[-1].getMessage())
    assert (line["event"], line["agent"], line.get("tenant")) == ("run_ended", "shop", tenant)
    assert line["cost"] == pytest.approx(result.cost)
    assert len(bytes.fromhex(line["trace_id"])) == 16


def test_outcomes_and_used_limits_are_counted_by_agent_and_tenant():
    counted = PrometheusMetrics(labels=["agent", "tenant"], label_values_max=2)
    agent = Agent("sim:", name="shop", tools=[look], telemetry=Telemetry(exporter=counted))
    for tenant in ("a", "b", "c"):
        prompt = '!call look {"at": "sea"}\n!call look {"at": "moon"}\n!then\n!say done'
        agent.run_sync(prompt, tenant=tenant, budget=Budget(steps=4))
    shown = counted.render()
    for tenant in ("a", "b", "other"):
        owner = f'gen_ai_agent_name="shop",bridle_tenant="{tenant}"'
        for outcome in ("ok", "error"):
            labels = f'gen_ai_tool_name="look",bridle_tool_outcome="{outcome}",{owner}'
            assert f"bridle_tool_calls_total{{{labels}}} 1" in shown
        kind = f'bridle_budget_kind="steps",{owner}'
        assert f'bridle_budget_use_bucket{{{kind},le="0.5"}} 1' in shown
        assert f'bridle_budget_use_bucket{{{kind},le="0.25"}} 0' in shown
