"""The simulated OpenAI Responses wire, as one value."""

from bridle.providers.openai_responses.decode_request import list_client_tools
from bridle.providers.openai_responses.encode_reply import encode_failure, encode_reply
from bridle.sim.family import FamilyCompaction, SimulatedFamily

from .cache_report import CACHE_REPORTER
from .compaction import find_due_compaction, make_automatic_summary, make_requested_summary, read_summary_text
from .endpoints import EXTRA_ENDPOINTS
from .prompt import PROMPT_READER
from .request import find_schema
from .rules import RULES, WINDOW_RULES
from .signatures import SIGNATURE_RULES, complete_reasoning, display_reasoning, sign_reply

FAMILY = SimulatedFamily(
    name="openai_responses",
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
    cache_reporter=CACHE_REPORTER,
    find_schema=find_schema,
    list_client_tools=list_client_tools,
    compaction=FamilyCompaction(
        make_requested_summary=make_requested_summary,
        make_automatic_summary=make_automatic_summary,
        find_due_compaction=find_due_compaction,
        read_summary_text=read_summary_text,
    ),
)
