"""The clients of the front-end protocols, unmodified, talk to a served agent: `make front-ends` installs them.

They are found in the folder that BRIDLE_FRONT_ENDS names.
"""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from bridle import Agent, tool
from bridle.testing import simulator
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

PACKAGES = os.environ.get("BRIDLE_FRONT_ENDS", "")
SDK = os.environ.get("BRIDLE_AI_SDK", "6")
"""Version of the package `ai`."""
SCRIPTS = Path(__file__).with_name("front_ends")

pytestmark = pytest.mark.skipif(
    not PACKAGES or shutil.which("node") is None,
    reason="needs node and the packages `ai` and `@ag-ui/client`: make front-ends",
)


@tool(effect="read")
def look(name: str) -> str:
    """Look something up."""
    return f"{name} is here"


@tool(effect="write", approve=True)
def pay(usd: int) -> str:
    """Pay."""
    return f"paid {usd}"


@tool(effect="read")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


async def run_script(name, tmp_path, faults=()):
    """Run a script beside the packages, which is where node looks for them."""
    script = Path(PACKAGES) / name
    shutil.copy(SCRIPTS / name, script)
    agent = Agent("sim:", name="shop", tools=[look, pay, wait])
    async with (
        simulator(faults=faults) as provider,
        serve_agents(
            {"shop": agent, "flaky": Agent(provider.model(), name="flaky")}, tmp_path / "log.db"
        ) as serving,
    ):
        process = await asyncio.create_subprocess_exec(
            "node",
            str(script),
            serving.url,
            SDK,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
        assert process.returncode == 0, err.decode()
        return json.loads(out)


@in_loop
async def test_the_vercel_ai_sdk(tmp_path):
    done = await run_script("vercel_chat.mjs", tmp_path, ["missing-end"])
    assert done["errors"] == [] and done["idle"] is None
    tools = [part for part in done["found"]["parts"] if part["type"] == "dynamic-tool"]
    assert [(each["state"], each["input"], each["output"]) for each in tools] == [
        ("output-available", {"name": "x"}, "x is here")
    ]
    assert [part["text"] for part in done["found"]["parts"] if part["type"] == "text"] == ["found"]
    assert done["asked"]["metadata"]["stop"] == "waiting"
    (paid,) = [part for part in done["paid"]["parts"] if part["type"] == "dynamic-tool"]
    assert (paid["state"], paid["output"], paid["approval"]["approved"]) == (
        "output-available",
        "paid 7",
        True,
    )
    assert done["paid"]["parts"][-1]["text"] == "paid"
    assert done["again"]["parts"][-1]["text"] == "found"
    assert done["again"]["metadata"]["session"] == "chat-1~2"
    assert done["stopped"] == "cancelled"
    texts = [part["text"] for part in done["broken"]["parts"] if part["type"] == "text"]
    assert texts[-1] == "one whole answer of the model"
    assert len(texts) == 1 if int(SDK) >= 7 else len(texts) == 2


@in_loop
async def test_ag_ui(tmp_path):
    done = await run_script("ag_ui_agent.mjs", tmp_path)
    assert done["found"]["newMessages"][-1]["content"] == "found"
    (interrupt,) = done["interrupts"]
    assert (interrupt["reason"], bool(interrupt["toolCallId"])) == ("tool_call", True)
    assert [message["content"] for message in done["paid"]["newMessages"]] == ["paid 7", "paid"]
    assert [message["content"] for message in done["chosen"]["newMessages"]] == ["blue it is"]
    assert done["seen"]["newMessages"][-1]["content"] == "a dot"
    assert done["events"].count("RUN_STARTED") == done["events"].count("RUN_FINISHED") == 5
    assert done["stopped"] == "cancelled"
