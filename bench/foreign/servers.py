"""Bridle as the client of servers that others wrote: llama.cpp, and LiteLLM's proxy in front of the simulator.

    python bench/foreign/servers.py [--install] [--newest] [--write] [--record FOLDER] [NAME ...]

Each route is driven for two prompts with tools and once for a structured answer, whole and streamed. A cell is good when
the tools ran with arguments that fit, the answer is the expected one and nothing failed, was repeated or was left out.
A parameter that the server refused and that was left out, once and recorded, is named in the cell. The exit code is 1
when a cell of an installed server is not good and is no row of `KNOWN`, or is good and is one, or when a server that
was to be installed is not.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from enum import Enum
from pathlib import Path

import msgspec
from run import (
    NOT_INSTALLABLE,
    RESULTS,
    WORK,
    first_line,
    install,
    install_tools,
    is_installed,
    running_simulator,
    version,
    write_page,
)

from bridle import Agent
from bridle.testing import recording
from bridle.values.events import ModelAsked, ModelFailed

HERE = Path(__file__).parent
MODES = ("whole", "stream")
ADDRESS = r"(http://[\w.-]+:\d+)"
"""What a server prints; its log may go on in the same line."""
LLAMACPP = {"name": "llama.cpp", "packages": ["xllamacpp", "gguf"]}
LITELLM = {"name": "LiteLLM proxy", "packages": ["litellm[proxy]"]}
LLAMACPP_ROUTES = {
    "chat": "llamacpp:tiny@{url}/v1",
    "messages": "anthropic:tiny@{url}",
    "responses": "openai:tiny@{url}/v1",
}
BACKENDS = {
    "claude-sonnet-5-5": {"model": "anthropic/claude-sonnet-5-5", "api_base": "{sim}"},
    "gpt-6.1-sol": {"model": "openai/gpt-6.1-sol", "api_base": "{sim}/v1"},
    "gemini-3.8-flash": {"model": "gemini/gemini-3.8-flash", "api_base": "{sim}/v1beta"},
    "bedrock-claude": {
        "model": "bedrock/converse/global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "aws_bedrock_runtime_endpoint": "{sim}",
        "aws_access_key_id": "sim",
        "aws_secret_access_key": "sim",
        "aws_region_name": "us-east-1",
    },
}
LITELLM_ROUTES = {
    "chat": "local:={model}@{url}/v1",
    "messages": "anthropic:={model}@{url}",
    "responses": "openai:={model}@{url}/v1",
}
SCRIPT = (
    '!say Let me look.\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}\n!then\n'
    '!call look {"city": "Oslo"}\n!then\n!say Rome it is.'
)
THINKING = "!think I should look at two of them first.\n" + SCRIPT
SHAPES = {
    True: '!say {"city": "Rome", "sunny": true}',
    False: '!call Answer {"city": "Rome", "sunny": true}',
}
"""The answer by whether the wire's own form is used; models that our tables do not know are asked by a tool."""
SCRIPTS = {"tools": SCRIPT, "thinking": THINKING}
KNOWN = {
    "LiteLLM proxy thinking:messages to bedrock-claude:stream": (
        "blocks in the latest assistant message cannot be modified",
        "fault of the server: a thought begins twice",
    ),
}
"""Faults of the servers themselves: the words they are known by, and what the cell says."""
FAULTS = frozenset(fault for _, fault in KNOWN.values())
TROUBLE = ("ModelFailed", "ModelSwitched", "ViewChanged", "Repaired", "Nudged")
"""Events that a conversation with a server of good manners does not have."""


class City(Enum):
    OSLO = "Oslo"
    ROME = "Rome"


class Answer(msgspec.Struct):
    city: City
    sunny: bool


async def drive(model, column: str, scripted: bool, streamed: bool) -> str:
    """Hold one conversation; return `ok`, or in one line what was wrong."""
    feature = column.split(":", maxsplit=1)[0]
    repairs: set[str] = set()
    looked: list[City] = []

    def look(city: City) -> str:
        """Look at a city."""
        looked.append(city)
        return f"{city.value} is fine"

    if feature == "shape":
        native = model.model.abilities.structured_output == "native"
        prompt = SHAPES[native] if scripted else "Where is it sunny?"
        agent = Agent(model, output=Answer, max_tokens=1000)
        return await ask(agent, prompt, streamed, None, repairs) or good(repairs)
    agent = Agent(model, tools=[look], max_tokens=2000)
    prompt = SCRIPTS[feature] if scripted else "Look."
    found = await ask(agent, prompt, streamed, "Rome it is.", repairs)
    if found or not looked:
        return found or "called nothing"
    session = (await agent.store.sessions())[0].id
    again, answer = ("!say Still Rome.", "Still Rome.") if scripted else ("And now?", "Rome it is.")
    return await ask(agent, again, streamed, answer, repairs, session=session) or good(repairs)


def good(repairs: set[str]) -> str:
    """The word for a cell that is good; it names the parameters that the server refused."""
    return f"ok, without {' and '.join(sorted(repairs))}" if repairs else "ok"


async def ask(
    agent: Agent, prompt: str, streamed: bool, answer: str | None, repairs: set[str], **options: str
) -> str:
    """Ask once; return what is wrong with what came of it, nothing when all is well.

    Parameters that were refused and then left out are added to `repairs`.
    """
    if streamed:
        async for event in agent.stream(prompt, **options):
            last = event
        result = last.result
    else:
        result = await agent.run(prompt, **options)
    if result.stop != "done":
        return first_line(f"ended {result.stop}: {result.reason}")
    if answer is not None and answer not in result.text:
        return first_line(f"answered {result.text!r}")
    if answer is None and not isinstance(result.output, Answer):
        return first_line(f"answered {result.output!r}")
    events = [record.event for record in await agent.store.read(result.session)]
    repairs |= {event.failure.refused_parameter for event in events if is_repaired(event)}
    trouble = [
        describe(event)
        for event in events
        if type(event).__name__ in TROUBLE and not is_closed(event) and not is_repaired(event)
    ]
    notes = [
        note
        for event in events
        if isinstance(event, ModelAsked)
        for note in event.notes
        if not (repairs and note.endswith("refused the parameter"))
    ]
    return "; ".join(dict.fromkeys([*trouble, *notes]))


def is_closed(event: object) -> bool:
    """Whether a kept connection was closed before anything was answered: llama.cpp does so after streams."""
    return isinstance(event, ModelFailed) and event.failure.kind == "cut" and not event.partial_text


def is_repaired(event: object) -> bool:
    """Whether the server refused an optional parameter; the run went on without it."""
    return isinstance(event, ModelFailed) and event.failure.refused_parameter is not None


def describe(event: object) -> str:
    """Say in a few words what an event that should not be there is about."""
    words = (
        getattr(event, "failure", None)
        or getattr(event, "reason", "")
        or getattr(event, "changes", "")
        or event
    )
    return f"{type(event).__name__}: {getattr(words, 'message', words)}"


@contextlib.contextmanager
def running_llamacpp(place: Path, scratch: Path):
    """Write the model file and serve it."""
    python = str(place / "bin" / "python")
    model = scratch / "tiny.gguf"
    subprocess.run([python, str(HERE / "tiny_model.py"), str(model)], check=True)
    with started(
        [python, str(HERE / "serve_llamacpp.py"), str(model)], rf"listening {ADDRESS}", scratch
    ) as url:
        yield url


@contextlib.contextmanager
def running_litellm(place: Path, scratch: Path):
    """Start the proxy in front of a simulator."""
    with running_simulator(scratch / "sim.jsonl") as sim:
        models = [
            {"model_name": name, "litellm_params": {key: value.format(sim=sim) for key, value in backend.items()} | {"api_key": "sim"}}
            for name, backend in BACKENDS.items()
        ]  # fmt: skip
        config = scratch / "config.json"  # JSON is YAML
        config.write_text(json.dumps({"model_list": models, "litellm_settings": {"telemetry": False}}))
        command = [
            str(place / "bin" / "litellm"),
            "--config",
            str(config),
            "--host",
            "127.0.0.1",
            "--port",
            "8411",
        ]
        with started(command, rf"running on {ADDRESS}", scratch) as url:
            yield url


@contextlib.contextmanager
def started(command: list[str], ready: str, scratch: Path):
    """Start a server, wait for the line that names its address, and stop it in the end."""
    environment = {**os.environ, "HOME": str(scratch), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    environment["LITELLM_MASTER_KEY"] = os.environ["OPENAI_API_KEY"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=scratch
    ) as process:
        drain = None
        try:
            for line in process.stdout:
                if found := re.search(ready, line):
                    break
            else:
                raise SystemExit(f"{command[0]} did not start")
            drain = subprocess.Popen(["cat"], stdin=process.stdout, stdout=subprocess.DEVNULL)
            yield found[1]
        finally:
            process.terminate()
            if drain is not None:
                drain.wait(timeout=30)


def settle(name: str, found: str) -> str:
    """The words of a cell, with what is known of the server taken into account."""
    words, fault = KNOWN.get(name, ("", ""))
    if not fault:
        return first_line(found)
    if found.startswith("ok"):
        return f"{found}, and KNOWN says: {fault}"
    return fault if words in found else first_line(found)


def is_good(cell: str) -> bool:
    """Whether a cell is no reason to fail."""
    repaired = cell.startswith("ok, without ") and not any(fault in cell for fault in FAULTS)
    return repaired or cell in ("ok", "not installed", *FAULTS)


def columns(server: dict, url: str):
    """Yield every column with the model line that it is driven by."""
    if server is LLAMACPP:
        for route, line in LLAMACPP_ROUTES.items():
            for feature in ("tools", "shape"):
                yield f"{feature}:{route}", line.format(url=url)
        return
    for backend in BACKENDS:
        for route, line in LITELLM_ROUTES.items():
            for feature in ("tools", "thinking", "shape"):
                yield f"{feature}:{route} to {backend}", line.format(url=url, model=backend)


async def run_server(server: dict, url: str, folder: Path | None) -> dict[str, str]:
    cells = {}
    for column, line in columns(server, url):
        for mode in MODES:
            name = f"{column}:{mode}"
            path = (folder or WORK) / (
                re.sub(r"[^a-z0-9]+", "-", f"{server['name']} {name}".lower()) + ".jsonl"
            )
            path.unlink(missing_ok=True)
            try:
                with recording(path) as recorded:
                    work = drive(recorded(line), column, server is LITELLM, mode == "stream")
                    cells[name] = settle(f"{server['name']} {name}", await asyncio.wait_for(work, 120))
            except Exception as error:
                cells[name] = first_line(f"{type(error).__name__}: {error}")
            print(f"{server['name']} {name}: {cells[name]}", flush=True)
    return cells


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--install", action="store_true", help="install what is missing")
    options.add_argument(
        "--newest", action="store_true", help="replace what is installed with today's release"
    )
    options.add_argument("--write", action="store_true", help="record the table in docs/oracles.md")
    options.add_argument("--record", type=Path, help="folder for recordings of every exchange")
    options.add_argument("names", nargs="*")
    asked = options.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    key = f"sk-{secrets.token_hex(32)}"  # the proxy starts with none that is easier to guess
    os.environ |= dict.fromkeys(
        ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LLAMA_API_KEY", "LOCAL_API_KEY"), key
    )
    for server, place, running in (
        (LLAMACPP, WORK / "llamacpp", running_llamacpp),
        (LITELLM, WORK / "proxy", running_litellm),
    ):
        if asked.names and not any(server["name"].startswith(name) for name in asked.names):
            continue
        if asked.newest and is_installed(place):
            shutil.rmtree(place)
        if (asked.install or asked.newest) and not is_installed(place):
            install_tools(newest=asked.newest)
            install(server, place)
        if not is_installed(place):
            missing = [f"{column}:{mode}" for column, _ in columns(server, "") for mode in MODES]
            keep(
                place,
                {
                    "version": "",
                    "cells": dict.fromkeys(
                        missing, NOT_INSTALLABLE if asked.install or asked.newest else "not installed"
                    ),
                },
            )
            continue
        with tempfile.TemporaryDirectory() as name, running(place, Path(name)) as url:
            cells = asyncio.run(run_server(server, url, asked.record))
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        keep(place, {"version": version(server, place), "date": today, "cells": cells})
    return report(asked.write)


def keep(place: Path, found: dict) -> None:
    (RESULTS / f"server-{place.name}.json").write_text(json.dumps(found, indent=1))


def report(write: bool) -> int:
    """Print all results there are, and record them when asked to."""
    rows = [
        "| server | version | run on | feature | route | whole | streamed |",
        "|---|---|---|---|---|---|---|",
    ]
    words = []
    for server, place in ((LLAMACPP, "llamacpp"), (LITELLM, "proxy")):
        kept = RESULTS / f"server-{place}.json"
        found = json.loads(kept.read_text()) if kept.exists() else {"version": "", "cells": {}}
        for pair in dict.fromkeys(name.rsplit(":", 1)[0] for name in found["cells"]):
            feature, route = pair.split(":")
            whole, streamed = (found["cells"][f"{pair}:{mode}"] for mode in MODES)
            about = f"{server['name']} | {found['version']} | {found.get('date', '')}"
            rows.append(f"| {about} | {feature} | {route} | {whole} | {streamed} |")
        words += found["cells"].values()
    repaired = sum(word.startswith("ok, without ") and is_good(word) for word in words)
    missing, known = (
        words.count("not installed"),
        sum(word in FAULTS for word in words),
    )
    bad = [word for word in words if not is_good(word)]
    text = "\n".join(rows) + (
        f"\n\n{len(words)} cells: {words.count('ok')} ok, {repaired} ok without a parameter that was refused,"
        f" {known} known faults of the server, {len(bad)} not, {missing} not installed."
    )
    print(f"\n{text}")
    if write:
        write_page(text, "foreign servers")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
