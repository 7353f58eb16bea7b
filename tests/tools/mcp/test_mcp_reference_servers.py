"""Reference servers, which we did not write, from PyPI and npm: `make mcp-servers` installs them and runs this file."""

import asyncio
import contextlib
import functools
import http.server
import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from bridle import Agent, Media
from bridle.mcp import load_servers, server
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from tests.suite.command import bridle
from tests.tools.mcp.mcp_servers import CONTEXT, list_session_members

SERVERS = Path(os.environ.get("BRIDLE_MCP_SERVERS", ""))
pytestmark = pytest.mark.skipif(
    not os.environ.get("BRIDLE_MCP_SERVERS"), reason="`make mcp-servers` installs the servers"
)


class Reference(NamedTuple):
    """A server with its command below the folder of the servers, and one call."""

    name: str
    program: str
    options: str
    """Words after the program; `{folder}` is a folder with a repository and the file a.txt."""
    env: str
    """A variable that is set, as NAME=value, or ""."""
    tool: str
    arguments: str
    """JSON; `{folder}` and `{port}` are filled in, the latter with the port of a web server for that folder."""
    answer: str
    """A part of the result."""


REFERENCES = (
    Reference("time", "bin/mcp-server-time", "", "", "convert_time", '{"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}', "21:00:00+09:00"),
    Reference("fetch", "bin/mcp-server-fetch", "--allow-private-ips --ignore-robots-txt", "", "fetch", '{"url": "http://127.0.0.1:{port}/a.txt"}', "hello file"),
    Reference("git", "bin/mcp-server-git", "--repository {folder}", "", "git_status", '{"repo_path": "{folder}"}', "a.txt"),
    Reference("sqlite", "v1/bin/mcp-server-sqlite", "--db-path {folder}/data.db", "", "create_table", '{"query": "CREATE TABLE visits (day TEXT)"}', "created"),
    Reference("everything", "node_modules/.bin/mcp-server-everything", "", "", "get-sum", '{"a": 2, "b": 3}', "5"),
    Reference("filesystem", "node_modules/.bin/mcp-server-filesystem", "{folder}", "", "read_text_file", '{"path": "{folder}/a.txt"}', "hello file"),
    Reference("memory", "node_modules/.bin/mcp-server-memory", "", "MEMORY_FILE_PATH={folder}/memory.json", "create_entities", '{"entities": [{"name": "Ada", "entityType": "person", "observations": ["likes tea"]}]}', "likes tea"),
    Reference("thinking", "node_modules/.bin/mcp-server-sequential-thinking", "", "", "sequentialthinking", '{"thought": "x", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1}', '"thoughtHistoryLength": 1'),
)  # fmt: skip


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        """Print nothing."""


@pytest.fixture
def place(tmp_path):
    """The values of `{folder}` and `{port}`."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.txt").write_text("hello file")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    web = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(QuietHandler, directory=str(folder))
    )
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    yield {"{folder}": str(folder), "{port}": str(web.server_port)}
    web.shutdown()
    thread.join()
    web.server_close()


def fill(text, place):
    for name, value in place.items():
        text = text.replace(name, value)
    return text


def write_file(path, place):
    entries = {}
    for each in REFERENCES:
        name, _, value = fill(each.env, place).partition("=")
        entries[each.name] = {
            "command": str(SERVERS / each.program),
            "args": fill(each.options, place).split(),
            "env": {name: value} if name else {},
        }
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


def list_calls(place):
    return [
        (f"mcp__{each.name}__{each.tool}", json.loads(fill(each.arguments, place))) for each in REFERENCES
    ]


def list_processes_of_servers():
    """Processes whose command names a file in the folder of the servers."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.fsencode(f"{SERVERS}/") in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def check_answers(texts):
    assert len(texts) == len(REFERENCES)
    for each, text in zip(REFERENCES, texts, strict=True):
        assert each.answer in text, each.name


def test_an_agent_lists_all_servers_and_calls_a_tool_of_each(tmp_path, place):
    sources = load_servers(write_file(tmp_path / "mcp.json", place))

    async def main():
        counts = {}
        for source in sources:
            listing = await source.list_tools()
            assert listing.error == "" and listing.tools
            counts[source.name] = len(listing.tools)
        agent = Agent(scripted(call_reply(*list_calls(place)), "done"), tools=sources)
        result = await agent.run("go")
        assert result.done
        check_answers([each.text for message in result.messages for each in message.results])
        print(f"{len(counts)} servers, {sum(counts.values())} tools: {counts}")

    asyncio.run(main())
    assert list_processes_of_servers() == []


def test_the_command_calls_a_tool_of_each_server(tmp_path, place):
    file = write_file(tmp_path / "mcp.json", place)
    prompt = "\n".join(f"!call {name} {json.dumps(arguments)}" for name, arguments in list_calls(place))
    ended = bridle("run", "--mcp", str(file), "--yes", "--json", "-m", "sim:", prompt, cwd=tmp_path)
    assert ended.code == 0, ended.err
    results = json.loads(ended.out)["text"].split(" brought ")[1:]  # the simulated model repeats all results
    check_answers(results)
    assert list_processes_of_servers() == []


@contextlib.contextmanager
def serve_all(file):
    """The addresses of all servers of a file, behind a proxy of another project that offers them over HTTP."""
    port = find_free_port()
    argv = [str(SERVERS / "v1/bin/mcp-proxy"), "--port", str(port), "--pass-environment"]
    process = subprocess.Popen(
        [*argv, "--named-server-config", str(file)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    while "Uvicorn running" not in (line := process.stderr.readline()):
        assert line, "the proxy did not start"
    reader = threading.Thread(target=process.stderr.read)
    reader.start()
    try:
        yield {each.name: f"http://127.0.0.1:{port}/servers/{each.name}" for each in REFERENCES}
    finally:
        for pid in list_session_members([process.pid]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        reader.join()
        process.stderr.close()
    for pid in list_processes_of_servers():  # the servers of the proxy have sessions of their own
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["http", "sse"])
def test_all_servers_are_listed_and_called_over_http_by_the_library_and_the_command(kind, tmp_path, place):
    with serve_all(write_file(tmp_path / "mcp.json", place)) as urls:
        path = "mcp" if kind == "http" else "sse"
        entries = {name: {"type": kind, "url": f"{url}/{path}"} for name, url in urls.items()}
        file = tmp_path / "web.json"
        file.write_text(json.dumps({"mcpServers": entries}))

        async def main():
            sources = load_servers(file)
            agent = Agent(scripted(call_reply(*list_calls(place)), "done"), tools=sources)
            result = await agent.run("go")
            check_answers([each.text for message in result.messages for each in message.results])

        asyncio.run(main())
        (Path(place["{folder}"]) / "data.db").unlink()
        prompt = "\n".join(f"!call {name} {json.dumps(arguments)}" for name, arguments in list_calls(place))
        prompt = prompt.replace("visits", "calls")
        ended = bridle("run", "--mcp", str(file), "--yes", "--json", "-m", "sim:", prompt, cwd=tmp_path)
        assert ended.code == 0, ended.err
        results = json.loads(ended.out)["text"].split(" brought ")[1:]
        assert len(results) == len(REFERENCES)


def test_the_command_lists_what_every_server_offers(tmp_path, place):
    file = write_file(tmp_path / "mcp.json", place)
    ended = bridle("mcp", "list", str(file), "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    offers = {offer["server"]: offer for offer in json.loads(ended.out)}
    counts = {
        name: [len(offer[kind]) for kind in ("tools", "resources", "templates", "prompts")]
        for name, offer in offers.items()
    }
    print(f"tools, resources, templates, prompts: {counts}")
    assert len(offers) == len(REFERENCES) and all(each[0] for each in counts.values())
    assert all(counts["everything"]) and list_processes_of_servers() == []


def test_resources_and_prompts_of_the_server_for_everything_are_read(tmp_path, place):
    sources = load_servers(write_file(tmp_path / "mcp.json", place))
    (source,) = [each for each in sources if each.name == "everything"]

    async def main():
        resources, prompts = await source.list_resources(), await source.list_prompts()
        for resource in resources:
            assert await source.read_resource(resource.uri), resource
        templates = await source.list_resource_templates()
        texts = [
            await source.read_resource(each.uri_template.replace("{resourceId}", "1")) for each in templates
        ]
        filled = {}
        for prompt in prompts:
            arguments = {each.name: FILLED.get(each.name, "1") for each in prompt.arguments}
            filled[prompt.name] = await source.get_prompt(prompt.name, arguments)
            result = await Agent("sim:").run(filled[prompt.name].prompt, history=filled[prompt.name].history)
            assert result.done, prompt.name
        print(
            f"{len(resources)} resources, {len(texts)} templates and {len(filled)} prompts read: {list(filled)}"
        )
        assert len(resources) >= 5 and len(texts) >= 2 and len(filled) >= 3
        await source.close()

    asyncio.run(main())


FILLED = {
    "city": "Paris",
    "department": "Engineering",
    "name": "Alice",
    "resourceType": "Text",
    "resourceId": "1",
}


def find_free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def serve_everything(transport):
    """The address of server-everything over HTTP."""
    port = find_free_port()
    argv = [str(SERVERS / "node_modules/.bin/mcp-server-everything"), transport]
    process = subprocess.Popen(
        argv,
        env={**os.environ, "PORT": str(port)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    while "on port" not in (line := process.stderr.readline()):
        assert line, "the server did not start"
    try:
        reader = threading.Thread(target=process.stderr.read)
        reader.start()
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stderr.close()
    assert list_session_members([process.pid]) == []


@pytest.mark.parametrize("transport", ["streamableHttp", "sse"])
def test_a_server_over_http_is_listed_and_called_by_the_library_and_the_command(transport, tmp_path):
    with serve_everything(transport) as url:
        kind = "sse" if transport == "sse" else "http"

        async def main():
            source = server(url, name="everything", transport=kind)  # type: ignore[arg-type]
            listing = await source.list_tools()
            assert listing.error == "" and len(listing.tools) >= 10

            async def call(tool, **arguments):
                return await source.call(f"mcp__everything__{tool}", arguments, CONTEXT)

            assert "5" in (await call("get-sum", a=2, b=3))[0].text
            assert any(isinstance(part, Media) for part in await call("get-tiny-image"))
            links = await call("get-resource-links", count=2)
            assert sum(part.text.startswith("[resource link]") for part in links) == 2
            ended = await call("trigger-long-running-operation", duration=1, steps=2)
            assert "completed" in ended[0].text

        asyncio.run(main())
        file = tmp_path / "mcp.json"
        file.write_text(json.dumps({"mcpServers": {"web": {"type": kind, "url": url}}}))
        prompt = '!call mcp__web__echo {"message": "over the wire"}'
        ended = bridle("run", "--mcp", str(file), "--yes", "--json", "-m", "sim:", prompt, cwd=tmp_path)
        assert ended.code == 0 and "Echo: over the wire" in ended.out, ended.err
