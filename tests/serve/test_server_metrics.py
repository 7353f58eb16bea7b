"""Metrics of a server: what waits, what has no process, what is in doubt, outcomes, used limits, by agent and tenant."""

import signal
import subprocess
import sys

import pytest

from bridle import Agent, Budget, tool
from bridle.serve import ServeOptions, census
from bridle.values.errors import Unusable
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

PRICED = "sim:anthropic/claude-sonnet-5-5"
KILLED = """
import os, signal, sys
from bridle import Agent, tool

@tool(effect="write", on_unknown="ask")
def charge(usd: int) -> str:
    "Charge a card; the process does not live to hear the bank."
    os.kill(os.getpid(), signal.SIGKILL)

Agent("sim:", name="shop", tools=[charge], store=sys.argv[1]).run_sync(
    '!call charge {"usd": 1}', "killed", tenant="acme"
)
"""


@tool(effect="write", approve=True)
def refund(usd: int) -> str:
    """Refund."""
    return "refunded"


@tool(effect="read")
def look(at: str) -> str:
    """Look."""
    return at


@pytest.fixture(autouse=True)
def counts_at_once(monkeypatch):
    monkeypatch.setattr(census, "CENSUS_SECONDS", 0.0)


async def read_metrics(serving):
    status, _, body = await serving.exchange("GET", "/metrics")
    assert status == 200
    lines = [line for line in body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def run_to_end(client, prompt, session, **given):
    run = await client.prompt(prompt, session=session, new=True, **given)
    async for _ in client.stream(session, after=run.after):
        pass


@in_loop
async def test_open_work_of_the_store_is_counted(shared_log):
    killed = subprocess.run([sys.executable, "-c", KILLED, shared_log], timeout=PATIENCE_SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    shop = Agent("sim:", name="shop", tools=[refund, look])
    options = ServeOptions(resumes_runs=False, metric_labels=("agent", "tenant"))
    async with serve_agents({"shop": shop}, shared_log, options=options) as serving:
        await run_to_end(serving.client, '!call refund {"usd": 5}', "asks", tenant="beta")
        prompt = '!call look {"at": "sea"}\n!then\n!say ok'
        await run_to_end(serving.client, prompt, "done", budget=Budget(steps=4))
        found = await read_metrics(serving)
        acme, beta = ('{agent="shop",tenant="' + name + '"}' for name in ("acme", "beta"))
        assert (found[f"bridle_serve_runs_orphaned{acme}"], found[f"bridle_serve_runs_orphaned{beta}"]) == (
            1,
            0,
        )
        assert (found[f"bridle_serve_runs_waiting{acme}"], found[f"bridle_serve_runs_waiting{beta}"]) == (
            0,
            1,
        )
        assert found[f"bridle_serve_calls_in_doubt{acme}"] == 1
        assert found["bridle_serve_oldest_waiting_seconds"] >= 0
        assert found["bridle_serve_servers"] == found["bridle_serve_store_up"] == 1
        none = 'agent="shop",tenant="none"'
        assert found[f'bridle_serve_tool_calls_total{{outcome="ok",{none}}}'] == 1
        assert found[f'bridle_serve_tokens_total{{kind="output",{none}}}'] > 0
        assert found[f'bridle_serve_tokens_total{{kind="output",{beta[1:-1]}}}'] > 0
        assert found['bridle_serve_runs_total{stop="done",agent="shop",tenant="none"}'] == 1
        kind = 'kind="steps",agent="shop",tenant="none"'
        assert found[f'bridle_serve_budget_use_bucket{{{kind},le="0.5"}}'] == 1
        (question,) = (await serving.client.approvals("asks")).approvals
        run = (await serving.client.answer("asks", question.id, "approve")).run
        async for _ in serving.client.stream("asks", after=run.after):
            pass
        found = await read_metrics(serving)
        assert f"bridle_serve_runs_waiting{beta}" not in found
        # The run went on without a new prompt, which would name its tenant.
        assert found[f'bridle_serve_tool_calls_total{{outcome="ok",{beta[1:-1]}}}'] == 1


@in_loop
async def test_adoptions_and_cost_are_counted_by_agent_and_tenant(tmp_path):
    path = tmp_path / "log.db"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED.replace('"ask"', '"retry"').replace("sim:", PRICED), path],
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL

    @tool(effect="write", on_unknown="retry")
    def charge(usd: int) -> str:
        """Charge a card."""
        return "charged"

    shop = Agent(PRICED, name="shop", tools=[charge])
    options = ServeOptions(metric_labels=("agent", "tenant"))
    async with serve_agents({"shop": shop}, path, options=options) as serving:
        async for _ in serving.client.stream("killed"):
            pass
        found = await read_metrics(serving)
        labels = 'agent="shop",tenant="acme"'
        assert found[f'bridle_serve_adoptions_total{{reason="start",{labels}}}'] == 1
        assert found[f'bridle_serve_tool_calls_total{{outcome="ok",{labels}}}'] == 1
        assert found[f"bridle_serve_cost_usd_total{{{labels}}}"] > 0
        assert not [
            name for name in found if name.startswith("bridle_serve_cost_usd_total") and labels not in name
        ]


@in_loop
async def test_metrics_are_shown_while_the_store_fails(tmp_path, monkeypatch):
    async with serve_agents({"shop": Agent("sim:", name="shop")}, tmp_path / "log.db") as serving:
        assert (await read_metrics(serving))["bridle_serve_runs_waiting"] == 0

        async def fail(limit=50):
            raise Unusable("the database is away")

        monkeypatch.setattr(serving.host.store, "sessions", fail)
        assert (await read_metrics(serving))["bridle_serve_store_up"] == 0
