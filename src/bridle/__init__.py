"""Bridle: a model-agnostic agent harness.  One log, a pure core, a byte-stable wire.

Every public name is listed here once and found in its module when it is first used:
importing the package does nothing and costs next to nothing.
"""

import time
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle import evals as evals
    from bridle import hosted as hosted
    from bridle import mcp as mcp
    from bridle import serve as serve
    from bridle import toolkit as toolkit
    from bridle.config.agent_file import load_agent as load_agent
    from bridle.ports.run_context import RunContext as RunContext
    from bridle.ports.span_exporter import SpanExporter as SpanExporter
    from bridle.ports.store import Store as Store
    from bridle.ports.tool import Tool as Tool
    from bridle.ports.tool_index import ToolIndex as ToolIndex
    from bridle.ports.watcher import Watcher as Watcher
    from bridle.run.agent import Agent as Agent
    from bridle.run.archive.audit import audit_session as audit_session
    from bridle.run.archive.erase import Erasure as Erasure
    from bridle.run.archive.erase import erase_caller as erase_caller
    from bridle.run.archive.redact import redact_record as redact_record
    from bridle.run.archive.redact_notes import redact_note as redact_note
    from bridle.run.archive.transfer import export_session as export_session
    from bridle.run.archive.transfer import import_session as import_session
    from bridle.run.budget.shared import SharedBudget as SharedBudget
    from bridle.run.budget.stored import StoredBudget as StoredBudget
    from bridle.run.calls.approval import wait_for_answers as wait_for_answers
    from bridle.run.calls.code_mode import CodeMode as CodeMode
    from bridle.run.calls.handover import Handover as Handover
    from bridle.run.context.instructions import per_turn as per_turn
    from bridle.run.context.prompt_template import PromptTemplate as PromptTemplate
    from bridle.run.context.run_options import RunOptions as RunOptions
    from bridle.run.context.telemetry import flush_telemetry as flush_telemetry
    from bridle.run.control.requests import SessionControl as SessionControl
    from bridle.run.control.requests import control as control
    from bridle.run.history import export_history as export_history
    from bridle.run.history import import_history as import_history
    from bridle.run.lineage import compare_sessions as compare_sessions
    from bridle.run.lineage import fork_session as fork_session
    from bridle.run.lineage import list_branches as list_branches
    from bridle.run.memory.notes import Notes as Notes
    from bridle.run.memory.retrieval import Retrieval as Retrieval
    from bridle.run.replay.replay_session import fork_at_difference as fork_at_difference
    from bridle.run.replay.replay_session import replay as replay
    from bridle.run.replay.replay_session import replay_sync as replay_sync
    from bridle.run.replay.sent_calls import read_call as read_call
    from bridle.run.stream import RunHandle as RunHandle
    from bridle.run.stream import RunView as RunView
    from bridle.run.stream import Stream as Stream
    from bridle.run.stream import to_sse as to_sse
    from bridle.tools.external_tool import ExternalTool as ExternalTool
    from bridle.tools.external_tool import external_tool as external_tool
    from bridle.tools.function.function_tool import tool as tool
    from bridle.tools.function.options import ToolOptions as ToolOptions
    from bridle.tools.function.raw_tool import RawTool as RawTool
    from bridle.tools.function.threads import limit_threads as limit_threads
    from bridle.tools.function.typed_tool import TypedTool as TypedTool
    from bridle.tools.process.command_tool import CommandTool as CommandTool
    from bridle.tools.process.run_process import ProcessResult as ProcessResult
    from bridle.tools.process.run_process import run_process as run_process
    from bridle.transports.deadlines import Deadlines as Deadlines
    from bridle.values.budget import Amount as Amount
    from bridle.values.budget import BudgetReserved as BudgetReserved
    from bridle.values.budget import BudgetSettled as BudgetSettled
    from bridle.values.budget import BudgetSnapshot as BudgetSnapshot
    from bridle.values.budget import Subrun as Subrun
    from bridle.values.budget import SubrunCharged as SubrunCharged
    from bridle.values.budget import SubrunStarted as SubrunStarted
    from bridle.values.budget import SubrunWaiting as SubrunWaiting
    from bridle.values.cache import CacheDegraded as CacheDegraded
    from bridle.values.cache import PromptDropped as PromptDropped
    from bridle.values.cache import PromptStored as PromptStored
    from bridle.values.calls import ApprovalVerdict as ApprovalVerdict
    from bridle.values.calls import Compensation as Compensation
    from bridle.values.calls import PendingApproval as PendingApproval
    from bridle.values.calls import PermissionRule as PermissionRule
    from bridle.values.calls import Policy as Policy
    from bridle.values.errors import BadTool as BadTool
    from bridle.values.errors import BridleError as BridleError
    from bridle.values.errors import Conflict as Conflict
    from bridle.values.errors import Corrupt as Corrupt
    from bridle.values.errors import EndRun as EndRun
    from bridle.values.errors import Failure as Failure
    from bridle.values.errors import MissingKey as MissingKey
    from bridle.values.errors import MisuseError as MisuseError
    from bridle.values.errors import ModelRetry as ModelRetry
    from bridle.values.errors import OutcomeUnknown as OutcomeUnknown
    from bridle.values.errors import ProviderError as ProviderError
    from bridle.values.errors import SessionNotFound as SessionNotFound
    from bridle.values.errors import StoreError as StoreError
    from bridle.values.errors import UnknownModel as UnknownModel
    from bridle.values.errors import Unusable as Unusable
    from bridle.values.events import ApprovalAnswered as ApprovalAnswered
    from bridle.values.events import ApprovalAsked as ApprovalAsked
    from bridle.values.events import CallReviewed as CallReviewed
    from bridle.values.events import Compacted as Compacted
    from bridle.values.events import CompensationFinished as CompensationFinished
    from bridle.values.events import CompensationStarted as CompensationStarted
    from bridle.values.events import Configured as Configured
    from bridle.values.events import ContentRedacted as ContentRedacted
    from bridle.values.events import ControlRefused as ControlRefused
    from bridle.values.events import ControlRequested as ControlRequested
    from bridle.values.events import Forked as Forked
    from bridle.values.events import Imported as Imported
    from bridle.values.events import LogRepaired as LogRepaired
    from bridle.values.events import ModelAsked as ModelAsked
    from bridle.values.events import ModelFailed as ModelFailed
    from bridle.values.events import ModelReplied as ModelReplied
    from bridle.values.events import ModelSwitched as ModelSwitched
    from bridle.values.events import OptionsChosen as OptionsChosen
    from bridle.values.events import OutputChecked as OutputChecked
    from bridle.values.events import PauseRequested as PauseRequested
    from bridle.values.events import PrefixMoved as PrefixMoved
    from bridle.values.events import Prompted as Prompted
    from bridle.values.events import Reprompted as Reprompted
    from bridle.values.events import RequestAdjusted as RequestAdjusted
    from bridle.values.events import Resumed as Resumed
    from bridle.values.events import RunEnded as RunEnded
    from bridle.values.events import ServerAnswered as ServerAnswered
    from bridle.values.events import ServerAsked as ServerAsked
    from bridle.values.events import Steered as Steered
    from bridle.values.events import SteeringTaken as SteeringTaken
    from bridle.values.events import ToolFinished as ToolFinished
    from bridle.values.events import ToolInterrupted as ToolInterrupted
    from bridle.values.events import ToolProbed as ToolProbed
    from bridle.values.events import ToolsChanged as ToolsChanged
    from bridle.values.events import ToolsRevealed as ToolsRevealed
    from bridle.values.events import ToolStarted as ToolStarted
    from bridle.values.events import TrialScored as TrialScored
    from bridle.values.events import UnknownEvent as UnknownEvent
    from bridle.values.events import ViewChanged as ViewChanged
    from bridle.values.hooks import Answer as Answer
    from bridle.values.hooks import Change as Change
    from bridle.values.hooks import FinishedRun as FinishedRun
    from bridle.values.hooks import HeadText as HeadText
    from bridle.values.hooks import HookDecided as HookDecided
    from bridle.values.hooks import HookDecision as HookDecision
    from bridle.values.hooks import HookSpec as HookSpec
    from bridle.values.hooks import ModelInput as ModelInput
    from bridle.values.hooks import Refuse as Refuse
    from bridle.values.lineage import Branch as Branch
    from bridle.values.lineage import Comparison as Comparison
    from bridle.values.lineage import CrossTenant as CrossTenant
    from bridle.values.lineage import Divergence as Divergence
    from bridle.values.lineage import Fork as Fork
    from bridle.values.lineage import RecordedCall as RecordedCall
    from bridle.values.lineage import Replay as Replay
    from bridle.values.lineage import RequestDifference as RequestDifference
    from bridle.values.memory import Chunk as Chunk
    from bridle.values.memory import ContextRetrieved as ContextRetrieved
    from bridle.values.memory import InstructionWritten as InstructionWritten
    from bridle.values.memory import Memory as Memory
    from bridle.values.memory import MemoryLoaded as MemoryLoaded
    from bridle.values.memory import Note as Note
    from bridle.values.memory import NoteRemoved as NoteRemoved
    from bridle.values.memory import NoteWritten as NoteWritten
    from bridle.values.memory import Query as Query
    from bridle.values.message import Media as Media
    from bridle.values.message import Message as Message
    from bridle.values.message import Opaque as Opaque
    from bridle.values.message import RawCall as RawCall
    from bridle.values.message import Reasoning as Reasoning
    from bridle.values.message import Reply as Reply
    from bridle.values.message import Stop as Stop
    from bridle.values.message import Text as Text
    from bridle.values.message import ToolCall as ToolCall
    from bridle.values.message import ToolResult as ToolResult
    from bridle.values.message import Transcript as Transcript
    from bridle.values.model import Model as Model
    from bridle.values.record import Record as Record
    from bridle.values.request import Sampling as Sampling
    from bridle.values.request import Thinking as Thinking
    from bridle.values.request import ToolChoice as ToolChoice
    from bridle.values.result import AttemptRestarted as AttemptRestarted
    from bridle.values.result import CallReady as CallReady
    from bridle.values.result import DeltasSkipped as DeltasSkipped
    from bridle.values.result import DoneResult as DoneResult
    from bridle.values.result import FinalAnswer as FinalAnswer
    from bridle.values.result import History as History
    from bridle.values.result import PartialOutput as PartialOutput
    from bridle.values.result import Progress as Progress
    from bridle.values.result import ReasoningDelta as ReasoningDelta
    from bridle.values.result import Result as Result
    from bridle.values.result import RunStopped as RunStopped
    from bridle.values.result import SubrunDelta as SubrunDelta
    from bridle.values.result import SubrunItem as SubrunItem
    from bridle.values.result import TextDelta as TextDelta
    from bridle.values.result import ToolCallDelta as ToolCallDelta
    from bridle.values.settings import Compaction as Compaction
    from bridle.values.settings import KeepRaw as KeepRaw
    from bridle.values.usage import Budget as Budget
    from bridle.values.usage import Limits as Limits
    from bridle.values.usage import RateLimit as RateLimit
    from bridle.values.usage import Usage as Usage
    from bridle.watchers.content_filter import RedactingWatcher as RedactingWatcher
    from bridle.watchers.jsonl import JsonLines as JsonLines
    from bridle.watchers.log_lines import LogLines as LogLines
    from bridle.watchers.notebook import NotebookView as NotebookView
    from bridle.watchers.otel.prometheus import PrometheusMetrics as PrometheusMetrics
    from bridle.watchers.otel.settings import Telemetry as Telemetry

__version__ = "0.1.0"
__loaded_at__ = time.time()

_HOMES = {
    "config.agent_file": ("load_agent",),
    "ports.run_context": ("RunContext",),
    "ports.store": ("Store",),
    "ports.tool": ("Tool",),
    "ports.span_exporter": ("SpanExporter",),
    "ports.tool_index": ("ToolIndex",),
    "ports.watcher": ("Watcher",),
    "run.agent": ("Agent",),
    "run.archive.audit": ("audit_session",),
    "run.archive.erase": ("Erasure", "erase_caller"),
    "run.archive.redact": ("redact_record",),
    "run.archive.redact_notes": ("redact_note",),
    "run.archive.transfer": ("export_session", "import_session"),
    "run.budget.shared": ("SharedBudget",),
    "run.budget.stored": ("StoredBudget",),
    "run.calls.code_mode": ("CodeMode",),
    "run.calls.approval": ("wait_for_answers",),
    "run.calls.handover": ("Handover",),
    "run.context.instructions": ("per_turn",),
    "run.context.prompt_template": ("PromptTemplate",),
    "run.context.run_options": ("RunOptions",),
    "run.control.requests": ("SessionControl", "control"),
    "run.history": ("export_history", "import_history"),
    "run.lineage": ("compare_sessions", "fork_session", "list_branches"),
    "run.memory.notes": ("Notes",),
    "run.memory.retrieval": ("Retrieval",),
    "run.replay.replay_session": ("fork_at_difference", "replay", "replay_sync"),
    "run.replay.sent_calls": ("read_call",),
    "run.stream": ("RunHandle", "RunView", "Stream", "to_sse"),
    "run.context.telemetry": ("flush_telemetry",),
    "tools.external_tool": ("ExternalTool", "external_tool"),
    "tools.function.function_tool": ("tool",),
    "tools.function.options": ("ToolOptions",),
    "tools.function.raw_tool": ("RawTool",),
    "tools.function.threads": ("limit_threads",),
    "tools.function.typed_tool": ("TypedTool",),
    "tools.process.command_tool": ("CommandTool",),
    "tools.process.run_process": ("ProcessResult", "run_process"),
    "transports.deadlines": ("Deadlines",),
    "values.budget": (
        "Amount", "BudgetReserved", "BudgetSettled", "BudgetSnapshot", "Subrun", "SubrunCharged",
        "SubrunStarted", "SubrunWaiting",
    ),
    "values.cache": ("CacheDegraded", "PromptDropped", "PromptStored"),
    "values.calls": ("ApprovalVerdict", "Compensation", "PendingApproval", "PermissionRule", "Policy"),
    "values.errors": (
        "BadTool", "BridleError", "Conflict", "Corrupt", "EndRun", "Failure", "MissingKey", "MisuseError",
        "ModelRetry", "OutcomeUnknown", "ProviderError", "SessionNotFound", "StoreError", "UnknownModel", "Unusable",
    ),
    "values.events": (
        "ApprovalAnswered", "ApprovalAsked", "CallReviewed", "Compacted", "CompensationFinished",
        "CompensationStarted", "Configured", "ContentRedacted", "ControlRefused", "ControlRequested", "Forked",
        "Imported", "LogRepaired", "ModelAsked",
        "ModelFailed", "ModelReplied", "ModelSwitched", "OptionsChosen", "OutputChecked", "PauseRequested",
        "PrefixMoved", "Prompted", "Reprompted", "RequestAdjusted", "Resumed", "RunEnded", "ServerAnswered",
        "ServerAsked", "Steered", "SteeringTaken",
        "ToolFinished", "ToolInterrupted", "ToolProbed", "ToolStarted", "ToolsChanged", "ToolsRevealed",
        "TrialScored", "UnknownEvent", "ViewChanged",
    ),
    "values.lineage": (
        "Branch", "Comparison", "CrossTenant", "Divergence", "Fork", "RecordedCall", "Replay", "RequestDifference",
    ),
    "values.memory": (
        "Chunk", "ContextRetrieved", "InstructionWritten", "Memory", "MemoryLoaded", "Note",
        "NoteRemoved", "NoteWritten", "Query",
    ),
    "values.hooks": (
        "Answer", "Change", "FinishedRun", "HeadText", "HookDecided", "HookDecision", "HookSpec", "ModelInput",
        "Refuse",
    ),
    "values.message": (
        "Media", "Message", "Opaque", "RawCall", "Reasoning", "Reply", "Stop", "Text", "ToolCall",
        "ToolResult", "Transcript",
    ),
    "values.model": ("Model",),
    "values.record": ("Record",),
    "values.request": ("Sampling", "Thinking", "ToolChoice"),
    "values.result": (
        "AttemptRestarted", "CallReady", "DeltasSkipped", "DoneResult", "FinalAnswer", "History",
        "Progress", "PartialOutput", "ReasoningDelta", "Result", "RunStopped", "SubrunDelta",
        "SubrunItem", "TextDelta", "ToolCallDelta",
    ),
    "values.settings": ("Compaction", "KeepRaw"),
    "values.usage": ("Budget", "Limits", "RateLimit", "Usage"),
    "watchers.content_filter": ("RedactingWatcher",),
    "watchers.jsonl": ("JsonLines",),
    "watchers.log_lines": ("LogLines",),
    "watchers.notebook": ("NotebookView",),
    "watchers.otel.prometheus": ("PrometheusMetrics",),
    "watchers.otel.settings": ("Telemetry",),
}  # fmt: skip
_SUBMODULES = ("evals", "hosted", "mcp", "serve", "toolkit")
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
