"""`bridle check prompts`: every rule on code that breaks it and on code that does not, and agents loaded again elsewhere."""

import json
import re
from pathlib import Path

import pytest

from bridle.cli.linting.module_index import ModuleIndex
from bridle.cli.linting.rules import LINT_RULES, LINT_RULES_BY_NAME
from bridle.cli.linting.static_findings import read_findings
from bridle.cli.main import main
from tests.cli.lint_samples import CLEAN, HEAD, OFFENDING


def lint_code(tmp_path, code, head=HEAD):
    path = tmp_path / "app.py"
    path.write_text(f"{head}\n{code}\n")
    compile(path.read_text(), str(path), "exec")
    return read_findings(path, ModuleIndex())


READ = [rule.name for rule in LINT_RULES if int(rule.id[1:]) < 11]


def test_every_rule_has_an_example_of_both_kinds():
    assert set(READ) == set(OFFENDING) == set(CLEAN)


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule in OFFENDING for code in OFFENDING[rule]])
def test_what_is_volatile_is_found(tmp_path, rule, code):
    findings = lint_code(tmp_path, code).findings
    assert {finding.rule for finding in findings} == {rule}, code
    text = (tmp_path / "app.py").read_text().splitlines()
    for finding in findings:
        assert finding.line > HEAD.count("\n"), "the line is that of the volatile thing itself"
        assert text[finding.line - 1][finding.column - 1 :].strip()
        assert finding.reaches
        assert finding.id == LINT_RULES_BY_NAME[rule].id


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule in CLEAN for code in CLEAN[rule]])
def test_what_is_steady_is_left_in_peace(tmp_path, rule, code):
    assert lint_code(tmp_path, code).findings == (), (rule, code)


def test_the_way_is_told(tmp_path):
    code = 'def today():\n    return date.today()\nHELLO = f"It is {today()}"\nagent = Agent("sim:", instructions=HELLO)'
    (finding,) = lint_code(tmp_path, code).findings
    assert finding.through == ("today()", "HELLO")
    assert finding.what == "date.today()"
    assert (tmp_path / "app.py").read_text().splitlines()[finding.reaches_line - 1].startswith("agent =")


@pytest.mark.parametrize("beside", ["prompts.py", "prompts/__init__.py"])
@pytest.mark.parametrize(
    "code",
    ["from prompts import SYSTEM as words", "import prompts\nwords = prompts.SYSTEM", "from prompts import made\nwords = made()"],
)  # fmt: skip
def test_modules_beside_are_followed(tmp_path, beside, code):
    place = tmp_path / beside
    place.parent.mkdir(exist_ok=True)
    place.write_text("import time\nSYSTEM = f'At {time.time()}'\ndef made():\n    return SYSTEM\n")
    (finding,) = lint_code(tmp_path, f'{code}\nagent = Agent("sim:", instructions=words)').findings
    assert finding.rule == "clock"
    assert finding.file.endswith(beside)
    assert finding.line == 2


def test_relative_imports_are_followed(tmp_path):
    package = tmp_path / "app"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text("import uuid\nID = uuid.uuid4()\n")
    path = package / "bot.py"
    (
        path.write_text(
            'from bridle import Agent\nfrom .words import ID\nfrom . import words\nbot = Agent("sim:", instructions=f"{ID}")\n'
        ),
    )
    (finding,) = read_findings(path, ModuleIndex()).findings
    assert (finding.rule, finding.line) == ("random", 2)


ALLOWED = [
    ('DAY = date.today()  # bridle: stable\nagent = Agent("sim:", instructions=f"{DAY}")', 0),
    (
        'DAY = date.today()\nagent = Agent("sim:", instructions=f"{DAY}")  # it is written daily; bridle: stable',
        0,
    ),
    ('DAY = date.today()  # bridle: stable[clock]\nagent = Agent("sim:", instructions=f"{DAY}")', 0),
    ('DAY = date.today()  # bridle: stable[L1, random]\nagent = Agent("sim:", instructions=f"{DAY}")', 0),
    ('DAY = date.today()  # bridle: stable[random]\nagent = Agent("sim:", instructions=f"{DAY}")', 1),
    ('DAY = date.today()\nHELLO = f"{DAY}"  # bridle: stable\nagent = Agent("sim:", instructions=HELLO)', 0),
    ('DAY = "# bridle: stable" and date.today()\nagent = Agent("sim:", instructions=f"{DAY}")', 1),
]


@pytest.mark.parametrize(("code", "count"), ALLOWED)
def test_a_comment_allows_it(tmp_path, code, count):
    outcome = lint_code(tmp_path, code)
    assert len(outcome.findings) == count
    assert ("other-day" in outcome.allowed) is (count == 0)


def test_programs_that_go_round_in_circles_are_read_to_the_end(tmp_path):
    code = (
        'def a(n):\n    return b(n) + f"{n}"\ndef b(n):\n    return a(n) if n else str(date.today())\n'
        'X = Y = "x"\nX = X + Y\nwords = a(3) + X\nagent = Agent("sim:", instructions=words)'
    )
    assert [finding.rule for finding in lint_code(tmp_path, code).findings] == ["clock"]
    long = 'agent = Agent("sim:", instructions=' + " + ".join(['"x"'] * 900) + ")"
    assert lint_code(tmp_path, long).findings == ()


MOVING = '''
import os, time, uuid
from datetime import datetime, date
from bridle import Agent, tool

print("noise")

@tool(effect="read")
def look(at: int, when: datetime, day: date) -> str:
    """Look."""
    return ""

exec("random = Agent('sim:', instructions='Run ' + uuid.uuid4().hex)")
exec("seeded = Agent('sim:', instructions=' '.join({'a', 'b', 'c', 'd', 'e', 'f'}))")
exec("dated = Agent('sim:', instructions=f'{datetime.now():%d %B} {date.today():%A} {time.strftime(\\"%Y\\")}', tools=[look])")
exec("placed = Agent('sim:', instructions='You serve ' + os.environ.get('CITY', 'Oslo'))")
exec("zoned = Agent('sim:', instructions='In ' + str(time.tzname))")
steady = Agent("sim:", tools=[look], instructions="Be kind.")
'''


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("zone", ["UTC0", "WEST12", "EAST-14", "<+0545>-5:45", "<-0330>3:30"])
def test_agents_that_begin_otherwise_elsewhere_are_found(zone, tmp_path, monkeypatch, capsys):
    """Hidden from whoever reads: only loading can tell, at any hour of the day."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", zone)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "app.py").write_text(MOVING)
    assert main(["check", "prompts", "app.py", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["notes"] == []
    assert told["loaded"] == 8
    met = {re.search(r" of (\w+),", f["reaches"])[1]: f["rule"] for f in told["findings"]}
    assert met == {
        "random": "each-time", "seeded": "hash-seed", "dated": "other-day", "placed": "elsewhere", "zoned": "elsewhere",
    }  # fmt: skip
    (placed,) = [f for f in told["findings"] if " of placed," in f["reaches"]]
    assert "with another CITY" in placed["reaches"]
    assert placed["what"] == "'You serve Oslo' became 'You serve other'"


def test_what_is_allowed_is_not_found_by_loading_either(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").write_text(
        "import os, time\nfrom bridle import Agent\n"
        "agent = Agent('sim:', instructions=f'{time.time()} {set(\"abc\")} {os.getcwd()}')  # bridle: stable\n"
    )
    assert main(["check", "prompts", "app.py"]) == 0
    out = capsys.readouterr().out
    assert out == "nothing found in 1 file, loaded 2 times\n"


def test_the_screen(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    lint_code(tmp_path, "\n".join(OFFENDING["clock"][:2]))
    (tmp_path / "tools.py").write_text(f"{HEAD}\n{OFFENDING['random'][4]}\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "other.py").write_text("def f(:\n")
    assert main(["check", "prompts", ".", "--no-load"]) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == f"app.py:{HEAD.count(chr(10)) + 2}:45  L1 clock"
    assert "reaches the instructions of an agent" in out
    assert out.count("why: it differs at every start") == 1, "told once a rule"
    assert "3 findings in 2 files" in lines[-1]
    assert max(map(len, lines)) <= 80
    assert main(["check", "prompts", ".", "--no-load", "--ignore", "clock", "--ignore", "L2"]) == 0
    assert capsys.readouterr().out == "nothing found in 2 files\n"


def test_the_rules_can_be_printed(capsys):
    assert main(["check", "prompts", "--rules"]) == 0
    out = capsys.readouterr().out
    assert all(rule.id in out and rule.name in out for rule in LINT_RULES)
    assert main(["check", "prompts", "--rules", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [rule.id for rule in LINT_RULES]
    page = (Path(__file__).parents[2] / "docs" / "lint.md").read_text()
    assert all(f"`{rule.name}`" in page for rule in LINT_RULES)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "give a file or folder"),
        (["nowhere.py"], "no file 'nowhere.py'"),
        (["no_such_module"], "no file or module 'no_such_module'"),
        (["broken.py"], "broken.py, line 1"),
        (["empty"], "no Python files in empty"),
        (["fine.py", "--ignore", "L99"], "unknown rule 'L99'"),
        (["bytes.py"], "bytes.py: invalid"),
    ],
)
def test_wrong_things_are_one_line(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "fine.py").write_text("")
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff\xfe'\n")
    assert main(["check", "prompts", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert len(err.splitlines()) == 1


def test_a_file_that_does_not_load_is_read_all_the_same(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = 'agent = Agent("sim:", instructions=f"{date.today()}")\nraise RuntimeError("no database")'
    lint_code(tmp_path, code)
    assert main(["check", "prompts", "app.py"]) == 1
    out = capsys.readouterr().out
    assert "L1 clock" in out
    assert "cannot be loaded" in out
    assert "no database" in out
    (tmp_path / "plain.py").write_text("x = 1\n")
    assert main(["check", "prompts", "plain"]) == 0
    assert capsys.readouterr().out == "nothing found in 1 file\n"


def test_what_is_too_much_to_follow_is_said(tmp_path):
    """Every function calls all others with something volatile, so that nothing can be looked at once and for all."""
    names = [f"f{n}" for n in range(9)]
    every = " + ".join(f"{name}(x)" for name in names)
    code = "\n".join(f"def {name}(x):\n    return {every}" for name in names)
    outcome = lint_code(
        tmp_path, f'{code}\nagent = Agent("sim:", instructions=f0(time.time()) + str(time.time()))'
    )
    assert [finding.rule for finding in outcome.findings][-1:] == ["clock"]
    (note,) = outcome.notes
    assert "the instructions of an agent: the code is too complex" in note
