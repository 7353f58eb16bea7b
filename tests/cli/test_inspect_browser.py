"""`bridle serve --open` and the sign-in of MCP servers show no token to other users of the machine."""

import ast
import json
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.request
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from bridle import Agent
from bridle.cli.main import main
from bridle.tools.process.open_browser import open_privately, write_page
from tests.suite.patience import PATIENCE_SECONDS

SOURCE = Path(__file__).parents[2] / "src" / "bridle"
BROWSER = """import json, os, sys
place = {place!r}
with open(place + ".part", "w") as file:
    json.dump({{"argv": sys.argv, "environment": dict(os.environ)}}, file)
os.replace(place + ".part", place)
with open({fifo!r}, "w") as file:
    file.write("opened")
"""


@pytest.fixture
def browser(tmp_path):
    """A browser that records how it was started: the file of the record, and a pipe that says when."""
    seen, fifo, program = tmp_path / "seen.json", tmp_path / "opened", tmp_path / "browser"
    os.mkfifo(fifo)
    script = tmp_path / "browser.py"
    script.write_text(BROWSER.format(place=str(seen), fifo=str(fifo)))
    # The path of Python may have spaces, which the first line of a script cannot have.
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    program.chmod(0o755)
    return program, seen, fifo


def test_no_token_is_on_the_command_line_of_the_browser(tmp_path, browser):
    program, seen, fifo = browser
    store = tmp_path / "log.db"
    Agent("sim:", store=store).run_sync("!say hi", session="s")
    words = [
        sys.executable,
        "-m",
        "bridle.cli.main",
        "serve",
        "--open",
        "--session",
        "s",
        "--store",
        str(store),
    ]
    environment = {**os.environ, "BROWSER": f"{program} %s", "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment, text=True) as running:
        try:
            address = re.search(r"http://\S+", running.stdout.readline())[0]
            token = re.search("#token=([^&]+)&", address)[1]
            assert fifo.read_text() == "opened"
            started = json.loads(seen.read_text())
            assert token not in json.dumps(started)
            page = Path(unquote(urlsplit(started["argv"][1]).path))
            assert stat.S_IMODE(page.stat().st_mode) == 0o600
            assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700
            assert page.stat().st_uid == os.getuid()
            [target] = {unescape(each) for each in re.findall(r'(?:url=|href=")([^"]+)"', page.read_text())}
            assert target == address
            with urllib.request.urlopen(address.partition("#")[0], timeout=PATIENCE_SECONDS) as reply:
                assert reply.status == 200
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(PATIENCE_SECONDS)
    assert not page.exists(), "the file stays after the process"


def test_an_address_cannot_write_markup_into_the_page():
    address = "https://example.com/?a=\"><script>alert(1)</script>&b='x"
    text = write_page(address).read_text()
    assert "<script" not in text
    assert unescape(re.search('href="([^"]+)"', text)[1]) == address


@pytest.mark.parametrize("address", ["javascript:alert(1)", "file:///etc/passwd", "", "ftp://example.com"])
def test_only_web_addresses_are_opened(address):
    assert open_privately(address) is False


@pytest.mark.slow
def test_nothing_else_starts_a_browser():
    """Every address that is opened goes through the private file."""
    users = []
    for file in SOURCE.rglob("*.py"):
        names = {
            node.value.id
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        if "webbrowser" in names:
            users.append(file.name)
    assert users == ["open_browser.py"]


def test_a_token_on_the_command_line_of_serve_is_told():
    words = [sys.executable, "-m", "bridle.cli.main", "serve", "--token", "x" * 20, "--token-file", "none"]
    both = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "not both" in both.stderr
    words = [
        sys.executable,
        "-m",
        "bridle.cli.main",
        "serve",
        "nothing.py",
        "--token",
        "x" * 20,
        "--port",
        "0",
    ]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "other users of this machine see a token in the command" in told.stderr


def read_address(tmp_path, *words):
    """The address that the command prints as JSON, before it is stopped."""
    command = [sys.executable, "-m", "bridle.cli.main", "serve", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as running:
        try:
            return json.loads(running.stdout.readline())["url"]
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(PATIENCE_SECONDS)


def test_the_inspector_of_a_server_with_agents_is_opened_with_its_token(tmp_path):
    (tmp_path / "app.py").write_text('from bridle import Agent\n\nagent = Agent("sim:")\n')
    (tmp_path / "token").write_text("a/secret-of-the-desk")
    words = ("app.py", "--open", "--port", "0", "--store", "log.db", "--token-file", "token")
    assert read_address(tmp_path, *words).endswith("/#token=a%2Fsecret-of-the-desk&/")
    assert re.search("#token=[^&]{20,}&/$", read_address(tmp_path, "app.py", "--open", "--store", "log.db"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--session", "s"), "--session needs --open"),
        (("--no-browser",), "--no-browser needs --open"),
        (("--open", "--mcp"), "leave out --mcp"),
        (("--open", "--tokens", "tokens.toml"), "leave out --tokens"),
        (("--open", "--session", "nobody"), "no session 'nobody'"),
    ],
)
def test_options_that_exclude_each_other_are_refused_in_one_line(tmp_path, capsys, words, told):
    store = tmp_path / "log.db"
    Agent("sim:", store=store).run_sync("!say hi", session="s")
    assert main(["serve", *words, "--store", str(store)]) == 2
    assert told in capsys.readouterr().err
    assert main(["serve", "--open", "--store", str(tmp_path / "none.db")]) == 2
    assert "no log at" in capsys.readouterr().err
