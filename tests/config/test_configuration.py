"""Settings from files, the environment and options: which wins, what is refused, and where a value comes from."""

import json
import os
from pathlib import Path

import pytest

from bridle.config.configuration import find_settings_folders, load_configuration
from bridle.config.settings import SETTINGS
from bridle.config.toml_file import find_key_lines
from bridle.values.errors import MisuseError
from tests.suite.command import bridle

FAKE_KEYS = {
    "sk-ant-api03-" + "aB3" * 12: "ANTHROPIC_API_KEY",
    "sk-proj-" + "aB3" * 12: "OPENAI_API_KEY",
    "AIza" + "Sy3" * 12: "GOOGLE_API_KEY",
    "gsk_" + "aB3" * 12: "GROQ_API_KEY",
    "sk-or-v1-" + "aB3" * 12: "OPENROUTER_API_KEY",
}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A repository with a folder inside it, in which commands run."""
    for name in [*os.environ]:
        if name.startswith("BRIDLE_") or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    (root / ".git").mkdir(parents=True)
    (root / "inside").mkdir()
    monkeypatch.chdir(root / "inside")
    return root


def settings_of(*words, **variables):
    code, out, err = bridle("config", "--json", *words, **variables)
    assert code == 0, err
    return {row["name"]: row for row in json.loads(out)["settings"]}


def test_later_sources_win_and_each_value_names_its_source(project):
    (project / "bridle.toml").write_text('model = "sim:"\n\n[budget]\nusd = 1\nsteps = 3\n')
    (project / "pyproject.toml").write_text(
        '[project]\nname = "x"\n\n[tool.bridle]\nmodel = "sim:openai/gpt-6.1-sol"\n[tool.bridle.budget]\nsteps = 4\n'
    )
    shown = settings_of(BRIDLE_BUDGET_STEPS="5")
    assert (shown["budget.usd"]["value"], shown["budget.usd"]["where"]) == (1, "../bridle.toml:4")
    assert (shown["model"]["value"], shown["model"]["where"]) == (
        "sim:openai/gpt-6.1-sol",
        "../pyproject.toml:5",
    )
    assert shown["model"]["overridden"] == ["../bridle.toml:1"]
    assert (shown["budget.steps"]["value"], shown["budget.steps"]["where"]) == (5, "$BRIDLE_BUDGET_STEPS")
    assert shown["budget.steps"]["overridden"] == ["../bridle.toml:5", "../pyproject.toml:7"]
    assert shown["memory"]["source"] == "default"


def test_an_option_wins_over_everything(project):
    (project / "bridle.toml").write_text('model = "sim:openai/gpt-6.1-sol"\nstore = "own.db"\n')
    code, out, _ = bridle(
        "run", "!say hi", "--json", "-m", "sim:anthropic/claude-sonnet-5-5",
        BRIDLE_MODEL="sim:gemini/gemini-3.5-flash",
    )  # fmt: skip
    assert (code, json.loads(out)["model"]) == (0, "sim:claude-sonnet-5-5")
    assert (project / "own.db").exists()
    assert json.loads(bridle("run", "!say hi", "--json")[1])["model"] == "sim:gpt-6.1-sol"


def test_settings_apply_to_a_run_and_a_session_keeps_its_model(project):
    (project / "tools.py").write_text(
        'from bridle import tool\n\n\n@tool(effect="read")\ndef double(n: int) -> int:\n    """Double."""\n    return n * 2\n'
    )
    (project / "bridle.toml").write_text(
        'model = "sim:openai/gpt-6.1-sol"\ntools = ["tools.py"]\nstore = "log.db"\n[budget]\nsteps = 1\n'
    )
    code, out, _ = bridle("run", '!call double {"n": 4}', "--json")
    result = json.loads(out)
    assert (code, result["stop"], result["steps"]) == (1, "steps", 1)
    code, out, err = bridle("run", '!call double {"n": 4}', "--steps", "5")
    assert code == 0 and "double" in err and "settings from ../bridle.toml" in err
    (project / "bridle.toml").write_text('model = "sim:"\ntools = ["tools.py"]\nstore = "log.db"\n')
    code, out, _ = bridle("run", "!say more", "--json", "--session", result["session"])
    assert (code, json.loads(out)["model"]) == (0, "sim:gpt-6.1-sol")


def test_a_resumed_run_keeps_its_limits(project):
    (project / "tools.py").write_text(
        'from bridle import tool\n\n\n@tool(effect="read")\ndef double(n: int) -> int:\n    """Double."""\n    return n * 2\n'
    )
    (project / "bridle.toml").write_text(
        'model = "sim:"\ntools = ["tools.py"]\nstore = "log.db"\n[budget]\nsteps = 1\n'
    )
    session = json.loads(bridle("run", '!call double {"n": 4}', "--json")[1])["session"]
    code, out, err = bridle("resume", session, "--json", "--steps", "9")
    assert (code, json.loads(out)["stop"]) == (0, "done"), err


def test_model_tables_of_a_settings_file_hold_for_the_command_only(project):
    from bridle.cli.main import main

    (project / "own.toml").write_text(
        '[endpoints.mine]\nfamily = "openai_chat"\nbase_url = "http://127.0.0.1:9"\nmodels = ["mine"]\n'
        "[models.mine.ids.mine-1]\ncontext_tokens = 9000\n"
    )
    (project / "bridle.toml").write_text('models = "own.toml"\nmodel = "mine:mine-1"\nstore = "log.db"\n')
    _, _, err = bridle("run", "hi", "--seconds", "0")
    assert "names no known vendor" not in err
    assert "names no known vendor" in bridle("run", "hi", "-m", "mine:mine-1", "--no-config")[2]
    main(["config"])
    assert "BRIDLE_MODELS" not in os.environ


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('\nmodle = "x"\n', 2, "unknown key 'modle'; did you mean 'model'?"),
        ("model = 3\n", 1, "model must be a text, not 3; write for example: model ="),
        ('[budget]\n# a comment\nusd = "much"\n', 3, "budget.usd must be a number, 0 or more, not 'much'"),
        ("[budget]\nusd = -1\n", 2, "0 or more"),
        ("[budget]\nsteps = 1.5\n", 2, "budget.steps must be a whole number"),
        ("[budget]\nwrap_up = 2\n", 2, "above 0 and up to 1"),
        ("[budget]\nust = 1\n", 2, "unknown key 'ust' in [budget]; did you mean 'usd'?"),
        ("budget = 1\n", 1, "budget must be a table"),
        ("tools = 'a.py'\n", 1, 'tools must be a list of files and modules, not \'a.py\'; write for example: tools = ["tools.py"]'),
        ("tools = [\n 'a.py',\n 3,\n]\n", 1, "tools must be a list"),
        ("memory = 'yes'\n", 1, "memory must be true or false, not 'yes'"),
        ('model = "a\n', 1, "Illegal character"),
        ("model = 'a'\nmodel = 'b'\n", 2, "Cannot overwrite"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_file_the_line_and_the_remedy(project, text, line, words):
    (project / "bridle.toml").write_text(text)
    code, _, err = bridle("config")
    assert code == 2
    assert err.startswith(f"bridle: ../bridle.toml, line {line}") and words in err
    assert err.count("\n") == 1


def test_a_mistake_in_pyproject_names_its_line(project):
    (project / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.bridle]\n\nstor = "x"\n')
    code, _, err = bridle("sessions")
    assert (code, err) == (
        2,
        "bridle: ../pyproject.toml, line 6: unknown key 'stor'; did you mean 'store'?\n",
    )


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("BRIDLE_STREAM", "maybe", "$BRIDLE_STREAM: stream must be true or false, not 'maybe'"),
        ("BRIDLE_BUDGET_USD", "much", "$BRIDLE_BUDGET_USD: budget.usd must be a number"),
        ("BRIDLE_BUDGET_STEPS", "-4", "0 or more, not -4"),
        ("BRIDLE_CONFIG", "nowhere.toml", "cannot read nowhere.toml: No such file"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(variable, value, words):
    code, _, err = bridle("config", **{variable: value})
    assert (code, words in err) == (2, True), err


@pytest.mark.parametrize("key", FAKE_KEYS)
def test_a_credential_in_a_file_is_refused_and_not_repeated(project, key):
    for text in (f'model = "{key}"\n', f'instructions = "Use {key} for the API."\n'):
        (project / "bridle.toml").write_text(text)
        code, out, err = bridle("config")
        assert code == 2 and "line 1" in err and f"environment variable {FAKE_KEYS[key]}" in err
        assert key not in out + err


@pytest.mark.parametrize("name", ["api_key", "ANTHROPIC_API_KEY", "token", "password", "client_secret"])
def test_the_name_of_a_credential_is_refused(project, name):
    (project / "bridle.toml").write_text(f'{name} = "hunter2"\n')
    code, out, err = bridle("config")
    assert code == 2 and repr(name) in err and "environment" in err
    assert "hunter2" not in out + err


@pytest.mark.parametrize(
    "url", ["postgresql://me:hunter2@db/logs", "postgres:///logs?host=db&password=hunter2"]
)
def test_a_password_of_a_database_is_refused_and_a_url_without_one_is_not(project, url):
    (project / "bridle.toml").write_text(f'store = "{url}"\n')
    code, out, err = bridle("config")
    assert code == 2 and "is a URL with a password" in err and "BRIDLE_STORE" in err
    assert "hunter2" not in out + err
    (project / "bridle.toml").write_text('store = "postgresql://me@db:5432/logs?schema=a"\n')
    assert "postgresql://db:5432/logs" in bridle("config").out


def test_ordinary_words_are_not_taken_for_keys(project):
    (project / "bridle.toml").write_text(
        'instructions = "Reply sk-... if the task-force-2026-planning-x1 asks; AIzawa; see order 20261116-6mdevyak."\n'
    )
    assert bridle("config")[0] == 0


def test_no_config_and_config_choose_the_file(project):
    (project / "bridle.toml").write_text('model = "sim:"\n')
    (project / "inside" / "other.toml").write_text('model = "sim:openai/gpt-6.1-sol"\n')
    assert settings_of()["model"]["value"] == "sim:"
    assert settings_of("--no-config")["model"]["value"] is None
    assert settings_of("--config", "other.toml")["model"]["where"] == "other.toml:1"
    assert settings_of(BRIDLE_CONFIG="other.toml")["model"]["where"] == "other.toml:1"
    code, _, err = bridle("config", "--config", "../pyproject.toml")
    assert code == 2 and "pyproject.toml" in err


def test_only_the_nearest_folder_counts(project):
    (project / "bridle.toml").write_text('model = "sim:"\n[budget]\nusd = 1\n')
    (project / "inside" / "bridle.toml").write_text('store = "x.db"\n')
    shown = settings_of()
    assert shown["model"]["value"] is None
    assert shown["store"]["value"] == str(project / "inside" / "x.db")


def test_the_search_ends_at_the_repository_or_home_and_is_local_elsewhere(project, tmp_path):
    home = tmp_path / "home"
    deep = home / "a" / "b"
    deep.mkdir(parents=True)
    outside = tmp_path / "elsewhere" / "c"
    outside.mkdir(parents=True)
    assert [*find_settings_folders(project / "inside", home)] == [project / "inside", project]
    assert [*find_settings_folders(deep, home)] == [deep, home / "a", home]
    assert [*find_settings_folders(outside, home)] == [outside]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused_unless_named(project):
    file = project / "bridle.toml"
    file.write_text('model = "sim:"\n')
    os.chown(file, 12345, 12345)
    code, _, err = bridle("config")
    assert code == 2 and "belongs to another user" in err and "--config" in err
    assert settings_of("--config", str(file))["model"]["value"] == "sim:"
    assert settings_of("--no-config")["model"]["value"] is None


def test_paths_of_a_file_start_at_its_folder(project):
    (project / "bridle.toml").write_text(
        'policy = "rules/p.toml"\ntools = ["t.py", "shop.orders", "x/t.py:refund"]\nagent = "~/a.toml"\n'
    )
    shown = settings_of()
    assert shown["policy"]["value"] == str(project / "rules" / "p.toml")
    assert shown["tools"]["value"] == [
        str(project / "t.py"),
        "shop.orders",
        str(project / "x" / "t.py:refund"),
    ]
    assert shown["agent"]["value"] == str(Path("~/a.toml").expanduser())


def test_the_screen_is_aligned_and_wrapped(project):
    (project / "bridle.toml").write_text(f'model = "sim:"\ninstructions = "{"word " * 60}"\n')
    for columns in ("80", "120"):
        code, out, _ = bridle("config", COLUMNS=columns)
        assert code == 0
        assert max(map(len, out.splitlines())) <= int(columns)
        assert "\x1b" not in out


def test_one_setting_and_an_unknown_one(project):
    (project / "bridle.toml").write_text('model = "sim:"\n')
    assert bridle("config", "model")[1].split() == ["model", "sim:", "../bridle.toml:1"]
    code, _, err = bridle("config", "modl")
    assert code == 2 and "did you mean 'model'?" in err


def test_lines_of_keys_in_every_form_of_toml():
    text = (
        'a = """\n[x]\nb = 1\n"""\nc.d = 2\n[[list]]\nname = 1\n[[list]]\nname = 2\n[list.inner]\nq = [\n 1,\n 2]\n'
        '[table."odd key"]\r\nz = { y = 1 }\n'
    )
    lines = find_key_lines(text)
    assert lines[("a",)] == 1 and ("x",) not in lines
    assert lines[("c", "d")] == 5
    assert (lines[("list", 0, "name")], lines[("list", 1, "name")]) == (7, 9)
    assert lines[("list", 1, "inner", "q")] == 11
    assert lines[("table", "odd key", "z", "y")] == 15


def test_every_setting_has_a_meaning_and_one_name_everywhere():
    assert len({each.name for each in SETTINGS}) == len(SETTINGS)
    for each in SETTINGS:
        assert each.meaning and each.default
        assert not each.variable or each.variable == f"BRIDLE_{each.name.upper().replace('.', '_')}"


def test_files_that_are_no_settings(project, tmp_path):
    for content, words in ((b"\xff\xfe", "not UTF-8"), (b"#" * 1_000_001, "larger than")):
        (project / "bridle.toml").write_bytes(content)
        with pytest.raises(MisuseError, match=words):
            load_configuration({})
    (project / "bridle.toml").write_bytes(b'\xef\xbb\xbfmodel = "sim:"\r\n')
    assert load_configuration({}).get("model") == "sim:"
