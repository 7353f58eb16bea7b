"""The simulator knows every field that the vendors' published types have, so that it refuses no request of today's clients."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from bridle import providers

RULES = {
    "anthropic": "anthropic.rules",
    "bedrock": "bedrock.rules_fields",
    "gemini": "gemini.rules",
    "openai_chat": "openai_chat.rules",
    "openai_responses": "openai_responses.rules",
}
HEADERS = {"anthropic": {"betas", "user_profile_id", "workspace_id"}}
"""Parameters of a vendor's SDK that are headers, and refused in a body."""


@pytest.mark.parametrize("family", RULES)
def test_the_simulator_accepts_every_field_of_the_vendors_types(family):
    path = Path(providers.__file__).parent / family / "request_fields.toml"
    published = {*tomllib.loads(path.read_text())["fields"]}
    headers = HEADERS.get(family, set())
    known = {*import_module(f"bridle.sim.{RULES[family]}").BODY_FIELDS}
    assert published - headers <= known
    assert not headers & known
