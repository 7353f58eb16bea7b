"""Declarations of hosted tools: what they refuse at construction, and what each wire is sent for them."""

import json
from typing import Any

import pytest

from bridle import hosted
from bridle.errors import BadTool
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model
from bridle.providers.tables import load_tables
from bridle.providers.wire.hosted import find_hosted_form
from bridle.values.message import Message, Text
from bridle.values.request import HOSTED_USES_DEFAULT, Request

CLAUDE, OLDER = "anthropic:claude-sonnet-5-5", "anthropic:claude-opus-4-8"
GPT, GEMINI = "openai:gpt-6.1-sol", "gemini:gemini-3.8-flash"
PLACE = hosted.Location(city="Leeds", country="GB")
APPROXIMATE = {"type": "approximate", "city": "Leeds", "country": "GB"}
MCP = hosted.remote_mcp(
    "https://crm.example/mcp", name="crm", authorization="tok", allowed_tools=["find"], require_approval=False
)
ADDRESSES = {
    "AZURE_OPENAI_ENDPOINT": "https://x.example",
    "ANTHROPIC_VERTEX_PROJECT_ID": "x",
    "CLOUD_ML_REGION": "x",
    "ANTHROPIC_FOUNDRY_RESOURCE": "x",
}


async def act(action):
    raise AssertionError("never called here")


SEARCH = hosted.web_search(allowed_domains=["a.example"], max_uses=3, location=PLACE, context_size="low")
COMPUTER = hosted.computer_use(act, width=800, height=600)
DECLARED = [
    (CLAUDE, SEARCH, {"type": "web_search_20250305", "name": "web_search", "max_uses": 3,
                      "allowed_domains": ["a.example"], "user_location": APPROXIMATE}),
    (CLAUDE, hosted.web_fetch(blocked_domains=["b.example"], citations=True, max_content_tokens=9_000),
     {"type": "web_fetch_20250910", "name": "web_fetch", "max_uses": HOSTED_USES_DEFAULT,
      "blocked_domains": ["b.example"], "max_content_tokens": 9_000, "citations": {"enabled": True}}),
    (CLAUDE, hosted.code_execution(), {"type": "code_execution_20250825", "name": "code_execution"}),
    (CLAUDE, MCP, {"type": "mcp_toolset", "mcp_server_name": "crm", "default_config": {"enabled": False},
                   "configs": {"find": {"enabled": True}}}),
    (OLDER, COMPUTER, {"type": "computer_20251124", "name": "computer", "display_width_px": 800,
                       "display_height_px": 600}),
    ("anthropic:claude-haiku-4-5", COMPUTER, {"type": "computer_20250124", "name": "computer",
                                              "display_width_px": 800, "display_height_px": 600}),
    (GPT, SEARCH, {"type": "web_search", "filters": {"allowed_domains": ["a.example"]},
                   "user_location": APPROXIMATE, "search_context_size": "low"}),
    (GPT, hosted.file_search(stores=["vs_1"], max_results=4),
     {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 4}),
    (GPT, hosted.code_execution(), {"type": "code_interpreter", "container": {"type": "auto"}}),
    (GPT, hosted.image_generation(size="1024x1024", quality="low", output_format="png"),
     {"type": "image_generation", "size": "1024x1024", "quality": "low", "output_format": "png"}),
    (GPT, MCP, {"type": "mcp", "server_label": "crm", "server_url": "https://crm.example/mcp",
                "authorization": "tok", "allowed_tools": ["find"], "require_approval": "never"}),
    (GPT, COMPUTER, {"type": "computer"}),
    (GEMINI, hosted.web_search(), {"googleSearch": {}}),
    (GEMINI, hosted.web_fetch(), {"urlContext": {}}),
    (GEMINI, hosted.code_execution(), {"codeExecution": {}}),
    (GEMINI, hosted.file_search(stores=["fileSearchStores/a"], max_results=4),
     {"fileSearch": {"fileSearchStoreNames": ["fileSearchStores/a"], "topK": 4}}),
    (GEMINI, hosted.remote_mcp("https://a.example", name="crm", authorization="tok", headers={"X-A": "b"},
                               require_approval=False),
     {"mcpServers": [{"name": "crm", "streamableHttpTransport": {
         "url": "https://a.example", "headers": {"X-A": "b", "Authorization": "Bearer tok"}}}]}),
    ("openrouter:meta/llama", SEARCH, {"type": "openrouter:web_search", "parameters": {
        "max_uses": 3, "allowed_domains": ["a.example"], "user_location": APPROXIMATE, "search_context_size": "low"}}),
    ("groq:openai/gpt-oss-120b", hosted.web_search(), {"type": "browser_search"}),
    ("groq:openai/gpt-oss-120b", hosted.code_execution(), {"type": "code_interpreter"}),
]  # fmt: skip


def encode(name, *tools):
    model = find_model(name, environ={})
    asked = (Message(role="user", parts=(Text(text="Hello."),)),)
    request = Request(model=model, messages=asked, tools=tuple(tool.spec for tool in tools))
    return load_codec(model.endpoint.family).encode(request), request


@pytest.mark.parametrize(("name", "tool", "declared"), DECLARED)
def test_each_wire_declares_a_concept_in_its_own_way(name, tool, declared):
    (sent,) = json.loads(encode(name, tool)[0].body)["tools"]
    assert sent == declared


def test_the_types_of_the_vendors_allow_every_declaration():
    from tests.wire.vendors.vendor_types import type_violations  # needs the path that conftest sets

    roots = {"anthropic": "anthropic", "openai_responses": "openai_responses", "gemini": "gemini"}
    for name, tool, _ in DECLARED:
        sent, request = encode(name, tool)
        if (family := request.model.endpoint.family) in roots:
            betas = dict(sent.headers).get("anthropic-beta", "")
            assert type_violations(roots[family], json.loads(sent.body), betas) == [], (name, tool)


def test_a_remote_server_is_listed_with_its_token_and_needs_a_beta():
    sent, _ = encode(CLAUDE, MCP, hosted.web_search())
    assert json.loads(sent.body)["mcp_servers"] == [
        {"type": "url", "url": "https://crm.example/mcp", "name": "crm", "authorization_token": "tok"}
    ]
    assert dict(sent.headers)["anthropic-beta"] == "mcp-client-2025-11-20"
    assert dict(encode(OLDER, COMPUTER)[0].headers)["anthropic-beta"] == "computer-use-2025-11-24"
    assert "anthropic-beta" not in dict(encode(CLAUDE, hosted.web_search())[0].headers)


def test_one_wire_limits_all_uses_together():
    both = [hosted.web_search(max_uses=3), hosted.file_search(stores=["vs_1"])]
    assert json.loads(encode(GPT, *both)[0].body)["max_tool_calls"] == 3 + HOSTED_USES_DEFAULT
    assert "max_tool_calls" not in json.loads(encode(GPT, COMPUTER)[0].body)


def test_every_ability_of_the_tables_has_a_form_and_every_option_a_member():
    tables = load_tables("")
    listed = 0
    for endpoint, row in tables.endpoints.items():
        names = tables.model_ids(row) or ["some-model"]
        for model in (find_model(f"{endpoint}:{name}", environ=ADDRESSES) for name in names if row.family):
            codec: Any = load_codec(model.endpoint.family)
            for concept, restrictions in model.abilities.hosted:
                form = find_hosted_form(codec.hosted_forms(model), concept, model)
                assert form is not None, (model.name, concept)
                assert set(restrictions) <= set(dict(form.options)), (model.name, concept)
                assert ("max_uses" in restrictions) == ("max_uses" in dict(form.options)), (
                    model.name,
                    concept,
                )
                listed += 1
    assert listed > 100


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: hosted.web_search(allowed_domains=["https://a.example"]),
            "takes domains such as 'example.com'",
        ),
        (lambda: hosted.web_search(allowed_domains="a.example"), "takes domains such as 'example.com'"),
        (lambda: hosted.web_search(allowed_domains=["a.b"], blocked_domains=["c.d"]), "not both"),
        (lambda: hosted.web_search(max_uses=0), "takes a whole number above 0, not 0"),
        (lambda: hosted.web_fetch(max_content_tokens=True), "takes a whole number above 0, not True"),
        (lambda: hosted.file_search(stores=[]), "at least one"),
        (lambda: hosted.file_search(stores="vs_1"), "takes a list"),
        (lambda: hosted.remote_mcp("http://a.example", name="a"), "takes an https:// address"),
        (lambda: hosted.remote_mcp("https://a.example", name="a b"), "not every provider accepts this name"),
        (
            lambda: hosted.remote_mcp("https://a.example", name="a", allowed_tools=[]),
            "leave it out to allow all",
        ),
        (lambda: hosted.computer_use(act, width=0, height=600), "takes a whole number above 0, not 0"),
        (lambda: hosted.computer_use("act", width=8, height=600), "takes a function"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_refused_at_construction_in_one_line(make, message):
    with pytest.raises(BadTool) as caught:
        make()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_declaration_is_a_value_that_hides_its_options():
    assert hosted.web_search(max_uses=2) == hosted.web_search(max_uses=2)
    assert hosted.web_search(max_uses=2) != hosted.web_search(max_uses=3)
    assert repr(MCP) == "<hosted tool 'crm'>"


def test_a_wire_without_the_concept_never_sends_it():
    with pytest.raises(BadTool, match="has no hosted image_generation"):
        encode(CLAUDE, hosted.image_generation())
    with pytest.raises(BadTool, match="has no hosted web_search"):
        encode("bedrock:global.anthropic.claude-sonnet-5-5", hosted.web_search())
