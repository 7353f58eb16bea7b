"""The simulated OpenAI Chat wire, as one value."""

from bridle.providers.openai_chat.decode_request import list_client_tools
from bridle.providers.openai_chat.encode_reply import encode_failure, encode_reply
from bridle.sim.family import SimulatedFamily

from .cache_report import CACHE_REPORTER
from .endpoints import EXTRA_ENDPOINTS
from .prompt import PROMPT_READER
from .request import find_schema
from .rules import PROFILES, RULES, WINDOW_RULES, WINDOW_RULES_BY_PROFILE

FAMILY = SimulatedFamily(
    name="openai_chat",
    encode_reply=encode_reply,
    encode_failure=encode_failure,
    rules=RULES,
    window_rules=WINDOW_RULES,
    window_rules_by_profile=WINDOW_RULES_BY_PROFILE,
    profiles=PROFILES,
    prompt_reader=PROMPT_READER,
    endpoints=EXTRA_ENDPOINTS,
    cache_reporter=CACHE_REPORTER,
    find_schema=find_schema,
    list_client_tools=list_client_tools,
)
