"""Sandboxes in use: what a command still can do, how it ends, and what is refused before anything runs."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

import bridle
from bridle import Agent, MisuseError
from bridle.ports.run_context import RunContext
from bridle.ports.sandbox import SandboxLimits
from bridle.sandbox import DockerSandbox, find_sandbox
from bridle.sandbox.launcher.kernel import read_landlock_version
from bridle.sandbox.launcher.seccomp import ARCHITECTURES, EXAMINED, REFUSED, make_filter
from bridle.sandbox.local import MECHANISMS, PRIVATE_FOLDER, LocalSandbox, find_problem
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import CommandTool, run_process

CONTEXT = RunContext(context=None)


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture(params=MECHANISMS)
def box(request, workspace):
    if problem := find_problem(request.param):
        pytest.skip(f"{request.param}: {problem}")
    return LocalSandbox(workspace, mechanism=request.param)


def run(box, *argv, **options):
    return asyncio.run(run_process(argv, sandbox=box, **options))


def test_a_command_works_in_its_workspace(box, workspace):
    (workspace / "sub").mkdir()
    script = "echo out; echo err >&2; cat; pwd; echo $HOME; touch made; mkfifo pipe; mv made sub/; exit 3"
    ended = run(box, "sh", "-c", script, stdin="in\n", cwd=workspace)
    assert (ended.exit_code, ended.stdout, ended.stderr) == (3, f"out\nin\n{workspace}\n/tmp\n", "err\n")
    assert (workspace / "sub" / "made").exists()
    assert run(box, "pwd", cwd=workspace / "sub").stdout == f"{workspace}/sub\n"


def test_python_threads_servers_and_programs_work(box):
    script = (
        "import json, socket, subprocess, sys, tempfile, threading\n"
        "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname())\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join()\n"
        "tempfile.NamedTemporaryFile().write(b'x')\n"
        "print(subprocess.run([sys.executable, '-c', 'import msgspec; print(1)'], capture_output=True, text=True).stdout)"
    )
    assert run(box, sys.executable, "-c", script).stdout == "thread\n1\n\n"


def test_variables_are_those_that_are_passed(box, monkeypatch):
    monkeypatch.setenv("SECRET_API_KEY", "k")
    shown = run(box, "env", env={"GIVEN": "1"}).stdout.splitlines()
    assert "GIVEN=1" in shown and "HOME=/tmp" in shown and not any("SECRET" in line for line in shown)
    assert any(line.startswith(f"PATH={Path(sys.executable).parent}:") for line in shown)


def test_a_command_has_no_rights_left(box):
    """Each layer by itself: capabilities, the filter of system calls, and Landlock, which covers /proc too."""
    lines = run(box, "cat", "/proc/self/status").stdout.splitlines()
    found = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert {int(found[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (found["NoNewPrivs"], found["Seccomp"]) == ("1", "2")
    if read_landlock_version():
        assert run(box, "sh", "-c", "echo renamed > /proc/self/comm").exit_code not in (0, None)


def test_the_end_is_that_of_the_command(box):
    assert run(box, "sh", "-c", "kill -9 $$").exit_code == 137
    missing = run(box, "no-such-program")
    assert missing.exit_code == 127 and "no-such-program: No such file" in missing.stderr
    late = run(box, "sh", "-c", "echo started; sleep 300", timeout=2)
    assert late.timed_out and late.stdout in ("started\n", "")
    endless = run(box, "yes", timeout=2, output_bytes_max=10_000)
    assert endless.timed_out and len(endless.stdout) < 11_000


def test_a_limit_is_named_when_it_is_reached(workspace, box):
    small = LocalSandbox(workspace, mechanism=box.name, limits=SandboxLimits(memory_bytes=60_000_000))
    ended = run(small, sys.executable, "-c", "x = bytearray(10**8); x[::4096] = b'x' * len(x[::4096])")
    assert ended.exit_code != 0
    assert "the memory limit was reached" in ended.stderr or "MemoryError" in ended.stderr


def test_folders_outside_are_refused_or_shown_read_only(workspace, box, tmp_path):
    other = tmp_path / "data"
    other.mkdir()
    (other / "d.txt").write_text("data")
    with pytest.raises(MisuseError, match="outside of the workspace"):
        run(box, "pwd", cwd=other)
    assert run(box, "cat", str(other / "d.txt")).exit_code == 1
    more = LocalSandbox(workspace, mechanism=box.name, readable=[other])
    assert run(more, "cat", str(other / "d.txt")).stdout == "data"
    assert run(more, "touch", str(other / "new")).exit_code == 1
    with pytest.raises(MisuseError, match="does not exist"):
        LocalSandbox(workspace, readable=[tmp_path / "absent"])


def test_no_command_runs_if_the_isolation_fails(box, workspace, monkeypatch):
    real = box._list_mounts
    monkeypatch.setattr(box, "_list_mounts", lambda: [*real(), ("read", "/no/such/folder", "/x")])
    ended = run(box, "touch", "made")
    assert ended.exit_code not in (0, None) and not (workspace / "made").exists()


SETTINGS = '[tool.bridle]\ntools = ["evil.py"]\n'


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("echo 'tools = [\"evil.py\"]' > bridle.toml", "bridle.toml"),
        ("echo x > evil.toml; ln -s evil.toml bridle.toml; exit 3", "bridle.toml"),
        (f"echo '{SETTINGS}' > pyproject.toml", "pyproject.toml"),
        ("trap '' TERM; echo x > bridle.toml; while :; do sleep 1; done", "bridle.toml"),
    ],
)
def test_settings_of_bridle_that_a_command_writes_are_moved_aside(box, workspace, command, name):
    ended = run(box, "sh", "-c", command, timeout=5)
    assert not os.path.lexists(workspace / name) and list(workspace.glob(f"{name}.refused-*"))
    assert "commands may not write settings of Bridle" in ended.stderr


def test_settings_of_bridle_in_a_project_file_are_restored(box, workspace):
    project = workspace / "pyproject.toml"
    project.write_text('[project]\nname = "a"\n')
    assert not run(box, "sh", "-c", "echo 'version = \"1\"' >> pyproject.toml").stderr
    assert project.read_text().endswith('version = "1"\n')
    run(box, "sh", "-c", f"echo '{SETTINGS}' >> pyproject.toml")
    assert project.read_text().endswith('version = "1"\n')


@pytest.mark.parametrize("name", ["bridle.toml", "pyproject.toml"])
def test_settings_of_bridle_below_the_top_are_moved_aside(box, workspace, name):
    (workspace / "old" / "below").mkdir(parents=True)
    (workspace / "old" / "pyproject.toml").write_text('[project]\nname = "a"\n')
    write = f"mkdir new; for f in new old old/below; do echo '{SETTINGS}' >> $f/{name}; done"
    ended = run(box, "sh", "-c", write, timeout=20)
    for folder in ("new", "old/below"):
        assert not (workspace / folder / name).exists() and list(
            (workspace / folder).glob(f"{name}.refused-*")
        )
        assert f" {folder}/{name} was renamed to {folder}/{name}.refused-" in ended.stderr
    assert (workspace / "old" / "pyproject.toml").read_text() == '[project]\nname = "a"\n'
    assert not run(box, "sh", "-c", "echo '# more' >> old/pyproject.toml").stderr, "no settings of Bridle"


PLANTED = {
    "a repository": ("git init -q new", "'new/.git' (git)"),
    "a bare repository": ("git init -q --bare fresh && mv fresh deep/hidden", "'deep/hidden' (git)"),
    "a folder renamed to a repository": ("mv data .git", "'.git' (git)"),
    "a link to a repository": ("echo 'gitdir: ../data' > deep/.git", "'deep/.git' (git)"),
    "a hook": ("echo 'rm -rf /' > kept/.git/hooks/post-checkout", "'kept/.git' (git)"),
    "a setting of a repository": (
        "printf '[core]\\nfsmonitor = x\\n' >> kept/.git/config",
        "'kept/.git' (git)",
    ),
    "a task of an editor": (
        "mkdir deep/.vscode && echo {} > deep/.vscode/tasks.json",
        "'deep/.vscode' (Visual Studio",
    ),
    "a changed task": ("echo {} > .vscode/tasks.json", "'.vscode' (Visual Studio Code)"),
    "an environment": ("echo x > deep/.envrc", "'deep/.envrc' (direnv)"),
    "servers of agents": ("echo {} > .mcp.json", "'.mcp.json' (agents)"),
    "a name with a line break": ("mkdir 'a\nb' && echo x > 'a\nb/.envrc'", r"'a\nb/.envrc' (direnv)"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_settings_of_other_programs_that_a_command_writes_are_reported(box, workspace, what):
    for folder in ("data", "deep", ".vscode"):
        (workspace / folder).mkdir()
    (workspace / ".vscode" / "tasks.json").write_text("[]")
    made = run(
        box, "sh", "-c", "git init -q kept && git -C kept config user.name A && mkdir kept/.git/hooks -p"
    )
    assert "'kept/.git' (git)" in made.stderr
    code, told = PLANTED[what]
    ended = run(box, "sh", "-c", code)
    assert (
        ended.ok
        and f"bridle sandbox: new or changed: {told}" in ended.stderr
        and "\n" not in ended.stderr[:-1]
    )
    work = "cd kept && echo x > a && git add a && git -c user.email=a@b commit -qm x; touch ../deep/file; cat ../.vscode/*"
    assert "bridle sandbox" not in run(box, "sh", "-c", work).stderr, "ordinary work is not reported"


def test_many_new_settings_are_one_line(box):
    ended = run(box, "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do mkdir p$i; echo x > p$i/.envrc; done")
    assert ended.stderr.count("\n") == 1 and "and 3 more" in ended.stderr


def test_a_sandbox_without_a_workspace_leaves_nothing(box):
    private = LocalSandbox(None, mechanism=box.name)
    done = run(private, "sh", "-c", "pwd; echo x > kept; ls; touch /x /usr/x && echo written", timeout=20)
    assert done.stdout == f"{PRIVATE_FOLDER}\nkept\n" and done.stderr.count("cannot touch") == 2
    assert run(private, "ls", "-a").stdout.split() == [".", ".."]
    with pytest.raises(MisuseError, match="outside of the workspace"):
        private.wrap(["true"], cwd="/usr", environment={})


def test_commands_without_a_workspace_run_in_an_empty_folder_though_a_shown_one_is_below_tmp(box):
    """As if Python or the checkout were below /tmp; a log there is outside of what the command can write."""
    with tempfile.TemporaryDirectory(dir="/tmp") as shown:
        (Path(shown) / "file").write_text("shown")
        private = LocalSandbox(None, mechanism=box.name, readable=[shown])
        done = run(private, "sh", "-c", f"ls -A; cat {shown}/file; echo x > {shown}/file || echo refused")
        assert done.stdout == "shownrefused\n"
        command = CommandTool("look", "Look.", ["ls"], sandbox=private)
        Agent(scripted("Done."), tools=[command], store=f"{shown}/log.db")


def test_a_repository_stays_read_only_where_it_is_moved(box, workspace):
    (workspace / "sub" / ".git").mkdir(parents=True)
    assert run(box, "sh", "-c", "mv sub other && mkdir -p sub/.git").ok
    assert "Read-only" in run(box, "touch", "other/.git/config").stderr
    assert run(box, "sh", "-c", "mkdir -p new/.git && touch new/.git/x").ok
    assert run(box, "touch", "new/.git/config").ok


@pytest.mark.parametrize(("letter", "count"), [("x", 200_000), ("ü", 20_000)])
def test_a_command_that_is_too_long_is_refused_with_what_to_do(box, workspace, letter, count):
    tool = bridle.toolkit.shell(workspace, sandbox=box)
    (part,) = asyncio.run(tool.run({"command": f"echo {letter * 10_000} | wc -m"}, CONTEXT))
    assert "10001" in part.text or "20001" in part.text  # characters, or bytes without a locale
    with pytest.raises(ValueError, match="write a file and run it"):
        asyncio.run(tool.run({"command": f"echo {letter * count}"}, CONTEXT))


def test_a_link_named_as_a_protected_path_shows_nothing(box, workspace, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    assert run(box, "ln", "-s", str(tmp_path / "outside"), ".git").ok
    assert "secret" not in run(box, "cat", ".git/secret.txt").stdout


def test_tools_without_a_sandbox_get_that_of_the_agent(box, workspace, tmp_path):
    tool = CommandTool("where", "Where am I?", ["sh", "-c", "ls -d /root/* /home/*; pwd"], exits=(0, 1, 2))
    agent = Agent(scripted(call_reply(("where", {})), "done"), tools=[tool], sandbox=box)
    assert agent.run_sync("?").messages[2].results[0].text.splitlines()[0] == str(workspace)
    with pytest.raises(MisuseError, match="choose a store outside"):
        Agent("sim:", tools=[tool], sandbox=box, store=str(workspace / "log.db"))
    with pytest.raises(MisuseError, match="choose a store outside"):
        Agent("sim:", tools=bridle.toolkit.files(workspace), store=workspace / "deep" / "log.db")
    Agent("sim:", tools=[tool], store=str(tmp_path / "log.db"), sandbox=box)
    Agent("sim:", tools=[tool], store=str(workspace / "log.db"))


def test_a_policy_can_require_a_sandbox(box, workspace, tmp_path, monkeypatch):
    tool = CommandTool("where", "Where am I?", ["pwd"])
    policy = tmp_path / "policy.toml"
    policy.write_text('sandbox = "required"\n')
    with pytest.raises(MisuseError, match="tool `where`: the policy requires a sandbox"):
        Agent("sim:", tools=[tool], policy=policy)
    with pytest.raises(MisuseError, match="the policy requires a sandbox"):
        Agent("sim:", policy=policy).run_sync("?", tools=[tool])
    with pytest.raises(MisuseError, match="the policy requires a sandbox"):
        Agent("sim:", tools=[bridle.toolkit.shell(workspace, sandbox=None)], policy=policy)
    Agent("sim:", tools=[tool], policy=policy, sandbox=box)
    Agent("sim:", tools=bridle.toolkit.tools(workspace, sandbox=box), policy=policy)
    policy.write_text('sandbox = "always"\n')
    with pytest.raises(MisuseError, match="not a valid policy"):
        Agent("sim:", policy=policy)


def test_an_agent_file_runs_its_commands_in_a_sandbox(box, workspace, tmp_path):
    entry = '[[commands]]\nname = "where"\ndescription = "Where?"\nargv = ["pwd"]\n'
    (workspace / "agent.toml").write_text(
        f'model = "sim:"\nsandbox = true\n[policy]\nsandbox = "required"\n{entry}'
    )
    assert bridle.load_agent(workspace / "agent.toml").tools["where"].workspace == workspace  # type: ignore[attr-defined]
    (workspace / "agent.toml").write_text(f'model = "sim:"\n[policy]\nsandbox = "required"\n{entry}')
    with pytest.raises(MisuseError, match="sandbox = true in the agent file"):
        bridle.load_agent(workspace / "agent.toml")
    (workspace / "agent.toml").write_text(f'model = "sim:"\nsandbox = "absent"\n{entry}')
    with pytest.raises(MisuseError, match=r"agent\.toml, line 2.*is not a folder"):
        bridle.load_agent(workspace / "agent.toml")


def test_tools_of_one_run_get_the_sandbox_of_the_agent(box, workspace, tmp_path):
    tool = CommandTool("where", "Where am I?", ["sh", "-c", "ls -d /root/* /home/*; pwd"], exits=(0, 1, 2))
    agent = Agent(scripted(call_reply(("where", {})), "done"), sandbox=box)
    assert agent.run_sync("?", tools=[tool]).messages[2].results[0].text.splitlines()[0] == str(workspace)
    beside = Agent("sim:", store=str(tmp_path / "log.db"))
    with pytest.raises(MisuseError, match="choose a store outside"):
        beside.run_sync("?", tools=bridle.toolkit.files(tmp_path))


def test_without_a_mechanism_nothing_is_made_and_the_way_out_is_named(workspace, monkeypatch):
    problems = {"bubblewrap": "bwrap is not installed", "namespaces": "the kernel has no Landlock"}
    monkeypatch.setattr("bridle.sandbox.local._problems", problems)
    with pytest.raises(
        MisuseError, match=r"bwrap is not installed.*apt-get install bubblewrap.*--no-sandbox"
    ):
        find_sandbox(workspace)
    with pytest.raises(MisuseError, match="no sandbox works here"):
        bridle.toolkit.shell(workspace)
    bridle.toolkit.shell(workspace, sandbox=None)
    monkeypatch.setattr("bridle.sandbox.local._problems", {**problems, "namespaces": ""})
    assert find_sandbox(workspace).name == "namespaces"


def test_a_workspace_with_the_home_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for make in (LocalSandbox, lambda folder: DockerSandbox("python:3", folder)):
        with pytest.raises(MisuseError, match="home folder"):
            make(tmp_path)


def test_the_words_for_docker(workspace):
    (workspace / ".git").mkdir()
    made = DockerSandbox("python:3.13", workspace).wrap(
        ["sh", "-c", "--", "id"], cwd=None, environment={"GIVEN": "secret", "PATH": "/bin"}
    )
    words = json.loads(made.argv[-1])["words"]
    assert words[:3] == ["docker", "run", "--rm"] and words[-6:] == [
        "--",
        "python:3.13",
        "sh",
        "-c",
        "--",
        "id",
    ]
    for word in (
        "--network=none", "--read-only", "--cap-drop=ALL", "--pids-limit=256", "--env=GIVEN", f"--workdir={workspace}",
        f"--mount=type=bind,source={workspace}/.git,target={workspace}/.git,readonly",
    ):  # fmt: skip
        assert word in words
    assert not any("secret" in word for word in made.argv)
    with pytest.raises(MisuseError, match="not the name of an image"):
        DockerSandbox("--privileged", workspace)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_jump_of_the_filter_stays_in_it(machine):
    program = make_filter(machine)
    steps = [program[at : at + 8] for at in range(0, len(program), 8)]
    for at, step in enumerate(steps):
        if step[0] in (0x15, 0x35, 0x45):
            assert at + 1 + max(step[2], step[3]) < len(steps)
    assert steps[-1][0] == 0x06
    assert {*REFUSED[machine]} | {"ioperm", "iopl"} == {*REFUSED["x86_64"]} and {*EXAMINED[machine]} == {
        "clone", "ioctl", "socket",
    }  # fmt: skip


def test_nothing_is_left_of_killed_launchers(box):
    late = run(box, "sleep", "300", timeout=1)
    assert late.timed_out
    if os.getuid() == 0:
        run(box, "true")
        left = [*Path("/sys/fs/cgroup").glob("**/bridle-*")]
        assert all(Path("/proc", folder.name.removeprefix("bridle-")).exists() for folder in left)
