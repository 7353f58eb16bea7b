"""A gateway with two keys: `python examples/gateway.py`. The simulator answers, so no key of a provider is needed.

A client of OpenAI's wire and one of Anthropic's reach the same model; the budget of the second key ends. With the
vendors' SDKs you would set only the base URL and the key:

    OpenAI(base_url=f"{url}/openai/v1", api_key=key)         Anthropic(base_url=f"{url}/anthropic", api_key=key)
"""

import json
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GATEWAY = [sys.executable, "-m", "bridle.cli.main", "gateway"]
MODEL = '[models.fast]\nchain = ["sim:anthropic/claude-haiku-4-5", "sim:openai/gpt-6.1-sol"]\n\n'


def make_key(name: str, more: str = "") -> tuple[str, str]:
    """A new key and its lines for the gateway's file."""
    made = subprocess.run([*GATEWAY, "--new-key", name, "--json"], check=True, capture_output=True, text=True)
    described = json.loads(made.stdout)
    return described["key"], f'[keys.{name}]\nsha256 = "{described["sha256"]}"\n{more}\n'


@contextmanager
def run_gateway(folder: Path, file: str) -> Iterator[str]:
    """Run `bridle gateway` with this file; yields its address."""
    (folder / "gateway.toml").write_text(file)
    command = [*GATEWAY, "gateway.toml", "--port", "0", "--json", "--store", "log.db"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


def send(url: str, key: str, body: dict[str, object]) -> tuple[int, dict[str, object]]:
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def main() -> None:
    alice, alice_lines = make_key("alice")
    bob, bob_lines = make_key("bob", "budget = { steps = 1 }")
    asked = [{"role": "user", "content": "!say Hello from behind the gateway."}]
    body: dict[str, object] = {"model": "fast", "max_tokens": 100, "messages": asked}
    with (
        tempfile.TemporaryDirectory() as folder,
        run_gateway(Path(folder), MODEL + alice_lines + bob_lines) as url,
    ):
        for name, key in (("alice", alice), ("bob", bob)):
            for wire, path in (
                ("chat", "/openai/v1/chat/completions"),
                ("messages", "/anthropic/v1/messages"),
            ):
                status, reply = send(url + path, key, body)
                said = reply.get("choices") or reply.get("content") or reply.get("error")
                print(f"{name:6}{wire:9} {status} {json.dumps(said)[:90]}")


if __name__ == "__main__":
    main()
