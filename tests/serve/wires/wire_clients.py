"""Bridle's own client over each wire, pointed to a server under test."""

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.catalogue import auth_headers
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.transports.http import HttpTransport

CLIENT_MODELS = {
    "openai_chat": ("openai-chat:gpt-5.4", "/openai/v1"),
    "openai_responses": ("openai:gpt-6.1-sol", "/openai/v1"),
    "anthropic": ("anthropic:claude-sonnet-5-5", "/anthropic"),
    "gemini": ("gemini:gemini-3.8-flash", "/gemini/v1beta"),
}
"""A model that speaks each wire, and the place of the wire on the server."""
PROVIDERS = {
    "openai_chat": "sim:openai-chat/gpt-5.4",
    "openai_responses": "sim:openai/gpt-6.1-sol",
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "gemini": "sim:gemini/gemini-3.5-flash",
    "bedrock": "sim:bedrock/anthropic.claude-sonnet-5-5",
}
"""A simulated provider of each wire."""


def connect_client(family, url, key="k"):
    """A connection that speaks this wire to the server."""
    name, mount = CLIENT_MODELS[family]
    model = find_model_by_name(name, needs_address=False)
    endpoint = replace(model.endpoint, base_url=url + mount, custom_address=url)
    model = replace(model, endpoint=endpoint)
    return ModelConnection(
        model=model,
        codec=load_codec(endpoint.family),
        transport=HttpTransport(None),
        headers=auth_headers(endpoint, key),
    )
