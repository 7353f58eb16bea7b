"""Prompt templates: declared variables, and their version in the log."""

import asyncio

import pytest

from bridle import Agent, MisuseError, PromptTemplate
from bridle.events import Prompted
from bridle.stores.memory import MemoryStore
from bridle.testing import scripted

GREETING = PromptTemplate(
    "greeting", "You help {who} of {company}. Answer {{as JSON}}.", variables=("who", "company")
)


def test_values_are_inserted_as_they_are():
    filled = GREETING.fill(who="{company}", company=3)
    assert filled == "You help {company} of 3. Answer {as JSON}."
    assert filled.template == GREETING.version


@pytest.mark.parametrize(
    ("text", "variables", "message"),
    [
        ("Hello {name}", (), "its text uses 'name', which is not declared"),
        ("Hello", ("name",), "its text does not use the variable 'name'"),
        ("Hello {name.secret}", ("name",), "'name.secret' is not a plain variable name"),
        ("Hello {name[0]}", ("name",), "is not a plain variable name"),
        ("Hello {name!r}", ("name",), "is not a plain variable name"),
        ("Hello {name:>9}", ("name",), "is not a plain variable name"),
        ("Hello {}", (), "'' is not a plain variable name"),
        ("Hello {", (), "double a literal brace"),
        ("Hello }", (), "double a literal brace"),
        ("", (), "must be a text"),
        ("Hello {name}", "name", "variables must be a list of names"),
    ],
)
def test_a_text_that_does_not_match_its_variables_is_refused(text, variables, message):
    with pytest.raises(MisuseError, match=message):
        PromptTemplate("t", text, variables=variables)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"who": "x"}, "template 'greeting' needs a value for 'company'"),
        ({"who": "x", "company": "y", "extra": 1}, "has no variable 'extra'; it has: who, company"),
        ({"who": "x", "company": ["y"]}, "company must be a text or a number, not list"),
    ],
)
def test_wrong_values_are_refused(values, message):
    with pytest.raises(MisuseError, match=message):
        GREETING.fill(**values)


def test_the_version_follows_the_text_and_the_variables():
    same = PromptTemplate("greeting", GREETING.text, variables=GREETING.variables)
    other = PromptTemplate("greeting", GREETING.text + ".", variables=GREETING.variables)
    assert same.version == GREETING.version
    assert other.version != GREETING.version


def test_the_version_is_recorded_with_instructions_and_prompts():
    store = MemoryStore()
    agent = Agent(scripted("ok"), instructions=GREETING.fill(who="a", company="b"), store=store)
    question = PromptTemplate("question", "What is {n}?", variables=["n"])
    agent.run_sync(question.fill(n=4), "s")
    configured, prompted, *_ = [record.event for record in asyncio.run(store.read("s"))]
    assert configured.settings.templates == (GREETING.version,)
    assert isinstance(prompted, Prompted)
    assert (prompted.templates, prompted.parts[0].text) == ((question.version,), "What is 4?")


def test_a_template_from_a_file(tmp_path):
    path = tmp_path / "greeting.txt"
    path.write_text("Hello {name}")
    template = PromptTemplate.from_path(path, variables=["name"])
    assert (template.name, template.fill(name="x")) == ("greeting", "Hello x")
    with pytest.raises(MisuseError, match="cannot read the template"):
        PromptTemplate.from_path(tmp_path / "absent.txt")
