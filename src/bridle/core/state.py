"""The state of a session: what its events so far add up to.

Nothing in here is kept anywhere but in the events; a state can be thrown away and
folded again at any time.  `run` is the part that starts afresh with every prompt.
"""

from enum import StrEnum
from typing import Literal

from bridle.core.cache.tracking import CacheHistory, RequestSnapshot, ServerConversation
from bridle.core.calls.pending import CallInDoubt, PendingCall, Receipt
from bridle.core.context.media import UnsupportedPart
from bridle.core.recovery.failure_policy import RefusedParameters
from bridle.values.base import Value
from bridle.values.budget import Spending, Subrun
from bridle.values.cache import PromptDropped, PromptStored
from bridle.values.calls import Compensation, StoredResult
from bridle.values.errors import Failure, FailureKind
from bridle.values.events import Compacted, PartRef, PrefixMoved, RunStop, ViewChanged
from bridle.values.memory import MemoryLoaded, Note
from bridle.values.message import Message, Opaque, Reply, Transcript
from bridle.values.model import Origin
from bridle.values.settings import Settings
from bridle.values.usage import Budget

# How far a run has come with making its conversation shorter (compaction.py decides by it).


class CompactionProgress(Value):
    overflow: Literal["", "context", "too_large"] = ""
    """The provider has refused the prompt as too long, whatever the estimate says."""
    overflow_message: str = ""
    """How it said so."""
    window_tokens: int | None = None
    """The window it named in saying so."""
    failed_tries: int = 0
    """How many tries in a row did not help."""
    tried_tokens: int = 0
    """What the prompt was estimated at after the last of them."""
    just_compacted: bool = False
    """It was made shorter and no reply has come since."""
    summary_until: str = ""
    """The last message of those that a summary was asked for last."""
    summarizer_key: str = ""
    """Who was asked for it, where that is not the model of the run."""
    use_own_model: bool = False
    """The one who was to write summaries could not; the run's own model writes them from here on."""
    split_count: int = 0
    """How often even the request for a summary was refused as too long."""
    forbid_calls: bool = False
    """Asked for a summary, the model called tools; it is to be kept from it."""
    summary_text: str = ""
    """What was written and is to be put in its place."""
    native_requested: bool = False
    """The provider was asked to do it itself."""
    native_disabled: bool = False
    """It could not, or what it made was no use; models write summaries from here on."""
    native_parts: tuple[Opaque, ...] = ()
    native_origin: Origin | None = None
    """What it made and is to be put in its place, and who it is."""


# What belongs to one prompt besides its words: values only (memory.py, gathering.py).


class CurrentPrompt(Value):
    text: str = ""
    """What the person said, without what was looked up for it."""
    request_hash: str = ""
    """The question to the model before it; as long as that is the latest, nothing was sent of this turn."""
    notes_loaded: bool = False
    """Whether the notes were loaded since."""
    retrieval_done: bool = False
    """Whether what stands beside the words was looked up."""
    retrieval_error: str = ""
    """Why it could not be, where the turn may not go on without."""


# What a line of records adds up to in notes, what a session shows of them, and which of its prompts have
# something beside them: values only (memory.py, gathering.py).


class MemoryState(Value):
    notes: tuple[Note, ...] = ()
    """Those of this line that were written and not removed."""
    note_keys: tuple[str, ...] = ()
    """Of every note ever written here, in order: their count numbers the next one."""
    loaded: MemoryLoaded | None = None
    """What stands in front of the conversation."""
    text: str = ""
    """That, in the words it is sent in."""
    prompts_with_chunks: tuple[str, ...] = ()
    """Messages of people that begin with what was found for them."""
    reload_reason: str = ""
    """Why it is to be loaded again before the next request."""


class Phase(StrEnum):
    NEW = "new"
    IDLE = "resting"  # the person's turn
    CALLING_MODEL = "asking"  # the model's turn
    EVALUATING_REPLY = "judging"  # a reply without calls is in: is it an answer?
    RUNNING_TOOLS = "acting"  # the tools' turn
    AWAITING_APPROVAL = "waiting"  # a person's turn, to allow a call or not


class Run(Value):
    """What has happened since the person spoke last."""

    budget: Budget = Budget()
    caller: str = ""
    tenant: str = ""
    prompt: CurrentPrompt = CurrentPrompt()
    spent: Spending = Spending()
    nested_spent: Spending = Spending()
    """What runs inside its tools have spent, beside that."""
    subruns: tuple[Subrun, ...] = ()
    endpoint_reached: bool = False
    """A model of this run has sent something, if only the beginning of a reply or an error."""
    budget_warning: str = ""
    """What is used of a budget shared with others, when it is so much that the model is to be told."""
    tool_call_limit: Literal["", "own", "shared"] = ""
    """A call was not run because no more of them may be, and whose limit that is."""
    wrap_up_reason: str = ""
    """What the model was told to finish for."""
    seconds: float = 0.0
    """How long it took, when it ended last."""
    started_at: float = 0.0
    attempt: int = 0
    """How often the current step was asked already."""
    model_attempts: int = 0
    """How many of these the current model was asked."""
    breaker_waits: int = 0
    """How often the current step found its endpoint resting."""
    abandoned_models: tuple[tuple[str, str], ...] = ()
    """Models of the chain that this run has done with, by seat, and why."""
    failure: Failure | None = None
    rejected_parts: tuple[PartRef, ...] = ()
    """What the provider refused by name and is to be left out."""
    part_removals: int = 0
    """How often something was left out for that reason."""
    random_draw: float = 1.0
    """What was drawn when it failed."""
    partial_text: str = ""
    """What the model had said when its reply broke off."""
    reply: Reply | None = None
    """The reply being judged."""
    output_error: str = ""
    """What the type asked for has against that reply."""
    continued_text: str = ""
    """Words of an answer that was cut at its length and is being continued."""
    reprompts: int = 0
    pauses: int = 0
    rejected_answers: int = 0
    """How many answers did not have the shape asked for."""
    server_state_lost: bool = False
    """The provider has forgotten what it was to keep: send everything, once."""
    tools_forbidden: bool = False
    """The model was asked to call nothing; not every wire can tell it so."""
    repair_failures: tuple[FailureKind, ...] = ()
    """Failures of the current step that were to be mended by another request."""
    reasoning_status: Literal["", "refused", "left out"] = ""
    """Whether the provider refused earlier reasoning in this run, and what became of it."""
    refused_parameters: RefusedParameters = ()
    """Optional parameters that the current endpoint refused; its requests go without them."""
    reply_echo: Literal["", "refused"] = ""
    """Whether the provider refused a request with its last reply in it, and did not say what was wrong."""
    recorded_notes: tuple[str, ...] = ()
    """What was changed in this run's requests to make them acceptable, each recorded once."""
    refused_adjustments: tuple[str, ...] = ()
    """What is asked for and cannot be sent, where that ends the run."""
    compaction: CompactionProgress = CompactionProgress()
    needs_full_output: bool = False
    """The last reply ran out of room: ask for the most the model can give."""
    suspected_truncation: str = ""
    """Why the model has probably not read all of the prompt, where that ends the run."""
    output: str | None = None
    """The accepted structured answer, as JSON text."""
    compensations: tuple[Compensation, ...] = ()
    """What was done and can be undone, in the order it was done."""
    batch_signatures: tuple[str, ...] = ()
    """Signatures of the latest batches of calls and their results."""
    prefix_change: PrefixMoved | None = None
    """What was found to have moved in front of the request that is due."""
    stop: RunStop | None = None
    reason: str = ""
    answer: str = ""


class State(Value):
    phase: Phase = Phase.NEW
    session: str = ""
    owner: str | None = None
    """The tenant of the first prompt, to whom the session belongs; None before that."""
    settings: Settings = Settings()
    transcript: Transcript = Transcript()
    view: tuple[Message, ...] = ()
    """The transcript as models see it: the same messages, with the recorded changes."""
    picture_count: int = 0
    """How many pictures from tools are in the view."""
    view_changes: tuple[ViewChanged | Compacted, ...] = ()
    """Every change of the view, whichever model it was for."""
    summarized_count: int = 0
    """How many messages of the transcript a summary stands for in the view."""
    prompt_ids: tuple[str, ...] = ()
    """The messages that people said."""
    changed_parts: frozenset[PartRef] = frozenset()
    """What of the transcript is changed in the view."""
    stale_ranges: tuple[tuple[int, int], ...] = ()
    """Stretches of the transcript before which something was changed after they had been said."""
    unsupported_parts: tuple[UnsupportedPart, ...] = ()
    """What in the view the current model cannot take."""
    revealed_tools: tuple[str, ...] = ()
    """The hidden tools that were shown since, in that order; some may be gone from the settings."""
    revealed_at: tuple[int, ...] = ()
    """How many messages there were when each of them was shown."""
    stored_results: tuple[StoredResult, ...] = ()
    """The results of which only an excerpt is in the transcript: what may be read from the store."""
    imported_instructions: str = ""
    """The system prompt of the history this session began with."""
    tools_searched: bool = False
    """Whether the tools that the session's first words are about were looked for."""
    tools_to_reveal: tuple[str, ...] = ()
    """Hidden tools that the model has found or called, to be shown before it is asked again."""
    memory: MemoryState = MemoryState()
    pending_calls: tuple[PendingCall, ...] = ()
    tools_started: bool = False
    """A tool was started since the calls came in or the session was taken over: every call that needs no tool
    was answered before that."""
    receipts: tuple[Receipt, ...] = ()
    """Calls that were done and need not be done again, see receipts.py."""
    calls_in_doubt: tuple[CallInDoubt, ...] = ()
    """Calls that were answered without anybody knowing whether they took effect."""
    request_hash: str = ""
    """Hash of the record of the latest question to the model; the keys of its calls are made of it."""
    cache: CacheHistory = CacheHistory()
    chained_from: int = 0
    """How many messages there were when the provider was first told to keep replies."""
    server_conversation: ServerConversation | None = None
    """The provider's conversation object, where one is used."""
    stored_prompt: PromptStored | PromptDropped | None = None
    last_request: RequestSnapshot | None = None
    """None before the first request, and when it is known already that the next one begins otherwise."""
    run: Run = Run()
    total_spent: Spending = Spending()
    nested_spent: Spending = Spending()
    """What runs inside its tools have spent, beside that."""
    earlier_seconds: float = 0.0
    """How long the runs before this one took."""
    reply_count: int = 0
    prompt_tokens: int = 0
    """Estimate of the next prompt: what the provider counted last, plus what was added since."""
    counted_tokens: int = 0
    """How much of that a provider has counted; the rest is on the dear side."""
    estimate_margin_tokens: int = 0
    """By how much it is thought too dear since the conversation was made shorter."""
    reported_windows: tuple[tuple[str, int], ...] = ()
    """Windows that servers named in refusing a prompt, by seat, where smaller than the model's own."""
    now: float = 0.0
    """Time of the newest event: the only time the core knows."""
