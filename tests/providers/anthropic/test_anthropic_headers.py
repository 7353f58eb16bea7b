"""Fields that the vendor takes as headers: betas, and for whom a request is."""

import json

import pytest
from msgspec.structs import replace

from bridle import Agent, MisuseError
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.values.message import Message, Text
from bridle.values.request import Extra, Request

HELLO = Message(id="m", role="user", parts=(Text(text="hi"),))


def encode(headers=(), **extras):
    model = find_model("anthropic:claude-sonnet-5-5", environ={})
    model = replace(model, endpoint=replace(model.endpoint, headers=headers))
    given = tuple(Extra(name=name, json=json.dumps(value)) for name, value in extras.items())
    sent = load_codec("anthropic").encode(Request(model=model, messages=(HELLO,), extras=given))
    return json.loads(sent.body), dict(sent.headers)


def test_they_go_out_as_headers_and_not_in_the_body():
    body, headers = encode(
        (("anthropic-beta", "fast-mode-2026-02-01"),),
        betas=["mcp-client-2026-09-15", "fast-mode-2026-02-01"],
        user_profile_id="uprof_1",
        workspace_id="wrkspc_1",
        service_tier="auto",
    )
    assert headers["anthropic-beta"] == "fast-mode-2026-02-01,mcp-client-2026-09-15"
    assert headers["anthropic-user-profile-id"] == "uprof_1"
    assert headers["anthropic-workspace-id"] == "wrkspc_1"
    assert body["service_tier"] == "auto"
    assert not {"betas", "user_profile_id", "workspace_id"} & set(body)


def test_null_is_no_header():
    _, headers = encode(betas=None, user_profile_id=None)
    assert not {"anthropic-beta", "anthropic-user-profile-id"} & set(headers)


@pytest.mark.parametrize(
    ("edits", "betas"),
    [
        (["clear_thinking_20251015"], "context-management-2025-06-27"),
        (
            ["clear_tool_uses_20250919", "compact_20260112"],
            "compact-2026-01-12,context-management-2025-06-27",
        ),
        (["compact_20260112"], "compact-2026-01-12"),
    ],
)
def test_the_beta_of_context_management_is_named(edits, betas):
    _, headers = encode(context_management={"edits": [{"type": each} for each in edits]})
    assert headers["anthropic-beta"] == betas


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("betas", ["a\r\nx-api-key: stolen"]),
        ("betas", ["a,b"]),
        ("betas", {"a": 1}),
        ("betas", [f"b-{each}" for each in range(101)]),
        ("user_profile_id", ["uprof_1"]),
        ("workspace_id", "a b"),
        ("workspace_id", 7),
    ],
)
def test_what_is_no_name_is_refused_when_the_agent_is_made(name, value):
    with pytest.raises(MisuseError, match=name) as caught:
        Agent("sim:anthropic/claude-sonnet-5-5", extras=[Extra(name=name, json=json.dumps(value))])
    assert "\n" not in str(caught.value)


def test_the_log_shows_betas_and_hides_names_of_users():
    given = [
        Extra(name="betas", json='["mcp-client-2026-09-15"]', unlisted=True),
        Extra(name="user_profile_id", json='"uprof_1"', unlisted=True),
    ]
    shown = {
        extra.name: extra.json
        for extra in Agent("sim:anthropic/claude-sonnet-5-5", extras=given).settings.extras
    }
    assert "mcp-client-2026-09-15" in shown["betas"]
    assert "uprof_1" not in shown["user_profile_id"]
