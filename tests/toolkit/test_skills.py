"""Skills: a catalogue that never moves, texts read when needed, files that cannot lead out, changes that are told."""

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import Agent, MisuseError, load_agent, toolkit
from bridle.cli.main import main
from bridle.events import PrefixMoved
from bridle.ports.run_context import RunContext
from bridle.sandbox.local import MECHANISMS, find_problem
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.toolkit.skill_tool import (
    CHANGED,
    DESCRIPTION_CHARACTERS_MAX,
    FILES_MAX,
    SKILL_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    parse_skill_text,
)
from bridle.toolkit.workspace import FILE_BYTES_MAX

CONTEXT = RunContext(context=None)
has_sandbox = any(find_problem(mechanism) == "" for mechanism in MECHANISMS)


def write_skill(folder, name, description="Does things.", body="Do it well.", **files):
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n")
    for file, text in files.items():
        (place / file.replace("__", ".")).write_text(text)
    return place


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "skills"
    write_skill(made, "zebra", "Draws zebras.", "Stripes first.")
    write_skill(made, "invoices", "Writes invoices.", "Use rates.csv.", rates__csv="a,1")
    return made


def read(tool, **arguments):
    return asyncio.run(tool.run(arguments, CONTEXT))[0].text


def test_the_catalogue_is_the_same_text_for_the_same_files(folder, tmp_path):
    spec = toolkit.skills(folder).spec
    assert spec.name == "read_skill" and spec.effect == "read" and spec.always_visible
    assert spec.description.splitlines()[1:3] == ["- invoices: Writes invoices.", "- zebra: Draws zebras."]
    other = tmp_path / "copy" / "skills"
    write_skill(other, "invoices", "Writes invoices.", "Use rates.csv.", rates__csv="a,1")
    more = tmp_path / "more"
    write_skill(more, "zebra", "Draws zebras.", "Stripes first.")
    assert toolkit.skills(more, other).spec == spec
    assert "Stripes" not in spec.description


def test_a_skill_is_read_with_its_files(folder):
    tool = toolkit.skills(folder)
    assert read(tool, name="invoices") == "Use rates.csv.\n\n[Files of this skill: rates.csv]"
    assert read(tool, name="invoices", file="rates.csv") == "a,1"
    assert read(tool, name="zebra") == "Stripes first."
    with pytest.raises(ValueError, match="no skill 'invoice'; did you mean 'invoices'"):
        read(tool, name="invoice")
    with pytest.raises(ValueError, match="choose one of: invoices, zebra"):
        read(tool, name="\x1b[2J")


@pytest.mark.parametrize(
    "path", ["../zebra/SKILL.md", "/etc/passwd", "link", "folder/../../zebra/SKILL.md", "deep/link", "pipe", "a\0b", "..", ""]
)  # fmt: skip
def test_files_outside_of_the_skill_are_refused(folder, path):
    place = folder / "invoices"
    (place / "link").symlink_to("/etc/passwd")
    (place / "deep").mkdir()
    (place / "deep" / "link").symlink_to("../../zebra/SKILL.md")
    os.mkfifo(place / "pipe")
    with pytest.raises(ValueError, match=r"outside|named pipe|NUL|does not exist|is a folder"):
        read(toolkit.skills(folder), name="invoices", file=path)


def test_a_link_inside_of_the_skill_works(folder):
    (folder / "invoices" / "link").symlink_to("rates.csv")
    assert read(toolkit.skills(folder), name="invoices", file="link") == "a,1"


WRONG = {
    "no front matter": ("Just text.", ":1: a skill starts with a line ---"),
    "no end": ("---\nname: bad\ndescription: x\n", ":1: the front matter has no end"),
    "no name": ("---\ndescription: x\n---\ntext", ":1: the front matter has no name"),
    "no description": ("---\nname: bad\n---\ntext", ":1: the front matter has no description"),
    "empty description": ("---\nname: bad\ndescription:\n---\ntext", ":3: the front matter has no description"),
    "misspelt": ("---\nname: bad\ndescripton: x\n---\ntext", ":1: the front matter has no description"),
    "upper case": ("---\nname: Bad\ndescription: x\n---\ntext", ":2: the name 'Bad' is not valid"),
    "path as name": ("---\nname: ../bad\ndescription: x\n---\ntext", ":2: the name '../bad' is not valid"),
    "other name": ("---\nname: good\ndescription: x\n---\ntext", "named 'good', its folder 'bad'"),
    "long name": (f"---\nname: {'b' * 65}\ndescription: x\n---\ntext", ":2: name has 65 characters; at most 64"),
    "long description": (f"---\nname: bad\ndescription: {'x' * 1025}\n---\nt", ":3: description has 1,025 characters"),
    "given twice": ("---\nname: bad\nname: bad\ndescription: x\n---\ntext", ":3: name is given twice"),
    "not a key": ("---\nname: bad\nhello\ndescription: x\n---\ntext", ":3: write a line of the front matter as key: text"),
    "no text": ("---\nname: bad\ndescription: x\n---\n \n", ":4: there is no text after the front matter"),
    "endless": (f"---\nname: bad\ndescription: x\n---\n{'x' * (TEXT_CHARACTERS_MAX + 1)}", ":4: the text has 200,001 characters"),
    "escape": ("---\nname: bad\ndescription: a\x1b[2Jb\n---\ntext", ":3: description has characters that people cannot see"),
    "bidi": ("---\nname: bad\ndescription: a\u202eb\n---\ntext", ":3: description has characters that people cannot see"),
    "zero width": ("---\nname: bad\ndescription: a\u200bb\n---\ntext", ":3: description has characters that people cannot see"),
    "tags": ("---\nname: bad\ndescription: a\U000e0041b\n---\ntext", ":3: description has characters that people cannot see"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=WRONG)
def test_wrong_files_are_refused_with_their_line(tmp_path, text, why):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "SKILL.md").write_text(text)
    with pytest.raises(MisuseError) as refused:
        toolkit.skills(tmp_path)
    assert f"{tmp_path}/bad/SKILL.md" in str(refused.value) and why in str(refused.value)
    assert str(refused.value).isprintable()


def test_wrong_folders_are_refused(tmp_path, folder):
    with pytest.raises(MisuseError, match=r"^the folder of skills .* is not a folder"):
        toolkit.skills(tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MisuseError, match="has no skills; write one"):
        toolkit.skills(tmp_path / "empty")
    with pytest.raises(MisuseError, match="name a folder of skills"):
        toolkit.skills()
    with pytest.raises(MisuseError, match="is a skill itself"):
        toolkit.skills(folder / "zebra")
    other = tmp_path / "other"
    write_skill(other, "zebra")
    with pytest.raises(MisuseError, match="skills of the same name"):
        toolkit.skills(folder, other)
    (other / "linked").symlink_to(folder / "invoices")
    with pytest.raises(MisuseError, match="linked is not a folder; copy the skill"):
        toolkit.skills(other)
    (other / "linked").unlink()
    (other / "text").mkdir()
    with pytest.raises(MisuseError, match="has no SKILL"):
        toolkit.skills(other)
    (other / "text" / "SKILL.md").write_bytes(b"\xff\xfe")
    with pytest.raises(MisuseError, match="not UTF-8"):
        toolkit.skills(other)
    (other / "text").rename(other / "_draft")
    (other / "README.md").write_text("no skill")
    toolkit.skills(other)


def test_sizes_are_bounded(tmp_path):
    place = write_skill(tmp_path, "many")
    for number in range(FILES_MAX):
        (place / f"f{number}").touch()
    with pytest.raises(MisuseError, match="at most 2,000 files"):
        toolkit.skills(tmp_path)
    wide = tmp_path / "wide"
    for number in range(45):
        write_skill(wide, f"s{number}", "x" * DESCRIPTION_CHARACTERS_MAX)
    with pytest.raises(MisuseError, match="which every prompt would hold"):
        toolkit.skills(wide)
    heavy = tmp_path / "heavy"
    place = write_skill(heavy, "data")
    for number in range(SKILL_BYTES_MAX // FILE_BYTES_MAX + 1):
        with (place / f"f{number}").open("wb") as file:
            file.truncate(FILE_BYTES_MAX)
    with pytest.raises(MisuseError, match="20,971,520 bytes"):
        toolkit.skills(heavy)


def test_front_matter_as_people_write_it():
    text = (
        "\ufeff---\r\nname: 'form-filler'\r\ndescription: >-\r\n  Fills in forms:\r\n  all of them.\r\n# a comment\r\n"
        'license: "MIT"\r\nallowed-tools:\r\n- Bash\r\nmetadata:\r\n  name: other\r\n---\r\nText\r\n---\r\nmore\r\n'
    )
    assert parse_skill_text(text, "S") == ("form-filler", "Fills in forms: all of them.", "Text\n---\nmore")
    for value, meant in (
        ('"a: \\"b\\" # c"', 'a: "b" # c'),
        ("'it''s'", "it's"),
        ("a: b # c", "a: b"),
        ("|\n  x\n  y", "x y"),
    ):
        assert parse_skill_text(f"---\nname: a\ndescription: {value}\n---\nt", "S").description == meant


@given(st.text(alphabet=st.sampled_from("-: \n\r\t'\"|>#abname\\\u202e\x1b{}[]"), max_size=200))
def test_any_text_is_read_or_refused_in_one_line(text):
    try:
        parsed = parse_skill_text(f"---\nname: a\ndescription: b\n{text}", "S")
    except MisuseError as error:
        assert str(error).startswith("S:") and str(error).isprintable()
    else:
        assert parsed.body


def test_a_change_while_the_agent_exists_is_told_in_the_result(folder):
    tool = toolkit.skills(folder)
    (folder / "invoices" / "rates.csv").write_text("a,2")
    assert read(tool, name="invoices", file="rates.csv") == f"{CHANGED}\n\na,2"
    assert read(tool, name="invoices").startswith(CHANGED)
    assert read(tool, name="zebra") == "Stripes first."
    write_skill(folder, "zebra", body="\x1b[2J")
    assert read(tool, name="zebra").startswith(CHANGED)
    (folder / "zebra" / "SKILL.md").write_text("nothing")
    with pytest.raises(ValueError, match=r"SKILL\.md:1: a skill starts"):
        read(tool, name="zebra")


def run_twice(folder, store, change, **options):
    """Two runs of one session, each by an agent of its own; the events of the session."""

    async def converse():
        model = scripted(call_reply(("read_skill", {"name": "zebra"})), "one", "two")
        first = Agent(model, tools=[toolkit.skills(folder)], store=str(store))
        await first.run("draw", "s")
        change()
        second = Agent(model, tools=[toolkit.skills(folder)], store=str(store), **options)
        result = await second.run("again", "s")
        events = [record.event for record in await second.store.read("s")]
        for agent in (first, second):
            await agent.store.close()
        return result, events

    return asyncio.run(converse())


def test_loading_a_skill_never_moves_the_prefix(folder, tmp_path):
    result, events = run_twice(folder, tmp_path / "log.db", lambda: None)
    assert result.text == "two" and not any(isinstance(event, PrefixMoved) for event in events)


@pytest.mark.parametrize("file", ["zebra/SKILL.md", "invoices/rates.csv"])
def test_a_session_is_told_that_a_skill_changed_since_it_began(folder, tmp_path, file):
    def change():
        path = folder / file
        path.write_text(path.read_text() + "More.\n")

    result, events = run_twice(folder, tmp_path / "log.db", change)
    (moved,) = (event for event in events if isinstance(event, PrefixMoved))
    assert result.text == "two" and moved.layer == "tools" and "read_skill" in moved.block
    store = tmp_path / "strict.db"
    result, _ = run_twice(folder, store, change, prefix="strict")
    assert result.stop == "failed" and "read_skill" in result.reason


@pytest.mark.parametrize("inside", [".git", "node_modules", "lib/node_modules"])
def test_a_change_inside_a_folder_that_search_leaves_out_is_told_too(folder, tmp_path, inside):
    path = folder / "zebra" / inside / "run.js"
    path.parent.mkdir(parents=True)
    path.write_text("one")
    _, events = run_twice(folder, tmp_path / "log.db", lambda: path.write_text("two"))
    (moved,) = (event for event in events if isinstance(event, PrefixMoved))
    assert moved.layer == "tools" and "read_skill" in moved.block


@pytest.mark.skipif(not has_sandbox, reason="no sandbox works here")
def test_commands_can_read_skills_and_no_tool_can_write_them(tmp_path):
    inside = tmp_path / "work" / "skills"
    write_skill(inside, "zebra", run__sh="echo striped")
    outside = tmp_path / "other"
    write_skill(outside, "horse", run__sh="echo plain")
    by_name = {tool.spec.name: tool for tool in toolkit.tools(tmp_path / "work", skills=[inside, outside])}
    shown = read(by_name["read_skill"], name="horse")
    assert shown.endswith(f"[Commands find them in {outside}/horse, read-only.]")
    run = by_name["shell"]
    assert read(run, command=f"sh {outside}/horse/run.sh; sh skills/zebra/run.sh") == "plain\nstriped\n"
    for attempt in (
        "echo x >> skills/zebra/SKILL.md", f"echo x >> {outside}/horse/SKILL.md", "rm skills/zebra/SKILL.md", "mv skills other",
        "mkdir skills/new", "ln -sf /etc/passwd skills/zebra/SKILL.md", f"rm -r {outside}/horse",
    ):  # fmt: skip
        assert read(run, command=attempt).startswith("[exit code 1]"), attempt
    for path in ("skills/zebra/SKILL.md", "skills/new/SKILL.md", "./skills/../skills/x"):
        with pytest.raises(ValueError, match="read-only: it belongs to a skill"):
            read(by_name["write_file"], path=path, content="x")
    assert Path(inside / "zebra" / "SKILL.md").read_text().endswith("Do it well.\n")


def test_agent_files_and_the_command_line_name_skills(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.toml").write_text('model = "sim:"\nskills = ["skills"]\n')
    assert "read_skill" in load_agent("a.toml").tools
    (tmp_path / "b.toml").write_text('model = "sim:"\n\nskills = ["absent"]\n')
    with pytest.raises(MisuseError, match=r"b\.toml, line 3.*is not a folder"):
        load_agent("b.toml")
    store = str(tmp_path / "log.db")
    assert main(["run", "--no-config", "--store", store, "--skills", "skills", "-m", "sim:", "hello"]) == 0
    (tmp_path / "bridle.toml").write_text('skills = ["skills"]\n')
    assert main(["run", "--store", store, "-m", "sim:", "hello"]) == 0
    assert main(["config", "skills", "--json"]) == 0
    assert str(folder) in capsys.readouterr().out
    (folder / "zebra" / "SKILL.md").write_text("bad")
    assert main(["run", "--store", store, "-m", "sim:", "hello"]) == 2
    assert "zebra/SKILL.md:1: a skill starts with" in capsys.readouterr().err
