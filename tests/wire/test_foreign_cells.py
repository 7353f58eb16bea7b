"""`make foreign` fails when a cell of an installed client or server fails, and only then."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bridle.values.errors import Failure
from bridle.values.events import ModelFailed
from tests.suite.paths import load_program

ROOT = Path(__file__).parents[2]
run = load_program("bench/foreign/run.py")
servers = load_program("bench/foreign/servers.py")

FAULTY = next(iter(servers.KNOWN))


@pytest.mark.parametrize(
    ("failing", "code"), [((), 0), (("run.py",), 2), (("servers.py",), 2), (("run.py", "servers.py"), 2)]
)
def test_make_fails_with_either_program_and_runs_all(failing, code, tmp_path):
    python, ready, log = tmp_path / "python", tmp_path / "ready", tmp_path / "log"
    fails = "|".join(f"*{name}" for name in failing) or "none"
    python.write_text(f'#!/bin/sh\necho "$1" >> {log}\ncase "$1" in {fails}) exit 1;; esac\n')
    python.chmod(0o755)
    ready.touch()
    made = subprocess.run(
        ["make", "-s", "-C", str(ROOT), "foreign", f"BIN={tmp_path}", f"READY={ready}"],
        capture_output=True,
        check=False,
    )
    assert made.returncode == code
    assert log.read_text().split() == [
        "bench/foreign/run.py",
        "bench/foreign/run.py",
        "bench/foreign/run.py",
        "bench/foreign/servers.py",
    ]


@pytest.mark.parametrize(
    ("cell", "good"),
    [
        ("ok", True),
        ("not installed", True),
        ("could not be installed", False),
        ("no report", False),
        ("called []", False),
        ("refused 400 POST /", False),
    ],
)
def test_a_cell_of_a_client_is_good_or_not(cell, good):
    assert run.is_good(cell) is good
    assert servers.is_good(cell) is good


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """Installers that fail, and folders for what they would install; yields their log."""
    work, log = tmp_path / "a folder", tmp_path / "log"
    for program in ("uv/bin/uv", "uv/bin/python", "node/node_modules/.bin/npm"):
        (work / program).parent.mkdir(parents=True, exist_ok=True)
        (work / program).write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >>"{log}"\nexit 1\n')
        (work / program).chmod(0o755)
    monkeypatch.setattr(run, "UV", work / "uv/bin/uv")
    monkeypatch.setattr(run, "NODE", work / "node/node_modules/.bin")
    monkeypatch.setattr(run, "WORK", work / "foreign")
    monkeypatch.setattr(run, "RESULTS", work / "foreign" / "results")
    monkeypatch.setenv("PATH", f"{run.NODE}:{os.environ['PATH']}")
    return log


@pytest.mark.parametrize(
    ("words", "code", "cell"),
    [((), 0, "not installed"), (("--install",), 1, "could not be installed")],
)
@pytest.mark.parametrize("client", ["boto3", "@google/genai"])
def test_a_client_that_was_to_be_installed_and_is_not_fails(words, code, cell, client, tools, monkeypatch):
    monkeypatch.setattr("sys.argv", ["run.py", *words, client])
    assert run.main() == code
    [kept] = (run.RESULTS / "simulator").iterdir()
    assert {*json.loads(kept.read_text())["cells"].values()} == {cell}
    assert tools.exists() == bool(words)


def test_newest_releases_come_from_a_newest_installer(tools):
    with pytest.raises(subprocess.CalledProcessError):
        run.install_tools(newest=True)
    assert "install -q --upgrade uv" in tools.read_text()
    run.install_tools()
    assert len(tools.read_text().splitlines()) == 1, "what is there is kept"


MADE = {
    "pyright": ("BRIDLE_PYRIGHT", "bench/.work/pyright/bin/basedpyright"),
    "mcp-servers": ("BRIDLE_MCP_SERVERS", "bench/.work/mcp-servers"),
    "front-ends": ("BRIDLE_FRONT_ENDS", "bench/.work/front-ends/7"),
}
"""Targets, and the last variable with a path that each gives to its tests."""


@pytest.mark.parametrize("target", MADE)
def test_a_target_works_in_a_folder_with_spaces(target, tmp_path):
    variable, path = MADE[target]
    folder, log = tmp_path / "a b ü", tmp_path / "log"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    for needed in ("requirements.lock", "pyproject.toml", "ready"):
        (folder / needed).touch()
        os.utime(folder / needed, (0, 0))
    for program in ("python", "npm", "python3"):
        (folder / "bin" / program).write_text(
            f'#!/bin/sh\nfor name in "{variable}=${variable}" "PATH=$PATH" "$0 $*"; do echo "$name" >>"{log}"; done\n'
        )
        (folder / "bin" / program).chmod(0o755)
    subprocess.run(
        ["make", "-s", "-C", str(folder), target, "BIN=bin", "READY=ready", "PYTHON=./bin/python3"],
        env={**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"},
        check=True,
    )
    written = log.read_text().splitlines()
    assert f"{variable}={folder}/{path}" in written
    installed = [line for line in written if "node@24" in line]
    of_node = [
        line for line in written if line.startswith(f"PATH={folder}/bench/.work/node/node_modules/.bin:")
    ]
    assert bool(installed) == bool(of_node) == (target != "pyright")


@pytest.mark.parametrize(
    ("name", "found", "good"),
    [
        ("llama.cpp tools:chat:whole", "ok, without cache", True),
        ("llama.cpp tools:chat:whole", "ended failed: no", False),
        (FAULTY, servers.KNOWN[FAULTY][0], True),
        (FAULTY, "ended failed: for another reason", False),
        (FAULTY, "ok", False),
        (FAULTY, "ok, without cache", False),
    ],
)
def test_a_fault_of_a_server_is_known_or_fails_and_so_is_one_that_is_gone(name, found, good):
    assert servers.is_good(servers.settle(name, found)) is good


@pytest.mark.parametrize(
    ("failure", "partial_text", "closed", "repaired"),
    [
        (Failure(kind="cut", message="the server closed the connection"), "", True, False),
        (Failure(kind="cut", message="the server closed the connection"), "It is", False, False),
        (Failure(kind="overloaded", message="busy"), "", False, False),
        (Failure(kind="invalid", message="no", refused_parameter="cache"), "", False, True),
    ],
)
def test_a_failure_is_trouble_unless_a_kept_connection_was_closed_or_a_parameter_refused(
    failure, partial_text, closed, repaired
):
    failed = ModelFailed(failure=failure, partial_text=partial_text)
    assert (servers.is_closed(failed), servers.is_repaired(failed)) == (closed, repaired)
    assert servers.describe(failed) == f"ModelFailed: {failure.message}"


@pytest.mark.parametrize("after", ["", " (Press CTRL+C to quit)", "init: model loaded"])
def test_an_address_ends_where_the_log_goes_on(after):
    assert (
        re.search(servers.ADDRESS, f"listening http://127.0.0.1:40415{after}")[1] == "http://127.0.0.1:40415"
    )
