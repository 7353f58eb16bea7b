"""The state of a session, folded from its events, which alone are stored.

`State.run` holds what belongs to the current prompt and is replaced by the next one.
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
from bridle.values.calls import Compensation, RunConclusion, StoredResult, ToolsChanged
from bridle.values.errors import Failure, FailureKind
from bridle.values.events import Compacted, ModelReplied, PartRef, PrefixMoved, RunStop, ViewChanged
from bridle.values.hooks import HeadEdit
from bridle.values.memory import InstructionWritten, MemoryLoaded, Note
from bridle.values.message import Message, Opaque, Reply, Transcript
from bridle.values.model import Origin
from bridle.values.request import StepOptions
from bridle.values.settings import Settings
from bridle.values.usage import Budget, BudgetParts


class Overflow(Value, kw_only=True):
    """The provider's refusal of a prompt as too long."""

    kind: Literal["", "context", "too_large"] = ""
    """Set when the provider rejected the prompt as too long, whatever the estimate says."""
    message: str = ""  # the provider's error text
    window_tokens: int | None = None
    """The window that the error text names."""


class SummaryInProgress(Value, kw_only=True):
    """A summary from its request until it replaces messages in the view."""

    until: str = ""
    """Last message covered by the requested summary."""
    summarizer_key: str = ""
    """Model that was asked for the summary, if it is not the model of the run."""
    native_requested: bool = False
    """The provider was asked for its native compaction."""
    text: str = ""
    """Summary text that is not in the view yet."""
    native_parts: tuple[Opaque, ...] = ()
    """Native summary that is not in the view yet."""
    native_origin: Origin | None = None
    """Provider and model that made `native_parts`."""


class CompactionProgress(Value, kw_only=True):
    """Progress of a run in shortening its conversation; core/compaction decides by it."""

    overflow: Overflow = Overflow()
    summary: SummaryInProgress = SummaryInProgress()
    failed_tries: int = 0
    """Consecutive compactions that did not make the prompt fit."""
    tried_tokens: int = 0
    """Estimated prompt size after the last of them."""
    just_compacted: bool = False
    """The conversation was shortened and no reply has arrived since."""
    use_own_model: bool = False
    """The configured summarizer failed; the run's own model writes summaries from now on."""
    split_count: int = 0
    """Number of times the request for a summary was itself rejected as too long."""
    forbid_calls: bool = False
    """The model called tools instead of writing a summary; the next request forbids calls."""
    native_disabled: bool = False
    """Native compaction failed or was unusable; models write summaries from now on."""


class Steering(Value, kw_only=True):
    """Messages of a person that wait to be taken up, and the reason to pause if one was given; core/steering.py."""

    waiting: tuple[str, ...] = ()
    pause_reason: str = ""


class CurrentPrompt(Value, kw_only=True):
    """The current prompt, and the notes, context and instructions added to it; see core/memory.py."""

    text: str = ""
    """The prompt without retrieved context."""
    request_hash: str = ""
    """Request before this prompt, or before an agent took over. While it is the latest, nothing was sent since."""
    notes_loaded: bool = False  # after the prompt
    retrieval_done: bool = False
    retrieval_error: str = ""
    """Reason why retrieval failed, if the run must not continue without it."""
    instructions: tuple[tuple[str, InstructionWritten], ...] = ()
    """Instructions that functions wrote for this prompt, each after the id of the message that ends with it."""
    instruction_error: str = ""
    """Reason why a function that writes instructions failed."""
    held: tuple[Message, ...] = ()
    """Prompts that join the conversation once the calls in doubt before them are settled."""
    steering: Steering = Steering()


class MemoryState(Value, kw_only=True):
    """Notes of a session and the prompts with retrieved context; see core/memory.py."""

    notes: tuple[Note, ...] = ()
    """Notes that were written in this log and not removed."""
    note_keys: tuple[str, ...] = ()
    """Keys of all notes ever written in this log, in order; their count numbers the next note."""
    loaded: MemoryLoaded | None = None
    """Notes shown before the conversation."""
    text: str = ""
    """The loaded notes as they are sent."""
    prompts_with_chunks: tuple[str, ...] = ()
    """Prompts that begin with retrieved context, by message id."""
    reload_reason: str = ""
    """Reason to load the notes again before the next request."""
    instructions: tuple[InstructionWritten, ...] = ()
    """Instructions that functions wrote for the session."""


class Phase(StrEnum):
    NEW = "new"
    IDLE = "resting"  # waits for a prompt
    CALLING_MODEL = "asking"  # the next step is a model call
    REVIEWING_REPLY = "reviewing"  # hooks decide about a reply
    EVALUATING_REPLY = "judging"  # decides if a reply without calls is an answer
    RUNNING_TOOLS = "acting"  # calls of the last reply are open
    AWAITING_APPROVAL = "waiting"  # waits for answers about calls


class RunOrigin(Value, kw_only=True):
    """The caller, tenant and trace of a run, the agents it was handed over to, and the one that takes over next."""

    caller: str = ""
    tenant: str = ""
    parent_session: str = ""
    """Session whose tool started this run."""
    agents: tuple[str, ...] = ()
    handover: str = ""
    settles: bool = False
    """True while the last agent only settles calls in doubt of the run before; then the first one goes on."""
    traceparent: str = ""
    client_waits: bool = False
    first_settings: Settings | None = None


class BudgetUse(Value, kw_only=True):
    """The budget of a run and its use so far."""

    limits: Budget = Budget()
    parts: BudgetParts | None = None
    """Limits that agent and run set for session, tenant and caller, if the run sets any."""
    spent: Spending = Spending()
    nested_spent: Spending = Spending()
    """Spending of runs inside this run's tools; not part of `spent`."""
    subruns: tuple[Subrun, ...] = ()
    started_at: float = 0.0
    """Time of the prompt, moved forward by the time in which no driver was active."""
    seconds: float = 0.0
    """Duration of the run when it last ended."""
    warning: str = ""
    """Share of the pooled budget in use, set once it passes the wrap-up threshold."""
    tool_call_limit: Literal["", "own", "shared"] = ""
    """Limit that kept a tool call from running: the run's own or a shared one."""
    wrap_up_reason: str = ""
    """Limit that triggered the wrap-up notice."""


class Attempt(Value, kw_only=True):
    """The attempts at the current step; a fresh value after each reply."""

    number: int = 0
    model_attempts: int = 0
    """Attempts at the current step with the current model."""
    breaker_waits: int = 0
    """Number of times the current step met an open circuit breaker."""
    failure: Failure | None = None
    """Failure of the latest attempt."""
    partial_text: str = ""
    """Text received before the reply broke off."""
    repair_failures: tuple[FailureKind, ...] = ()
    """Failures of the current step after which a repaired request was sent."""


class ModelRoute(Value, kw_only=True):
    """The use that a run makes of its model chain."""

    abandoned_models: tuple[tuple[str, str], ...] = ()
    """Models of the chain that this run does not try again, by model key, each with the reason."""
    endpoint_reached: bool = False
    """A model of this run has answered, if only with the start of a reply or an error."""


class EndpointRefusals(Value, kw_only=True):
    """Content, parameters and stored state that the current endpoint refused."""

    rejected_parts: tuple[PartRef, ...] = ()
    """Parts that the provider rejected by name; the next request leaves them out."""
    part_removals: int = 0
    """Number of times parts were left out for that reason."""
    reply_echo: Literal["", "refused"] = ""
    """Set when the provider refused a request that contains its last reply, without naming the fault."""
    reasoning_status: Literal["", "refused", "left out"] = ""
    """Set when the provider refused earlier reasoning in this run, and after it was left out."""
    refused_parameters: RefusedParameters = ()
    """Optional parameters that the current endpoint refused; they are not sent again."""
    server_state_lost: bool = False
    """The provider lost the stored conversation; the next request sends all of it."""


class OutputProgress(Value, kw_only=True):
    """Checks of the latest answer, and attempts that were sent back to the model."""

    answer_id: str = ""
    """Latest answer that a validator decided about; see `OutputChecked`."""
    validated_by: tuple[str, ...] = ()
    """Validators that accepted it."""
    changed: str | None = None
    """The answer as validators changed it."""
    problem: str = ""
    """Reason why a validator sent it back."""
    validator_error: str = ""
    """Reason why a validator could not decide; ends the run."""
    rejected_answers: int = 0
    """Answers that did not match the output type or that a validator or output function sent back."""
    function: str = ""  # output function that returned the accepted answer
    tool_retries: tuple[tuple[str, int], ...] = ()
    """Tools whose latest results all asked the model to try again (`ModelRetry`), with the number of replies."""


class HookProgress(Value, kw_only=True):
    """Hooks that decided at the current point of a run; see core/hooks.py."""

    is_used: bool = False  # a hook took part in this run
    decided: tuple[str, ...] = ()
    """Names of the hooks that decided at the current point."""
    asked_step: int = 0
    """Step whose request all `before_model` hooks have decided about."""
    unreviewed: ModelReplied | None = None
    """Reply that `after_model` hooks have not decided about yet; not part of the conversation."""
    cancelled: tuple[ModelReplied, tuple[str, ...]] | None = None
    """Reply whose review a cancel interrupted, and the hooks that had decided; its cost is counted."""
    refusal: str = ""  # reason of a hook that ends the run as refused
    withheld: tuple[str, ...] = ()
    """Messages that it refused; the next prompt is sent without them."""
    failure: str = ""  # reason why a hook ends the run as failed


class ReplyEvaluation(Value, kw_only=True):
    """The reply being evaluated (`reply`) and the evaluations of the run so far."""

    reply: Reply | None = None  # kept at a cancel, so that a resumed run evaluates it
    output_error: str = ""
    """Validation error of that reply against the output type."""
    output: str | None = None
    """The accepted structured answer, as JSON text."""
    continued_text: str = ""
    """Text of an answer that was cut at the length limit and is being continued."""
    reprompts: int = 0
    pauses: int = 0
    output_progress: OutputProgress = OutputProgress()
    suspected_truncation: str = ""
    """Evidence that the server truncated the prompt, if that ends the run."""
    needs_full_output: bool = False
    """The last reply was cut at its length; the next request asks for the model's maximum."""
    tools_forbidden: bool = False
    """Tool calls are forbidden in the next reply; not every wire can express that."""
    batch_signatures: tuple[str, ...] = ()
    """Signatures of the latest batches of calls and their results."""
    hooks: HookProgress = HookProgress()


class RequestAdjustments(Value, kw_only=True):
    """Differences between requests as configured and as sent."""

    recorded_notes: tuple[str, ...] = ()
    """Adjustments of this run's requests, each recorded once."""
    adjusted_now: tuple[str, ...] = ()  # those of the next request, whose notes repeat them
    refused_adjustments: tuple[str, ...] = ()
    """Adjustments that end the run because `on_adjusted="error"`."""
    reported_changes: tuple[str, ...] = ()
    """What the provider of the latest reply changed in its request, to be recorded."""
    prefix_change: PrefixMoved | None = None
    """Change of the prompt's prefix found before the next request."""
    step_options: StepOptions | None = None  # chosen by functions for the latest step


class RunEnd(Value, kw_only=True):
    """The end of a run and its answer."""

    stop: RunStop | None = None
    reason: str = ""
    answer: str = ""


class Run(Value, kw_only=True):
    """Everything that belongs to the current prompt."""

    origin: RunOrigin = RunOrigin()
    prompt: CurrentPrompt = CurrentPrompt()
    budget: BudgetUse = BudgetUse()
    attempt: Attempt = Attempt()
    random_draw: float = 1.0
    """Random number recorded with the last failure; the backoff uses it."""
    route: ModelRoute = ModelRoute()
    refusals: EndpointRefusals = EndpointRefusals()
    evaluation: ReplyEvaluation = ReplyEvaluation()
    adjustments: RequestAdjustments = RequestAdjustments()
    compaction: CompactionProgress = CompactionProgress()
    compensations: tuple[Compensation, ...] = ()
    """Completed calls that can be undone, in order of completion."""
    conclusion: RunConclusion | None = None
    """The end that a tool asked for; the run ends when no call is running any more."""
    end: RunEnd = RunEnd()


class SessionIdentity(Value, kw_only=True):
    """The id and the owner of a session."""

    id: str = ""
    owner: str | None = None  # tenant of the first prompt; None before that


class JudgedPrompt(Value, kw_only=True):
    """The part of the prompt that a `before_model` hook has decided about."""

    hook: str
    message_count: int = 0
    """Messages of the transcript, from its beginning."""
    head: str = ""
    """Digest of the texts outside the conversation."""
    failed_count: int = 0
    """Messages of the transcript when it failed last; 0 if it has decided since."""
    failed_prompt: int = 0
    """Number of the prompt at which it failed."""


class Conversation(Value, kw_only=True):
    """The transcript and its view: the same messages as models see them."""

    transcript: Transcript = Transcript()
    view: tuple[Message, ...] = ()
    """The transcript as models see it: the same messages, with the recorded changes."""
    prompt_ids: tuple[str, ...] = ()
    """Ids of the prompts."""
    instruction_ids: tuple[str, ...] = ()  # messages with instructions of agents that took over
    hidden_ids: tuple[str, ...] = ()  # of the prompts and those messages, the ones that a hand-over hid
    view_changes: tuple[ViewChanged | Compacted, ...] = ()
    """All changes of the view, for every model."""
    summarized_count: int = 0
    """Messages of the transcript that a summary replaces in the view."""
    changed_parts: frozenset[PartRef] = frozenset()
    """Parts of the transcript that differ in the view."""
    stale_ranges: tuple[tuple[int, int], ...] = ()
    """Ranges of the transcript whose earlier context changed after they were written."""
    unsupported_parts: tuple[UnsupportedPart, ...] = ()
    """Parts of the view that the current model does not accept."""
    picture_count: int = 0
    """Pictures from tools in the view."""
    imported_instructions: str = ""  # system prompt of the imported history
    judged: tuple[JudgedPrompt, ...] = ()
    """What each `before_model` hook has decided about."""
    head_edits: tuple[HeadEdit, ...] = ()
    """Edits of texts outside the conversation by hooks."""
    withheld_ids: tuple[str, ...] = ()
    """Messages that a hook refused; placeholders are sent in their place."""


class ToolVisibility(Value, kw_only=True):
    """The hidden tools that were revealed to the model, and those to reveal next."""

    revealed: tuple[str, ...] = ()
    """Hidden tools that were revealed, in order; some may no longer be in the settings."""
    revealed_at: tuple[int, ...] = ()
    """Number of messages when each of them was revealed."""
    searched: bool = False  # the first prompt was used to search for tools
    to_reveal: tuple[str, ...] = ()
    """Hidden tools that the model found or called; they are revealed before the next request."""
    server_reports: tuple[ToolsChanged, ...] = ()  # the latest about each server, without added tools


class CallBatch(Value, kw_only=True):
    """The open calls of one reply; a fresh value when their results are appended."""

    pending: tuple[PendingCall, ...] = ()
    tools_started: bool = False
    """A tool was started for this batch; every call that needs no tool was answered before that."""


class SessionCalls(Value, kw_only=True):
    """The open calls, and the earlier calls that later ones depend on."""

    batch: CallBatch = CallBatch()
    receipts: tuple[Receipt, ...] = ()
    """Completed `once_per` calls; a repeated call returns their result."""
    in_doubt: tuple[CallInDoubt, ...] = ()
    """Calls whose effect is unknown."""
    stored_results: tuple[StoredResult, ...] = ()
    """Results whose transcript entry is an excerpt; `read_result` may read these."""
    request_hash: str = ""
    """Hash of the latest `ModelAsked` record; idempotency keys of its calls derive from it."""


class CacheState(Value, kw_only=True):
    """The prompt cache and the conversation that a provider stores."""

    history: CacheHistory = CacheHistory()
    last_request: RequestSnapshot | None = None
    """None before the first request, and when the next request is known to have another prefix."""
    server_conversation: ServerConversation | None = None
    """The provider's conversation object, if one is used."""
    stored_prompt: PromptStored | PromptDropped | None = None
    chained_from: int = 0
    """Number of messages when the provider first stored replies."""


class TokenEstimate(Value, kw_only=True):
    """The estimated size of the next prompt and the context windows that servers named."""

    prompt_tokens: int = 0
    """Estimate of the next prompt: the provider's last count plus what was added since."""
    counted_tokens: int = 0
    """Part of the estimate that a provider counted; the rest is conservative."""
    margin_tokens: int = 0
    """Assumed overestimate since the last compaction."""
    reported_windows: tuple[tuple[str, int], ...] = ()
    """Smaller context windows that servers named when they rejected a prompt, by model key."""


class SessionTotals(Value, kw_only=True):
    """Spending, time and replies of all runs of a session."""

    spent: Spending = Spending()
    nested_spent: Spending = Spending()
    """Spending of runs inside this session's tools; not part of `spent`."""
    earlier_seconds: float = 0.0
    """Duration of all earlier runs."""
    reply_count: int = 0


class State(Value, kw_only=True):
    """A session after its last event."""

    phase: Phase = Phase.NEW
    identity: SessionIdentity = SessionIdentity()
    settings: Settings = Settings()
    conversation: Conversation = Conversation()
    tools: ToolVisibility = ToolVisibility()
    calls: SessionCalls = SessionCalls()
    memory: MemoryState = MemoryState()
    cache: CacheState = CacheState()
    estimate: TokenEstimate = TokenEstimate()
    totals: SessionTotals = SessionTotals()
    run: Run = Run()
    now: float = 0.0  # time of the newest event; the core has no other clock
