"""The simulated Gemini wire, as one value."""

from bridle.providers.gemini.encode_reply import encode_failure, encode_reply
from bridle.sim.family import SimulatedFamily

from .endpoints import EXTRA_ENDPOINTS
from .prompt import PROMPT_READER
from .request import find_schema, join_model_messages
from .rules import RULES, WINDOW_RULES
from .signatures import SIGNATURE_RULES, complete_reasoning, display_reasoning, sign_reply

FAMILY = SimulatedFamily(
    name="gemini",
    encode_reply=encode_reply,
    encode_failure=encode_failure,
    rules=RULES,
    window_rules=WINDOW_RULES,
    signature_rules=SIGNATURE_RULES,
    sign_reply=sign_reply,
    complete_reasoning=complete_reasoning,
    display_reasoning=display_reasoning,
    prompt_reader=PROMPT_READER,
    endpoints=EXTRA_ENDPOINTS,
    find_schema=find_schema,
    join_model_messages=join_model_messages,
)
