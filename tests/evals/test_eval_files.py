"""Suites are read completely, and wrong files are refused with the file, the line and the remedy."""

import pytest

from bridle.cli.main import main
from bridle.evals import load_suite
from bridle.values.errors import MisuseError
from tests.evals.suites import write_suite, write_task


def refuse(folder, match, **files):
    with pytest.raises(MisuseError, match=match) as raised:
        load_suite(write_suite(folder, **files))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (write_task("contain = 'x'"), r"eval_a.toml, line 10: unknown key 'contain' in \[expect\]; did you mean 'contains'"),
        (write_task("matches = '('"), r"eval_a.toml, line 10: matches: '\(' is not a regular expression"),
        (write_task("steps_max = 'few'"), r"eval_a.toml, line 10: expect.steps_max: expected `int"),
        (write_task("cache_share_min = 7"), r"cache_share_min must be from 0 to 1, not 7"),
        (write_task("check = 'checks.py:f'"), r"eval_a.toml, line 9: a: no file '.*checks.py'"),
        (write_task("schema = 'none.json'"), r"eval_a.toml, line 9: a: schema: .*No such file"),
        (write_task("[expect.schema]\ntype = 'nothing'"), r"a: schema: "),
        (write_task(head="trials = 0"), r"eval_a.toml, line 3: trials must be from 1 to 10,000, not 0"),
        (write_task(head="pass_rate = 2"), r"pass_rate must be from 0 to 1"),
        (write_task(head="faults = ['eror-529']"), r"eval_a.toml, line 3: unknown fault 'eror-529'"),
        (write_task(replies="['!cal x']"), r"eval_a.toml, line 2: .*step 1 of the script"),
        (write_task(head="responder = 'model.py:answer'"), r"give replies or responder, not both"),
        (write_task(head="world = 'world.py:make'"), r"eval_a.toml, line 3: a: no file '.*world.py'"),
        (write_task(head="world = 'tools.py:SEEN'"), r"line 3: a: tools.py:SEEN is not a function but list"),
        (write_task(head="fixtures = 'nowhere'"), r"line 3: a: there is no folder 'nowhere'"),
        (write_task(head="files = {'../x' = ''}"), r"line 3: a: '../x' must be a path inside of the work folder"),
        (write_task(head="tools = ['none.py']"), r"line 3: a: no file '.*none.py'"),
        (write_task(head="approvals = 'perhaps'"), r"line 3: approvals: "),
        (write_task(head="tool_faults = {find_order = {}}"), r"tool_faults: give says or error, or seconds"),
        (write_task(agent="agent = 'none.toml'\n"), r"cannot read .*none.toml"),
        (write_task(agent="[agent]\nmodle = 'sim:'\n"), r"eval_a.toml, line 6: unknown key 'modle' in \[agent\]|unknown key 'modle'"),
        ("trials = 2", r"eval_a.toml: a task needs a prompt"),
        ("prompt = ' '", r"eval_a.toml, line 1: a task needs a prompt|eval_a.toml: a task needs a prompt"),
        ("tasks = [1]", r"eval_a.toml, line 1: each of the tasks must be a table, not 1"),
        (write_task(head="files = {'.' = ''}"), r"line 3: a: '.' must be a path inside of the work folder"),
        (write_task("judge = {rubric = 'Be kind.'}"), r"eval_a.toml, line 9: a: the judge has no model"),
        (write_task("judge = {model = 'sim:'}"), r"eval_a.toml, line 9: a: the judge has no criteria"),
        ("prompt = ", r"eval_a.toml, end of document: Invalid value"),
        ("prompt = 'x'\n[[tasks]]\nprompt = 'y'", r"a file has one task, or \[\[tasks\]\] and nothing else"),
    ],
)  # fmt: skip
def test_wrong_task_files_are_refused(tmp_path, text, match):
    refuse(tmp_path, match, eval_a=text)


def test_wrong_suites_are_refused(tmp_path):
    refuse(tmp_path / "a", "has no tasks; add a file eval_NAME.toml")
    refuse(
        tmp_path / "b",
        "this name is taken by a task of",
        eval_a=write_task(head="name = 'x'"),
        eval_b=write_task(head="name = 'x'"),
    )
    refuse(tmp_path / "c", r"suite.toml, line 1: unknown key 'jbos'; did you mean 'jobs'", suite="jbos = 3")
    for text, problem in (
        ("jobs = 0", "suite.toml, line 1: jobs must be 1 or more, not 0"),
        ("usd = -1", "suite.toml, line 1: usd must be a number above 0, not -1"),
        ("[matrix]\nmodel = ['a', 'a']", "suite.toml, line 1: matrix: model needs one or more values"),
        ("[defaults]\nexpect = 'x'", "suite.toml, line 2: defaults.expect must be a table"),
    ):
        refuse(tmp_path / "c", problem, suite=text, eval_a=write_task("contains = 'x'"))
    refuse(tmp_path / "d", "needs a list of tasks: TASKS", eval_x_py="TASKS = 3")
    refuse(tmp_path / "e", "eval_x.py, line 1: ", eval_x_py="1 / 0")
    with pytest.raises(MisuseError, match="bridle eval new"):
        load_suite(tmp_path / "nowhere")


def test_tasks_come_from_all_files_and_take_the_defaults(tmp_path):
    folder = write_suite(
        tmp_path / "shop",
        suite='[defaults]\ntrials = 4\ntags = ["d"]\n[defaults.agent]\nmodel = "sim:"\n[defaults.expect]\nsteps_max = 5\n'
        '[[tasks]]\nname = "in-suite"\nprompt = "a"\n',
        eval_one='prompt = "b"\ntrials = 2\n[expect]\ncontains = "x"\n',
        eval_many='[[tasks]]\nprompt = "c"\n[[tasks]]\nname = "named"\nprompt = ["d", "e"]\n',
        eval_code_py='from bridle.evals import Expect, Task\nTASKS = [Task(prompt="f", trials=3, expect=Expect(equals="x"))]\n',
    )
    suite = load_suite(folder)
    found = {each.name: each.task for each in suite.tasks}
    assert suite.name == "shop"
    assert list(found) == ["in-suite", "code-1", "many-1", "named", "one"]
    assert [found[name].trials for name in found] == [4, 3, 4, 4, 2]
    assert found["one"].expect.steps_max == 5
    assert found["one"].expect.contains == "x"
    assert found["named"].prompts == ("d", "e")
    assert found["code-1"].tags == ("d",)
    assert (found["code-1"].expect.equals, found["code-1"].expect.steps_max) == ("x", 5)


def test_one_file_is_a_suite(tmp_path):
    write_suite(tmp_path, eval_a=write_task(), eval_b=write_task())
    assert [each.name for each in load_suite(tmp_path / "eval_b.toml").tasks] == ["b"]


def test_digest_follows_the_files(tmp_path):
    folder = write_suite(tmp_path / "s", eval_a=write_task())
    before = load_suite(folder).digest([{}])
    assert load_suite(folder).digest([{}]) == before
    assert load_suite(folder).digest([{"model": "x"}]) != before
    (folder / "tools.py").write_text((folder / "tools.py").read_text() + "\n# changed\n")
    assert load_suite(folder).digest([{}]) != before


def test_digest_follows_files_that_a_task_names_elsewhere(tmp_path):
    (tmp_path / "world" / "deep").mkdir(parents=True)
    named = ["more.py", "world.py", "checks.py", "schema.json", "world/deep/data.bin"]
    code = "from bridle import tool\n\n\n@tool(effect='read')\ndef look() -> str:\n    \"Look.\"\n    return ''\n"
    for name in named:
        (tmp_path / name).write_text("{}" if name.endswith("json") else code)
    head = "tools = ['../more.py']\nworld = '../world.py:look'\nfixtures = '../world'"
    expect = "check = '../checks.py:look'\nschema = '../schema.json'"
    folder = write_suite(tmp_path / "s", eval_a=write_task(expect, head=head))
    for name in named:
        before = load_suite(folder).digest([{}])
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\n")
        assert load_suite(folder).digest([{}]) != before, name


def test_errors_are_one_line_on_the_command_line(tmp_path, capsys):
    write_suite(tmp_path / "s", eval_a=write_task("contain = 'x'"))
    assert main(["eval", str(tmp_path / "s"), "--store", ":memory:"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_starter_suite_runs_and_is_not_overwritten(tmp_path, capsys):
    assert main(["eval", "new", str(tmp_path / "s")]) == 0
    assert main(["eval", str(tmp_path / "s"), "--store", ":memory:"]) == 0
    assert "3/3 100%" in capsys.readouterr().out
    assert main(["eval", "new", str(tmp_path / "s")]) == 2
    assert "exists" in capsys.readouterr().err
