"""The simulated Bedrock Converse wire, as one value."""

from bridle.providers.bedrock.encode_reply import encode_failure, encode_reply
from bridle.sim.family import SimulatedFamily

from .endpoints import EXTRA_ENDPOINTS
from .prompt import PROMPT_READER
from .rules import RULES, WINDOW_RULES
from .rules_schemas import find_schema
from .signatures import SIGNATURE_RULES, complete_reasoning, display_reasoning, sign_reply

FAMILY = SimulatedFamily(
    name="bedrock_converse",
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
)
