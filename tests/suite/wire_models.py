"""One simulated model of every wire family, for tests that run on all of them."""

MODELS = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai/gpt-6.1-sol",
    "sim:openai-chat/gpt-6.1-sol",
    "sim:gemini/gemini-3.8-flash",
    "sim:bedrock/global.anthropic.claude-sonnet-5-5",
)
VENDOR_MODELS = tuple(model.removeprefix("sim:").replace("/", ":", 1) for model in MODELS)
"""The same models at their vendors."""
SCHEMA_MODELS = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
    "sim:openai/gpt-6-sol",
    "sim:openai-chat/gpt-5.4",
    "sim:gemini/gemini-3.5-flash",
)
"""Models of which some take an output schema and the others get an output tool."""
