"""The task that every foreign client is given, and the report that its driver prints.

A driver is a file of this folder that knows one foreign package and nothing of Bridle. It runs in that
package's own environment, takes columns (`FEATURE:WIRE:MODE`) as arguments and prints one line of JSON for each.
"""

import asyncio
import json
import os
import sys
import time

URL = os.environ.get("FOREIGN_URL", "http://127.0.0.1:8090")
KEY = "sim"
OWN_TOOL_SCRIPT = "Look at cities.\n!call own_clock {}\n!then\n" if os.environ.get("FOREIGN_OWN_TOOL") else ""
"""A call of the tool that a served agent has of its own, before those of the client (`run.py --served`)."""
TOOLS_SCRIPT = OWN_TOOL_SCRIPT + (
    '!say Let me look.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n'
    '!call look {"city": "Bonn"}\n!then\n!say Rome it is.'
)
THINKING_SCRIPT = "!think I should look at two of them first.\n" + TOOLS_SCRIPT
ANSWER = {"city": "Rome", "sunny": True}
SHAPE_SCRIPT = OWN_TOOL_SCRIPT + '!call look {"city": "Oslo"}\n!then\n!say ' + json.dumps(ANSWER)
ONLY_SHAPE_SCRIPT = OWN_TOOL_SCRIPT + "!say " + json.dumps(ANSWER)
HANDOFF_SCRIPT = (
    OWN_TOOL_SCRIPT
    + '!call transfer_to_billing {}\n!then\n!call look {"city": "Oslo"}\n!then\n!say Rome it is.'
)
"""The tools of the second request are others than those of the first."""
SCRIPTS = {
    "handoff": HANDOFF_SCRIPT,
    "changed": HANDOFF_SCRIPT,
    "tools": TOOLS_SCRIPT,
    "thinking": THINKING_SCRIPT,
    "shape": SHAPE_SCRIPT,
    "only-shape": ONLY_SHAPE_SCRIPT,
}
MODELS = {
    "messages": "claude-sonnet-5-5",
    "responses": "gpt-6.1-sol",
    "chat": "gpt-5.4",
    "gemini": "gemini-3.8-flash",
    "converse": "global.anthropic.claude-sonnet-5-5",
}
THINKING_MODELS = {
    "messages": "claude-sonnet-4-5",
    "converse": "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
}
"""Models whose thinking is switched on by a number of tokens; the others think by themselves."""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOKED: list[str] = []


def look(city: str) -> str:
    """Look at a city.

    Args:
        city: the name of the city
    """
    LOOKED.append(city)
    return f"{city} is fine"


def model_for(feature: str, wire: str) -> str:
    """Return the model to ask on this wire."""
    return THINKING_MODELS.get(wire, MODELS[wire]) if feature == "thinking" else MODELS[wire]


def set_environment() -> None:
    """Point every client that reads its address from the environment at the simulator; no telemetry."""
    os.environ.update(
        {
            "ANTHROPIC_BASE_URL": URL,
            "ANTHROPIC_API_BASE": URL,
            "ANTHROPIC_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{URL}/v1",
            "OPENAI_API_BASE": f"{URL}/v1",
            "OPENAI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": URL,
            "GEMINI_API_BASE": URL,
            "GEMINI_API_KEY": KEY,
            "GOOGLE_API_KEY": KEY,
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": URL,
            "AWS_BEDROCK_RUNTIME_ENDPOINT": URL,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LANGSMITH_TRACING": "false",
            "AGNO_TELEMETRY": "false",
            "CREWAI_DISABLE_TELEMETRY": "true",
            "OTEL_SDK_DISABLED": "true",
            "DO_NOT_TRACK": "1",
        }
    )
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]


def run_columns(run) -> None:
    """Run `run(feature, wire, streamed)` for every column named on the command line and print what came of it."""
    loop = asyncio.new_event_loop()  # one for all: some libraries keep connections for the next run
    asyncio.set_event_loop(loop)
    for column in sys.argv[1:]:
        feature, wire, mode = column.split(":")
        LOOKED.clear()
        report: dict[str, object] = {"column": column, "began": time.time()}
        try:
            answer = run(feature, wire, mode == "stream")
            if asyncio.iscoroutine(answer):
                answer = loop.run_until_complete(answer)
            report |= {"looked": sorted(LOOKED), "answer": answer}
        except Exception as error:  # whatever a foreign package raises is the finding
            report["error"] = f"{type(error).__name__}: {error}"
        report["ended"] = time.time()
        print("\n" + json.dumps(report, default=str), flush=True)  # some leave a line open


set_environment()
