"""Research over files: answers cite the files word for word, and notes of a user outlive the session."""

import asyncio
import json

import pytest

from bridle.testing import scripted
from tests.examples.programs import run_program
from tests.suite.paths import load_program

reading = load_program("examples/research/passages.py")
research = load_program("examples/research/research.py")
RESEARCH = "research/research.py"


def test_an_answer_cites_the_line_of_a_file(tmp_path):
    shown = run_program(tmp_path, RESEARCH, "When does the ferry leave on Sundays?")
    assert 'ferry.md:3  "On Sundays there is one ferry, at 10:00."' in shown
    assert "On Sundays there is one ferry" in (research.LIBRARY / "ferry.md").read_text().splitlines()[2]
    assert "The files do not say." in run_program(tmp_path, RESEARCH, "Zebra?")


def test_a_user_is_remembered_in_the_next_session_and_by_no_other_user(tmp_path):
    run_program(tmp_path, RESEARCH, "Remember that I travel with a bicycle.", "--user", "ada")
    question = "What does the ferry cost for me?"
    assert "note t1" in run_program(tmp_path, RESEARCH, question, "--user", "ada")
    assert "note" not in run_program(tmp_path, RESEARCH, question, "--user", "bob")
    noted = run_program(tmp_path, "bridle", "memory", "list", "--tenant", "ada", "--store", "research.db")
    assert "I travel with a bicycle." in noted


@pytest.mark.parametrize(
    "wrong", [{"quote": "One ferry leaves at 9:00."}, {"line": 5}, {"file": "../ferry.md"}]
)
def test_an_invented_citation_is_sent_back(wrong):
    right = {"file": "ferry.md", "line": 3, "quote": "On Sundays there is one ferry, at 10:00."}
    replies = [{"text": "At ten.", "citations": [each], "notes": []} for each in ({**right, **wrong}, right)]
    model = scripted(*map(json.dumps, replies))
    result = asyncio.run(research.make_agent(model).run("When is the ferry on Sundays?"))
    assert result.output.citations[0].line == 3 and result.output.citations[0].file == "ferry.md"
    assert "quote it exactly" in model.script.requests[1].messages[-1].text


def test_passages_are_paragraphs_and_rare_words_count_more(tmp_path):
    (tmp_path / "a.md").write_text("one\ntwo\n\nthe ferry, the ferry\n")
    (tmp_path / "b.txt").write_text("the anchor\n")
    (tmp_path / "c.bin").write_text("the anchor\n")
    (tmp_path / "d.md").symlink_to("/etc/hostname")
    passages = reading.read_passages(tmp_path)
    assert [(each.source, each.text) for each in passages] == [
        ("a.md:1", "one\ntwo"), ("a.md:4", "the ferry, the ferry"), ("b.txt:1", "the anchor"),
    ]  # fmt: skip
    search = reading.PassageSearch(passages)
    assert [each.source for each in search.find("the anchors")] == ["b.txt:1", "a.md:4"]
    assert search.find("zebra") == []


def test_misuse_is_one_line(tmp_path):
    run_program(tmp_path, RESEARCH, "x", "--folder", "none", code=2)
    assert "--user" in run_program(tmp_path, RESEARCH, "--help")
