"""The default tool index: its results, and their deterministic order."""

import asyncio

import pytest

from bridle.tools.search.lexical_index import LexicalIndex
from bridle.tools.search.word_stems import list_stems, list_synonyms
from bridle.values.request import ToolSpec
from bridle.values.settings import TOOLS_FOUND_DEFAULT
from tests.core.calls.catalogue_tools import QUESTIONS, five_hundred

SPECS = tuple(tool.spec for tool in five_hundred())
INDEX = LexicalIndex()


def find(query: str, tools: tuple[ToolSpec, ...] = SPECS, limit: int = TOOLS_FOUND_DEFAULT) -> list[str]:
    return list(asyncio.run(INDEX.find(query, tools, limit)))


def test_of_fifty_questions_nearly_all_find_their_tool_among_five_hundred():
    assert len({spec.name for spec in SPECS}) == 500
    assert len({question for question, _ in QUESTIONS}) == 50
    missed = [(question, needed) for question, needed in QUESTIONS if needed not in find(question)]
    assert len(missed) <= 0.05 * len(QUESTIONS), missed
    first = [needed for question, needed in QUESTIONS if needed not in find(question, limit=16)]
    assert first == []


def test_every_tool_is_found_by_the_words_of_its_name():
    missed = [spec.name for spec in SPECS if spec.name not in find(spec.name.replace("_", " "))]
    assert missed == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("getPullRequests", "mcp__forge__get_pull_request"),
        ("get repo", "mcp__forge__get_repository"),
        ("delete spredsheet", "delete_spreadsheet"),
        ("erase an invoice", "billing__delete_invoice"),
    ],
)
def test_other_spellings_and_other_words_are_understood(query, found):
    assert found in find(query)[:3]


def test_what_has_nothing_to_do_with_any_tool_finds_none():
    assert find("zzyzx") == []
    assert find("") == []
    assert find("the of and") == []
    assert find("anything", ()) == []


def test_only_as_many_as_were_asked_for():
    assert len(find("invoice", limit=3)) == 3
    assert find("invoice", limit=0) == []


def test_a_word_in_the_name_counts_for_more_than_one_in_a_parameter():
    about = '{"type":"object","properties":{"branch":{"type":"string","description":"A branch"}}}'
    tools = (ToolSpec(name="merge", parameters=about), ToolSpec(name="branch", description="Something"))
    assert find("branch", tools) == ["branch", "merge"]


def test_words_deep_in_a_schema_are_found_and_a_broken_schema_does_no_harm():
    deep = '{"properties":{"a":{"items":{"properties":{"tungsten":{"type":"string"}}}}}}'
    tools = (ToolSpec(name="one", parameters=deep), ToolSpec(name="two", parameters="{"))
    assert find("tungsten", tools) == ["one"]
    assert find("two", tools) == ["two"]


def test_of_two_equals_the_first_given_comes_first():
    tools = tuple(ToolSpec(name=f"copy{letter}", description="Same.") for letter in "cab")
    assert find("same", tools) == ["copyc", "copya", "copyb"]


def test_another_list_of_tools_is_another_index():
    assert find("invoice", (ToolSpec(name="invoice"),)) == ["invoice"]
    assert "billing__get_invoice" in find("get invoice")


def test_words_and_their_forms():
    assert (
        list_stems("getPullRequests")
        == list_stems("get_pull_request")
        == list_stems("Get the pull requests!")
    )
    assert list_stems("HTTPServer v2") == ["http", "server", "v", "2"]
    assert list_stems("companies") == list_stems("company")
    assert list_stems("scheduling") == list_stems("schedule") == list_stems("scheduled")
    assert "delet" in list_synonyms("remov")
    assert list_synonyms("tungsten") == ()
