"""The codecs' tables of request fields are those of the vendors' published types."""

from importlib import import_module

import pytest

from tests.wire.vendors.make_request_fields import PROVIDERS, SOURCES, list_fields, render

SIMULATED = {
    "anthropic": "bridle.sim.anthropic.rules",
    "bedrock": "bridle.sim.bedrock.rules_fields",
    "gemini": "bridle.sim.gemini.rules",
    "openai_chat": "bridle.sim.openai_chat.rules",
    "openai_responses": "bridle.sim.openai_responses.rules",
}
HEADERS = {"betas", "user_profile_id", "workspace_id"}
"""Parameters of Anthropic's package that it sends as headers; the server refuses them in a body."""


@pytest.mark.parametrize("folder", SOURCES)
def test_the_table_of_fields_follows_from_the_published_types(folder):
    assert (PROVIDERS / folder / "request_fields.toml").read_text() == render(folder)


@pytest.mark.parametrize("folder", SIMULATED)
def test_the_simulator_accepts_every_field_of_the_published_types(folder):
    assert set(list_fields(folder)) <= set(import_module(SIMULATED[folder]).BODY_FIELDS)


def test_headers_are_no_fields():
    assert HEADERS.isdisjoint(list_fields("anthropic"))
    assert HEADERS.isdisjoint(import_module(SIMULATED["anthropic"]).BODY_FIELDS)
