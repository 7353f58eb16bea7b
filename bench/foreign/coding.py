"""Coding agents, unmodified: each runs shell commands by its own tool, then says the scripted words.

A column's feature is the agent's name. The agents are commands, so this driver runs in our own interpreter; the
folder of the installed packages comes in FOREIGN_ENVIRONMENT.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from task import KEY, LOOKED, MODELS, OWN_TOOL_SCRIPT, URL, run_columns

PLACE = Path(os.environ.get("FOREIGN_ENVIRONMENT", "."))
COMMANDS = [["echo Oslo >> looked.txt", "echo Rome >> looked.txt"], ["echo Bonn >> looked.txt"]]
LAST = "!say Rome it is."
STDIN = "prompt.txt"


def script(tool, arguments) -> str:
    """Write the script: two replies with calls of the agent's own tool, then the last words."""
    replies = [
        "\n".join(f"!call {tool} {json.dumps(arguments(each))}" for each in batch) for batch in COMMANDS
    ]
    return (
        "Note the cities.\n" + OWN_TOOL_SCRIPT + "\n!then\n".join([*replies, LAST])
    )  # some put words before the first line


def claude(folder, wire):
    prompt = script("Bash", lambda command: {"command": command, "description": "Note a city"})
    return [
        "claude", "-p", prompt, "--model", MODELS["messages"], "--output-format", "text",
        "--allowedTools", "Bash",
    ]  # fmt: skip


def codex(folder, wire):
    prompt = script(
        "exec", lambda command: {"input": f"await tools.exec_command({{cmd: {json.dumps(command)}}})"}
    )
    provider = f'model_providers.sim={{name="sim",base_url="{URL}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    return [
        "codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
        "-c", "model_provider=sim", "-c", provider, "-m", MODELS["responses"], prompt,
    ]  # fmt: skip


def gemini(folder, wire):
    write_json(folder / ".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    prompt = script("run_shell_command", lambda command: {"command": command})
    return ["gemini", "-m", MODELS["gemini"], "--yolo", "-p", prompt]


def qwen(folder, wire):
    prompt = script("run_shell_command", lambda command: {"command": command, "is_background": False})
    return [
        "qwen", "--auth-type", "openai", "--openai-api-key", KEY, "--openai-base-url", f"{URL}/v1",
        "-m", "deepseek-v4-pro", "--yolo", "-p", prompt,
    ]  # fmt: skip


def opencode(folder, wire):
    model = {
        "messages": "anthropic/claude-sonnet-4-5",
        "responses": "openai/gpt-5.4",
        "gemini": "google/gemini-2.5-pro",
    }[wire]
    options = {"options": {"baseURL": f"{URL}/v1", "apiKey": KEY}}
    google = {"options": {"baseURL": f"{URL}/v1beta", "apiKey": KEY}}
    settings = {
        "provider": {"anthropic": options, "openai": options, "google": google},
        "permission": "allow",
        "share": "disabled",
    }
    write_json(folder / ".config/opencode/opencode.json", settings | {"autoupdate": False})
    prompt = script("bash", lambda command: {"command": command, "description": "Note a city"})
    (folder / STDIN).write_text(prompt)  # an argument would arrive in quotation marks
    return ["opencode", "run", "-m", model]


def pi(folder, wire):
    model = {
        "id": MODELS["messages"],
        "name": "sim",
        "reasoning": False,
        "contextWindow": 200000,
        "maxTokens": 8000,
    }
    provider = {"baseUrl": URL, "api": "anthropic-messages", "apiKey": KEY, "models": [model]}
    write_json(folder / ".pi/agent/models.json", {"providers": {"sim": provider}})
    prompt = script("bash", lambda command: {"command": command})
    return ["pi", "--provider", "sim", "--model", MODELS["messages"], "-p", prompt]


def mini(folder, wire):
    prompt = script("bash", lambda command: {"command": command}).replace(
        LAST, '!call bash {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo Rome it is."}'
    )
    return [
        "mini", "-t", prompt, "-y", "--exit-immediately", "-m", f"anthropic/{MODELS['messages']}",
        "-o", str(folder / "mini.json"),
    ]  # fmt: skip


def llm(folder, wire):
    base = {"api_base": f"{URL}/v1", "supports_tools": True, "can_stream": True}
    models = [
        {**base, "model_id": "chat", "model_name": MODELS["chat"]},
        {**base, "model_id": "responses", "model_name": MODELS["responses"], "responses": True},
    ]
    write_json(folder / "llm/extra-openai-models.yaml", models)  # JSON is YAML
    write_json(folder / "llm/keys.json", {"openai": KEY, "anthropic": KEY})
    (folder / "bash.py").write_text(
        'import subprocess\n\n\ndef bash(command: str) -> str:\n    "Run a command."\n'
        "    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout\n"
    )
    model = "anthropic/claude-sonnet-4-5" if wire == "messages" else wire
    prompt = script("bash", lambda command: {"command": command})
    return ["llm", "prompt", "-m", model, "--functions", str(folder / "bash.py"), prompt]


def aider(folder, wire):
    """It edits files by texts, without tools: it writes the file, and answers a second prompt."""
    written = "\n".join(f"!say {line}" for line in ("looked.txt", "```", "Oslo", "Rome", "Bonn", "```"))
    (folder / STDIN).write_text(
        f"{{a\nNote the cities.\n{written}\na}}\n{{b\nWhich one?\n!say Rome it is.\nb}}\n"
    )
    (folder / "looked.txt").write_text("")
    prefix = {"messages": "anthropic/", "chat": "openai/", "gemini": "gemini/"}[wire]
    model = prefix + ("claude-sonnet-4-5" if wire == "messages" else MODELS[wire])
    return [
        "aider", "--model", model, "--edit-format", "whole", "--no-git", "--yes-always", "--no-fancy-input", "--no-pretty",
        "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--map-tokens", "0", "--no-show-release-notes",
        "--no-detect-urls", "looked.txt",
    ]  # fmt: skip


def gptme(folder, wire):
    """It asks for a call of `complete`. One without arguments is lost on the way of Anthropic's streams: it reads no `{}`."""
    ended = f'{LAST}\n!call complete {{"note": "done"}}'
    prompt = script("shell", lambda command: {"command": command}).replace(LAST, ended)
    return [
        "gptme", "--non-interactive", "--no-confirm", "--tool-format", "tool", "-t", "shell",
        "-m", "anthropic/claude-sonnet-4-5" if wire == "messages" else f"local/{MODELS['chat']}", prompt,
    ]  # fmt: skip


def cn(folder, wire):
    model = {"name": "sim", "model": MODELS[wire], "apiKey": KEY}
    model |= (
        {"provider": "anthropic", "apiBase": f"{URL}/v1/"}
        if wire == "messages"
        else {"provider": "openai", "apiBase": f"{URL}/v1", "useResponsesApi": wire == "responses"}
    )
    write_json(folder / "config.yaml", {"name": "sim", "version": "1.0.0", "schema": "v1", "models": [model]})
    prompt = script("Bash", lambda command: {"command": command})
    return ["cn", "--config", str(folder / "config.yaml"), "--auto", "-p", prompt]


def write_json(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def run(agent, wire, streamed):
    with tempfile.TemporaryDirectory(dir=os.environ.get("FOREIGN_SCRATCH")) as name:
        folder = Path(name)
        command = globals()[agent](folder, wire)
        found = [PLACE / "node_modules/.bin" / command[0], PLACE / "bin" / command[0]]
        command[0] = str(next(path for path in found if path.exists()))
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        done = subprocess.run(
            command, cwd=folder, input=(folder / STDIN).read_text() if (folder / STDIN).exists() else "", capture_output=True, text=True, timeout=240,
            env={
                **os.environ, "HOME": name, "PWD": name, "IS_SANDBOX": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "GEMINI_CLI_TRUST_WORKSPACE": "true",
                "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "PI_OFFLINE": "1",
                "LLM_USER_PATH": f"{name}/llm", "GPTME_BREAK_ON_TOOLUSE": "0",
                **({"GEMINI_API_BASE": f"{URL}/v1beta"} if agent == "aider" else {}),
            },
            check=False,
        )  # fmt: skip
        seen = folder / "looked.txt"
        LOOKED.extend(seen.read_text().split() if seen.exists() else [])
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        if any(line.strip().endswith("Rome it is.") for line in done.stdout.splitlines()):
            return "Rome it is."
        return f"exit {done.returncode}: " + " ".join(said[-3:])


run_columns(run)
