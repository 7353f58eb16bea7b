"""`init`, `doctor` and `models` from outside: what they write, print and return."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys

import pytest

import bridle as bridle_package
from bridle.sandbox import find_sandbox
from bridle.values.errors import MisuseError
from tests.suite.command import bridle

SECRET = "sk-ant-api03-" + "aB3" * 12


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in [*os.environ]:
        if name.startswith(("BRIDLE_", "AWS_")) or name.endswith(("_API_KEY", "_TOKEN", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "work" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_the_project_that_init_writes_works(folder):
    code, out, err = bridle("init", "shop")
    assert (code, err) == (0, "")
    assert out.startswith("written to shop:\n") and "to try it:\n  cd shop\n" in out
    shop = folder / "shop"
    code, out, err = bridle("run", "Use find_order: where is order 4411?", cwd=shop)
    assert code == 0 and "shipped on Monday" in out, err
    assert (shop / "log.db").exists()
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=shop,
        capture_output=True,
        text=True,
    )
    assert tests.returncode == 0 and "3 passed" in tests.stdout, tests.stdout
    assert bridle("doctor", cwd=shop)[0] == 0


def test_init_overwrites_nothing_and_extends_the_ignore_file(folder):
    (folder / "tools.py").write_text("mine = 1\n")
    (folder / ".gitignore").write_text("log.db*\nown")
    code, _, err = bridle("init")
    assert code == 2 and "tools.py" in err and "nothing was written" in err
    assert {path.name for path in folder.iterdir()} == {".git", ".gitignore", "tools.py"}
    (folder / "tools.py").unlink()
    code, out, _ = bridle("init", "--json")
    assert code == 0 and json.loads(out)["ignored"] == ["__pycache__/", ".pytest_cache/"]
    assert (folder / ".gitignore").read_text() == "log.db*\nown\n__pycache__/\n.pytest_cache/\n"
    code, _, err = bridle("init", ".gitignore")
    assert code == 2 and err.count("\n") == 1


def states(*words, **variables):
    code, out, err = bridle("doctor", "--json", *words, **variables)
    assert out, err
    return code, {row["name"]: row for row in json.loads(out)}


def test_a_fresh_machine_has_warnings_and_no_failure():
    code, found = states()
    assert code == 0
    assert (found["python"]["state"], found["packages"]["state"], found["store"]["state"]) == ("ok",) * 3
    assert (found["model"]["state"], found["keys"]["state"]) == ("warn", "warn")
    assert "ANTHROPIC_API_KEY" in found["keys"]["remedy"]


def test_every_extra_of_the_package_is_listed_with_what_to_type(tmp_path):
    installed = states()[1]["extras"]
    assert (installed["state"], installed["remedy"]) == ("ok", "")
    assert [part.split(" (")[0] for part in installed["detail"].split("; ")] == [
        "cli",
        "http2",
        "jwt",
        "mcp",
        "otel",
        "postgres",
        "serve",
        "temporal",
    ]
    described = tmp_path / "other" / f"bridle-{bridle_package.__version__}.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(
        f"Metadata-Version: 2.3\nName: bridle\nVersion: {bridle_package.__version__}\n"
        "Provides-Extra: cli\nProvides-Extra: dev\nProvides-Extra: far\nProvides-Extra: near\n"
        "Requires-Dist: msgspec>=0.19\nRequires-Dist: prompt-toolkit>=3; extra == 'cli'\n"
        "Requires-Dist: no-such-thing[x]>=1; extra == 'far'\nRequires-Dist: nor-this; extra == \"near\"\n"
        "Requires-Dist: not-for-users; extra == 'dev'\n"
    )
    code, found = states(PYTHONPATH=str(described.parent))
    assert code == 0 and found["packages"]["detail"].split()[0] == "msgspec"
    assert found["extras"]["detail"].startswith("cli (prompt-toolkit 3")
    assert found["extras"]["detail"].endswith("; not installed: far, near")
    assert found["extras"]["remedy"] == "pip install 'bridle[far,near]'"


def test_the_sandbox_in_use_is_named(folder):
    try:
        named = find_sandbox(folder).name
    except MisuseError:
        named = "refused"
    assert named in states()[1]["sandbox"]["detail"]
    home = states(HOME=str(folder))[1]["sandbox"]
    assert home["state"] == "warn" and "choose a project folder" in home["remedy"]


def test_keys_are_named_and_never_shown():
    for words in (("doctor",), ("doctor", "--json"), ("config",), ("models", "--json")):
        _, out, err = bridle(*words, ANTHROPIC_API_KEY=SECRET, GROQ_API_KEY="gsk_" + "q9" * 20)
        assert SECRET not in out + err and "q9q9" not in out + err
    _, found = states(ANTHROPIC_API_KEY=SECRET)
    assert found["keys"]["detail"] == "ANTHROPIC_API_KEY"
    assert found["model"]["detail"].startswith("anthropic:")


def test_what_is_wrong_fails_with_a_remedy(folder):
    code, found = states(BRIDLE_MODEL="openai:gpt-6.1-sol")
    assert (code, found["model"]["state"]) == (1, "fail") and "OPENAI_API_KEY" in found["model"]["remedy"]
    (folder / "bad.db").write_text("not a database" * 100)
    code, found = states("--store", "bad.db")
    assert (code, found["store"]["state"]) == (1, "fail")
    (folder / "agent.toml").write_text('modle = "x"\n')
    (folder / "bridle.toml").write_text('agent = "agent.toml"\npolicy = "nowhere.toml"\n')
    code, found = states()
    assert code == 1
    assert "agent.toml, line 1" in found["agent"]["detail"]
    assert found["policy"]["state"] == "fail"
    assert found["policy"]["remedy"] == "correct nowhere.toml, or the setting policy (bridle.toml:2)"


def test_endpoints_are_reached_only_on_request():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        given = {"ANTHROPIC_API_KEY": SECRET, "ANTHROPIC_BASE_URL": url}
        assert not [name for name in states(**given)[1] if name.startswith("reach")]
        code, found = states("--reach", **given)
        assert (code, found["reach anthropic"]["state"]) == (0, "ok")
    code, found = states("--reach", **given)
    assert (code, found["reach anthropic"]["state"]) == (1, "fail")


def models(*words, **variables):
    code, out, err = bridle("models", "--json", *words, **variables)
    assert code == 0, err
    return json.loads(out)


def test_models_are_searched_filtered_and_sorted(folder):
    every = models()
    assert len({row["model"] for row in every}) == len(every) > 50
    assert len(models("--all")) > len(every)
    found = models("claude", "sonnet")
    assert found and all("claude-sonnet" in row["model"] for row in found)
    assert all(row["vendor"] == "openrouter" for row in models("--vendor", "openrouter"))
    seeing = models("--with", "images", "--with", "audio")
    assert seeing and all({"images", "audio"} <= {*row["abilities"]} for row in seeing)
    priced = [float(row["usd_per_million"]["output"]) for row in models("claude", "--sort", "price")]
    assert priced == sorted(priced)
    assert all(float(row["usd_per_million"]["input"]) <= 1 for row in models("--max-input", "1"))
    assert bridle("models", "no-such-model-anywhere")[:2] == (
        0,
        "no model matches; `bridle models` lists all\n",
    )
    code, _, err = bridle("models", "--vendor", "antropic")
    assert code == 2 and "did you mean 'anthropic'?" in err
    (folder / "own.toml").write_text(
        '[endpoints.mine]\nfamily = "openai_chat"\nbase_url = "http://127.0.0.1:9"\nmodels = ["mine"]\n'
        "[models.mine.ids.mine-1]\ncontext_tokens = 9000\n"
    )
    (folder / "bridle.toml").write_text('models = "own.toml"\n')
    (row,) = models("mine-1")
    assert (row["context_tokens"], row["usd_per_million"]) == (9000, None)


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize(
    "words", [("doctor",), ("models",), ("models", "--all"), ("init", "shop"), ("config",)]
)
def test_screens_fit_the_terminal(words, columns):
    code, out, _ = bridle(*words, COLUMNS=columns)
    assert code == 0
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "\x1b" not in out


def test_no_color_is_respected_on_a_terminal():
    """`script` gives the command a terminal."""
    if not shutil.which("script"):
        pytest.skip("the program `script` is not here")
    command = f"{shlex.quote(sys.executable)} -m bridle.cli.main doctor"
    for variables, coloured in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        done = subprocess.run(
            ["script", "-qec", command, "/dev/null"],
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
        )
        assert ("\x1b[32m" in done.stdout) is coloured
