"""Containers of a real daemon.  BRIDLE_DOCKER_IMAGE names an image with sh, coreutils and python3; without it, skipped.

tar -C ROOTFS -c . | docker import - bridle-test:1
BRIDLE_DOCKER_IMAGE=bridle-test:1 python -m pytest tests/sandbox
"""

import asyncio
import os
import subprocess

import pytest

from bridle import toolkit
from bridle.ports.run_context import RunContext
from bridle.ports.sandbox import SandboxLimits
from bridle.sandbox import DockerSandbox
from bridle.tools import run_process

IMAGE = os.environ.get("BRIDLE_DOCKER_IMAGE", "")
pytestmark = pytest.mark.skipif(not IMAGE, reason="BRIDLE_DOCKER_IMAGE names no image")


@pytest.fixture
def box(tmp_path):
    return DockerSandbox(IMAGE, tmp_path, limits=SandboxLimits(memory_bytes=100_000_000, processes=40))


def run(box, *argv, **options):
    return asyncio.run(run_process(argv, sandbox=box, **options))


def list_containers():
    words = ["docker", "ps", "--all", "--quiet", "--filter", "name=bridle-"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def wait_until_none_are_left():
    """The daemon tells when a container is gone; a guard removes it without being waited for."""
    for _ in range(100):
        left = list_containers()
        if not left:
            return
        subprocess.run(["docker", "wait", *left], capture_output=True, check=False)
    raise AssertionError(f"containers are left: {left}")


def test_a_command_works_in_its_workspace(box, tmp_path):
    script = "echo out; echo err >&2; cat; pwd; echo $HOME $GIVEN; touch made; exit 3"
    ended = run(box, "sh", "-c", script, stdin="in\n", env={"GIVEN": "1"})
    assert (ended.exit_code, ended.stdout, ended.stderr) == (3, f"out\nin\n{tmp_path}\n/tmp 1\n", "err\n")
    assert (tmp_path / "made").exists() and list_containers() == []
    tools = toolkit.shell(tmp_path, sandbox=box), toolkit.python(tmp_path, sandbox=box)
    context = RunContext(context=None)
    assert asyncio.run(tools[0].run({"command": "echo $((1 + 1))"}, context))[0].text == "2\n"
    assert asyncio.run(tools[1].run({"code": "print(1 + 2)"}, context))[0].text == "3\n"


def test_limits_hold(box):
    program = "x = bytearray(2 * 10**8); x[::4096] = b'x' * len(x[::4096])"
    assert run(box, "python3", "-c", program).exit_code == 137
    assert run(box, "sh", "-c", "touch /usr/x || touch /etc/x || touch /x").exit_code == 1
    network = "import socket; socket.create_connection(('1.1.1.1', 80), 3)"
    assert "unreachable" in run(box, "python3", "-c", network).stderr
    found = run(box, "cat", "/proc/self/status").stdout
    assert "CapEff:\t0000000000000000" in found and "NoNewPrivs:\t1" in found


def test_a_container_ends_with_its_deadline(box):
    late = run(box, "sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done", timeout=3, grace=3)
    assert late.timed_out and late.stdout == "started\n"
    assert list_containers() == []


def test_a_container_ends_if_the_harness_is_killed(box, tmp_path):
    made = box.wrap(
        ["sh", "-c", "echo started; sleep 300"], cwd=None, environment={"PATH": os.environ["PATH"]}
    )
    with subprocess.Popen(
        made.argv, env=dict(made.environment), stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout.readline() == "started\n"
        launcher.kill()
    wait_until_none_are_left()


def test_an_image_that_does_not_exist_runs_nothing(tmp_path):
    ended = run(DockerSandbox("bridle-absent:0", tmp_path), "true", timeout=60)
    assert ended.exit_code == 125 and "bridle-absent" in ended.stderr
