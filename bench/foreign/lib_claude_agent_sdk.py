"""claude-agent-sdk: Claude Code as a library; it runs shell commands by its own tool, then says the scripted words."""

import json
import os
import tempfile
from pathlib import Path

import claude_agent_sdk as sdk
from task import LOOKED, MODELS, OWN_TOOL_SCRIPT, run_columns


def call(city):
    arguments = {"command": f"echo {city} >> looked.txt", "description": "Note a city"}
    return f"!call Bash {json.dumps(arguments)}"


SCRIPT = f"Note the cities.\n{OWN_TOOL_SCRIPT}{call('Oslo')}\n{call('Rome')}\n!then\n{call('Bonn')}\n!then\n!say Rome it is."


async def run(feature, wire, streamed):
    with tempfile.TemporaryDirectory(dir=os.environ["FOREIGN_SCRATCH"]) as folder:
        options = sdk.ClaudeAgentOptions(
            model=MODELS["messages"],
            allowed_tools=["Bash"],
            env={
                "HOME": folder,
                "IS_SANDBOX": "1",
                "DISABLE_TELEMETRY": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            },
            cwd=folder,
        )
        answer = ""
        async for message in sdk.query(prompt=SCRIPT, options=options):
            if isinstance(message, sdk.ResultMessage):
                answer = message.result or ""
        seen = Path(folder) / "looked.txt"
        LOOKED.extend(seen.read_text().split() if seen.exists() else [])
    return answer.strip().splitlines()[-1] if answer.strip() else ""


run_columns(run)
