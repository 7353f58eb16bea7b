"""The state of a session, folded from its events.

Only the events are stored: a state can be discarded and folded again at any time. `State.run` holds what belongs
to the current prompt and is replaced by the next one.
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


class CompactionProgress(Value):
    """Progress of a run in shortening its conversation; core/compaction decides by it."""

    overflow: Literal["", "context", "too_large"] = ""
    """Set when the provider rejected the prompt as too long, whatever the estimate says."""
    overflow_message: str = ""
    """The provider's error text."""
    window_tokens: int | None = None
    """The window that the error text names."""
    failed_tries: int = 0
    """Consecutive compactions that did not make the prompt fit."""
    tried_tokens: int = 0
    """Estimated prompt size after the last of them."""
    just_compacted: bool = False
    """The conversation was shortened and no reply has arrived since."""
    summary_until: str = ""
    """Last message covered by the requested summary."""
    summarizer_key: str = ""
    """Model that was asked for the summary, if it is not the model of the run."""
    use_own_model: bool = False
    """The configured summarizer failed; the run's own model writes summaries from now on."""
    split_count: int = 0
    """How often the request for a summary was itself rejected as too long."""
    forbid_calls: bool = False
    """The model called tools instead of writing a summary; the next request forbids calls."""
    summary_text: str = ""
    """Summary text that is not in the view yet."""
    native_requested: bool = False
    """The provider was asked for its native compaction."""
    native_disabled: bool = False
    """Native compaction failed or was unusable; models write summaries from now on."""
    native_parts: tuple[Opaque, ...] = ()
    native_origin: Origin | None = None
    """Provider and model that made `native_parts`, the native summary that is not in the view yet."""


class CurrentPrompt(Value):
    """The current prompt and the notes and context loaded for it; see core/memory.py."""

    text: str = ""
    """The prompt without retrieved context."""
    request_hash: str = ""
    """Request before this prompt. While it is the latest request, nothing of this prompt was sent."""
    notes_loaded: bool = False
    """The notes were loaded after the prompt."""
    retrieval_done: bool = False
    """The context was retrieved."""
    retrieval_error: str = ""
    """Reason why retrieval failed, if the run must not continue without it."""


class MemoryState(Value):
    """Notes of a session and the prompts with retrieved context; see core/memory.py."""

    notes: tuple[Note, ...] = ()
    """Notes that were written in this log and not removed."""
    note_keys: tuple[str, ...] = ()
    """Keys of all notes ever written in this log, in order; their count numbers the next note."""
    loaded: MemoryLoaded | None = None
    """Notes shown before the conversation."""
    text: str = ""
    """The same notes as they are sent."""
    prompts_with_chunks: tuple[str, ...] = ()
    """Prompts that begin with retrieved context, by message id."""
    reload_reason: str = ""
    """Reason to load the notes again before the next request."""


class Phase(StrEnum):
    NEW = "new"
    IDLE = "resting"  # waits for a prompt
    CALLING_MODEL = "asking"  # the next step is a model call
    EVALUATING_REPLY = "judging"  # decides if a reply without calls is an answer
    RUNNING_TOOLS = "acting"  # calls of the last reply are open
    AWAITING_APPROVAL = "waiting"  # waits for answers about calls


class OutputProgress(Value):
    """Attempts of a run at an answer, and at calls, that were sent back to the model."""

    rejected_answers: int = 0
    """Answers that did not match the output type."""
    tool_retries: tuple[tuple[str, int], ...] = ()
    """Tools whose latest results all asked the model to try again (`ModelRetry`), with the number of replies."""


class Run(Value):
    """Everything that belongs to the current prompt."""

    budget: Budget = Budget()
    caller: str = ""
    tenant: str = ""
    prompt: CurrentPrompt = CurrentPrompt()
    spent: Spending = Spending()
    nested_spent: Spending = Spending()
    """Spending of runs inside this run's tools; not part of `spent`."""
    subruns: tuple[Subrun, ...] = ()
    endpoint_reached: bool = False
    """A model of this run has answered, if only with the start of a reply or an error."""
    budget_warning: str = ""
    """Share of the pooled budget in use, set once it passes the wrap-up threshold."""
    tool_call_limit: Literal["", "own", "shared"] = ""
    """Limit that kept a tool call from running: the run's own or a shared one."""
    wrap_up_reason: str = ""
    """Limit that triggered the wrap-up notice."""
    seconds: float = 0.0
    """Duration of the run when it last ended."""
    started_at: float = 0.0
    attempt: int = 0
    """Attempts at the current step."""
    model_attempts: int = 0
    """Attempts at the current step with the current model."""
    breaker_waits: int = 0
    """How often the current step met an open circuit breaker."""
    abandoned_models: tuple[tuple[str, str], ...] = ()
    """Models of the chain that this run does not try again, by model key, each with the reason."""
    failure: Failure | None = None
    rejected_parts: tuple[PartRef, ...] = ()
    """Parts that the provider rejected by name; the next request leaves them out."""
    part_removals: int = 0
    """How often parts were left out for that reason."""
    random_draw: float = 1.0
    """Random number recorded with the last failure; the backoff uses it."""
    partial_text: str = ""
    """Text received before the reply broke off."""
    reply: Reply | None = None
    """The reply being evaluated."""
    output_error: str = ""
    """Validation error of that reply against the output type."""
    continued_text: str = ""
    """Text of an answer that was cut at the length limit and is being continued."""
    reprompts: int = 0
    pauses: int = 0
    output_progress: OutputProgress = OutputProgress()
    server_state_lost: bool = False
    """The provider lost the stored conversation; the next request sends all of it."""
    tools_forbidden: bool = False
    """Tool calls are forbidden in the next reply; not every wire can express that."""
    repair_failures: tuple[FailureKind, ...] = ()
    """Failures of the current step after which a repaired request was sent."""
    reasoning_status: Literal["", "refused", "left out"] = ""
    """Set when the provider refused earlier reasoning in this run, and after it was left out."""
    refused_parameters: RefusedParameters = ()
    """Optional parameters that the current endpoint refused; they are not sent again."""
    reply_echo: Literal["", "refused"] = ""
    """Set when the provider refused a request that contains its last reply, without naming the fault."""
    recorded_notes: tuple[str, ...] = ()
    """Adjustments of this run's requests, each recorded once."""
    refused_adjustments: tuple[str, ...] = ()
    """Adjustments that end the run because `on_adjusted="error"`."""
    compaction: CompactionProgress = CompactionProgress()
    needs_full_output: bool = False
    """The last reply was cut at its length; the next request asks for the model's maximum."""
    suspected_truncation: str = ""
    """Evidence that the server truncated the prompt, if that ends the run."""
    output: str | None = None
    """The accepted structured answer, as JSON text."""
    compensations: tuple[Compensation, ...] = ()
    """Completed calls that can be undone, in order of completion."""
    batch_signatures: tuple[str, ...] = ()
    """Signatures of the latest batches of calls and their results."""
    prefix_change: PrefixMoved | None = None
    """Change of the prompt's prefix found before the next request."""
    stop: RunStop | None = None
    reason: str = ""
    answer: str = ""


class State(Value):
    """A session after its last event."""

    phase: Phase = Phase.NEW
    session: str = ""
    owner: str | None = None
    """Tenant of the first prompt, which owns the session; None before that."""
    settings: Settings = Settings()
    transcript: Transcript = Transcript()
    view: tuple[Message, ...] = ()
    """The transcript as models see it: the same messages, with the recorded changes."""
    picture_count: int = 0
    """Pictures from tools in the view."""
    view_changes: tuple[ViewChanged | Compacted, ...] = ()
    """All changes of the view, for every model."""
    summarized_count: int = 0
    """Messages of the transcript that a summary replaces in the view."""
    prompt_ids: tuple[str, ...] = ()
    """Ids of the prompts."""
    changed_parts: frozenset[PartRef] = frozenset()
    """Parts of the transcript that differ in the view."""
    stale_ranges: tuple[tuple[int, int], ...] = ()
    """Ranges of the transcript whose earlier context changed after they were written."""
    unsupported_parts: tuple[UnsupportedPart, ...] = ()
    """Parts of the view that the current model does not accept."""
    revealed_tools: tuple[str, ...] = ()
    """Hidden tools that were revealed, in order; some may no longer be in the settings."""
    revealed_at: tuple[int, ...] = ()
    """Number of messages when each of them was revealed."""
    stored_results: tuple[StoredResult, ...] = ()
    """Results whose transcript entry is an excerpt; `read_result` may read these."""
    imported_instructions: str = ""
    """System prompt of the imported history."""
    tools_searched: bool = False
    """The first prompt was used to search for tools."""
    tools_to_reveal: tuple[str, ...] = ()
    """Hidden tools that the model found or called; they are revealed before the next request."""
    memory: MemoryState = MemoryState()
    pending_calls: tuple[PendingCall, ...] = ()
    tools_started: bool = False
    """A tool was started after the calls arrived or the session was resumed. Every call that needs no tool was
    answered before that."""
    receipts: tuple[Receipt, ...] = ()
    """Completed `once_per` calls; a repeated call returns their result."""
    calls_in_doubt: tuple[CallInDoubt, ...] = ()
    """Calls whose effect is unknown."""
    request_hash: str = ""
    """Hash of the latest `ModelAsked` record; idempotency keys of its calls derive from it."""
    cache: CacheHistory = CacheHistory()
    chained_from: int = 0
    """Number of messages when the provider first stored replies."""
    server_conversation: ServerConversation | None = None
    """The provider's conversation object, if one is used."""
    stored_prompt: PromptStored | PromptDropped | None = None
    last_request: RequestSnapshot | None = None
    """None before the first request, and when the next request is known to have another prefix."""
    run: Run = Run()
    total_spent: Spending = Spending()
    nested_spent: Spending = Spending()
    """Spending of runs inside this session's tools; not part of `total_spent`."""
    earlier_seconds: float = 0.0
    """Duration of all earlier runs."""
    reply_count: int = 0
    prompt_tokens: int = 0
    """Estimate of the next prompt: the provider's last count plus what was added since."""
    counted_tokens: int = 0
    """Part of the estimate that a provider counted; the rest is conservative."""
    estimate_margin_tokens: int = 0
    """Assumed overestimate since the last compaction."""
    reported_windows: tuple[tuple[str, int], ...] = ()
    """Smaller context windows that servers named when they rejected a prompt, by model key."""
    now: float = 0.0
    """Time of the newest event; the core has no other clock."""
