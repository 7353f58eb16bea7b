"""`make foreign` fails when a cell of an installed client or server fails, and only then."""

import re
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
        ("no report", False),
        ("called []", False),
        ("refused 400 POST /", False),
    ],
)
def test_a_cell_of_a_client_is_good_or_not(cell, good):
    assert run.is_good(cell) is good
    assert servers.is_good(cell) is good


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
