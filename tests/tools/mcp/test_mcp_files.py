"""Servers from files: the JSON of other programs, agent files and `bridle run --mcp`."""

import json
import logging
import sys

import pytest

from bridle import MisuseError, load_agent
from bridle.cli.main import main
from bridle.mcp import load_servers
from tests.tools.mcp.mcp_servers import SCRIPT

ENTRY = {"command": sys.executable, "args": [str(SCRIPT)]}


def write(path, **servers):
    path.write_text(json.dumps({"mcpServers": servers}))
    return path


def test_a_file_of_another_program_is_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("DOCS_TOKEN", "abcdefgh")
    path = write(
        tmp_path / "mcp.json",
        memory=dict(ENTRY, env={"A": "${DOCS_TOKEN}", "B": "${NOTHING:-b}"}, autoApprove=["*"]),
        docs={"type": "streamable-http", "url": "https://x.example", "headers": {"Authorization": "Bearer ${env:DOCS_TOKEN}"}},
        old={"type": "sse", "url": "https://x.example/sse"},
        off={"command": "x", "disabled": True},
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "bridle"):
        memory, docs, old = load_servers(path)
    assert [memory.name, docs.name, old.name] == ["memory", "docs", "old"]
    assert memory._settings.env == {"A": "abcdefgh", "B": "b"}
    assert (
        docs._settings.headers == {"Authorization": "Bearer abcdefgh"} and docs._settings.transport == "http"
    )
    assert old._settings.transport == "sse"
    assert "ignored: autoApprove" in caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not a JSON object with MCP servers"),
        ("{}", "has no MCP servers"),
        ('{"mcpServers": {}}', "has no MCP servers"),
        ('{"mcpServers": {"a": {}}}', "the MCP server 'a': give either a command or a url"),
        ('{"mcpServers": {"a": {"command": "x", "url": "y"}}}', "give either a command or a url"),
        ('{"mcpServers": {"a": {"command": 1}}}', "Expected `str`"),
        ('{"mcpServers": {"a": {"url": "https://x", "type": "smoke"}}}', "the type 'smoke' is unknown"),
        ('{"mcpServers": {"a": {"command": "${NO_SUCH_VARIABLE}"}}}', "the environment variable NO_SUCH_VARIABLE is not set"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_in_one_line(tmp_path, content, words):
    path = tmp_path / "mcp.json"
    path.write_text(content)
    with pytest.raises(MisuseError) as caught:
        load_servers(path)
    assert words in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MisuseError, match="cannot read the MCP servers in"):
        load_servers(tmp_path / "no.json")


def test_an_agent_file_names_servers(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(f'model = "sim:"\n[mcp.h]\ncommand = {sys.executable!r}\nargs = [{str(SCRIPT)!r}]\n')
    assert '{"x": 1}' in load_agent(path).run_sync('!call mcp__h__echo {"x": 1}').messages[2].results[0].text
    write(tmp_path / "mcp.json", h=ENTRY)
    path.write_text('model = "sim:"\nmcp = "mcp.json"\n')
    assert '{"x": 2}' in load_agent(path).run_sync('!call mcp__h__echo {"x": 2}').messages[2].results[0].text


def test_the_command_uses_servers(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "mcp.json", h=ENTRY, dead=dict(ENTRY, args=[str(SCRIPT), "die_at_start"]))
    assert main(["run", "--mcp", str(path), "--yes", "-m", "sim:", '!call mcp__h__echo {"x": 1}']) == 0
    shown = capsys.readouterr()
    assert "The MCP server 'dead' cannot be used" in shown.err and "no licence" in shown.err
    assert "mcp__h__echo" in shown.err
    # Without a terminal and without --yes, a server that is not trusted may not be called.
    assert main(["run", "--mcp", str(path), "-m", "sim:", "--json", '!call mcp__h__echo {"x": 1}']) == 0
    assert '"outcome":"denied"' in capsys.readouterr().out
    write(path, h=dict(ENTRY, trust=True))
    assert main(["run", "--mcp", str(path), "-m", "sim:", "--json", '!call mcp__h__echo {"x": 1}']) == 0
    assert '"outcome":"denied"' not in capsys.readouterr().out
