"""Bridle: a model-agnostic agent harness.  One log, a pure core, a byte-stable wire.

Every public name is listed here once and found in its module when it is first used:
importing the package does nothing and costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ports.index import ToolIndex as ToolIndex
    from .ports.store import Store as Store
    from .ports.tool import CallContext as CallContext
    from .ports.tool import Tool as Tool
    from .ports.watcher import Watcher as Watcher
    from .run.agent import Agent as Agent
    from .run.gathering import Retrieval as Retrieval
    from .run.history import export_history as export_history
    from .run.history import import_history as import_history
    from .run.lineage import branches as branches
    from .run.lineage import compare_sessions as compare_sessions
    from .run.lineage import fork_session as fork_session
    from .run.notes import Notes as Notes
    from .run.pool import SharedBudget as SharedBudget
    from .run.stream import Running as Running
    from .run.stream import Stream as Stream
    from .run.stream import View as View
    from .run.till import StoredBudget as StoredBudget
    from .tools.command import CommandTool as CommandTool
    from .tools.conduct import ToolOptions as ToolOptions
    from .tools.function import tool as tool
    from .tools.process import ProcessResult as ProcessResult
    from .tools.process import run_process as run_process
    from .tools.raw import RawTool as RawTool
    from .tools.typed import TypedTool as TypedTool
    from .transports.deadlines import Deadlines as Deadlines
    from .values.approval import PendingApproval as PendingApproval
    from .values.approval import Verdict as Verdict
    from .values.cached import CacheDegraded as CacheDegraded
    from .values.cached import PromptDropped as PromptDropped
    from .values.cached import PromptKept as PromptKept
    from .values.compaction import Compaction as Compaction
    from .values.compensation import Compensation as Compensation
    from .values.delta import AttemptRestarted as AttemptRestarted
    from .values.delta import CallReady as CallReady
    from .values.delta import ReasoningDelta as ReasoningDelta
    from .values.delta import Skipped as Skipped
    from .values.delta import TextDelta as TextDelta
    from .values.delta import ToolCallDelta as ToolCallDelta
    from .values.errors import BadTool as BadTool
    from .values.errors import BridleError as BridleError
    from .values.errors import Conflict as Conflict
    from .values.errors import Corrupt as Corrupt
    from .values.errors import Failure as Failure
    from .values.errors import MissingKey as MissingKey
    from .values.errors import MisuseError as MisuseError
    from .values.errors import ProviderError as ProviderError
    from .values.errors import SessionNotFound as SessionNotFound
    from .values.errors import StoreError as StoreError
    from .values.errors import UnknownModel as UnknownModel
    from .values.errors import Unusable as Unusable
    from .values.event import ApprovalAnswered as ApprovalAnswered
    from .values.event import ApprovalAsked as ApprovalAsked
    from .values.event import CallReviewed as CallReviewed
    from .values.event import Compacted as Compacted
    from .values.event import CompensationFinished as CompensationFinished
    from .values.event import CompensationStarted as CompensationStarted
    from .values.event import Configured as Configured
    from .values.event import Imported as Imported
    from .values.event import ModelAsked as ModelAsked
    from .values.event import ModelFailed as ModelFailed
    from .values.event import ModelReplied as ModelReplied
    from .values.event import ModelSwitched as ModelSwitched
    from .values.event import Nudged as Nudged
    from .values.event import PrefixMoved as PrefixMoved
    from .values.event import Prompted as Prompted
    from .values.event import Repaired as Repaired
    from .values.event import RequestAdjusted as RequestAdjusted
    from .values.event import Resumed as Resumed
    from .values.event import RunEnded as RunEnded
    from .values.event import ToolFinished as ToolFinished
    from .values.event import ToolProbed as ToolProbed
    from .values.event import ToolsShown as ToolsShown
    from .values.event import ToolStarted as ToolStarted
    from .values.event import Unknown as Unknown
    from .values.event import ViewChanged as ViewChanged
    from .values.lineage import Branch as Branch
    from .values.lineage import Comparison as Comparison
    from .values.lineage import Fork as Fork
    from .values.lineage import Forked as Forked
    from .values.memory import Memory as Memory
    from .values.memory import MemoryLoaded as MemoryLoaded
    from .values.memory import Note as Note
    from .values.memory import NoteRemoved as NoteRemoved
    from .values.memory import NoteWritten as NoteWritten
    from .values.message import Message as Message
    from .values.message import Reply as Reply
    from .values.message import Stop as Stop
    from .values.message import Transcript as Transcript
    from .values.model import Model as Model
    from .values.parts import Media as Media
    from .values.parts import Opaque as Opaque
    from .values.parts import Reasoning as Reasoning
    from .values.parts import Text as Text
    from .values.parts import ToolCall as ToolCall
    from .values.parts import ToolResult as ToolResult
    from .values.policy import PermissionRule as PermissionRule
    from .values.policy import Policy as Policy
    from .values.pooled import Amount as Amount
    from .values.pooled import Carried as Carried
    from .values.pooled import Reserved as Reserved
    from .values.pooled import Settled as Settled
    from .values.record import Record as Record
    from .values.request import Sampling as Sampling
    from .values.request import Thinking as Thinking
    from .values.request import ToolChoice as ToolChoice
    from .values.result import FinalAnswer as FinalAnswer
    from .values.result import History as History
    from .values.result import Result as Result
    from .values.retrieval import Chunk as Chunk
    from .values.retrieval import ContextGathered as ContextGathered
    from .values.retrieval import Query as Query
    from .values.subrun import Subrun as Subrun
    from .values.subrun import SubrunCharged as SubrunCharged
    from .values.subrun import SubrunStarted as SubrunStarted
    from .values.tenancy import Across as Across
    from .values.usage import Budget as Budget
    from .values.usage import Limits as Limits
    from .values.usage import Usage as Usage

__version__ = "0.1.0"

_HOMES = {
    "ports.index": ("ToolIndex",),
    "ports.store": ("Store",),
    "ports.tool": ("CallContext", "Tool"),
    "ports.watcher": ("Watcher",),
    "run.agent": ("Agent",),
    "run.gathering": ("Retrieval",),
    "run.history": ("export_history", "import_history"),
    "run.lineage": ("branches", "compare_sessions", "fork_session"),
    "run.notes": ("Notes",),
    "run.pool": ("SharedBudget",),
    "run.till": ("StoredBudget",),
    "run.stream": ("Running", "Stream", "View"),
    "tools.command": ("CommandTool",),
    "tools.conduct": ("ToolOptions",),
    "tools.function": ("tool",),
    "tools.process": ("ProcessResult", "run_process"),
    "tools.raw": ("RawTool",),
    "tools.typed": ("TypedTool",),
    "transports.deadlines": ("Deadlines",),
    "values.approval": ("PendingApproval", "Verdict"),
    "values.cached": ("CacheDegraded", "PromptDropped", "PromptKept"),
    "values.compaction": ("Compaction",),
    "values.compensation": ("Compensation",),
    "values.delta": (
        "AttemptRestarted", "CallReady", "ReasoningDelta", "Skipped", "TextDelta", "ToolCallDelta",
    ),
    "values.errors": (
        "BadTool", "BridleError", "Conflict", "Corrupt", "Failure", "MissingKey", "MisuseError",
        "ProviderError", "SessionNotFound", "StoreError", "UnknownModel", "Unusable",
    ),
    "values.event": (
        "ApprovalAnswered", "ApprovalAsked", "CallReviewed", "Compacted", "CompensationFinished",
        "CompensationStarted", "Configured", "Imported", "ModelAsked", "ModelFailed", "ModelReplied",
        "ModelSwitched", "Nudged", "PrefixMoved", "Prompted", "Repaired", "RequestAdjusted", "Resumed",
        "RunEnded", "ToolFinished", "ToolProbed", "ToolStarted", "ToolsShown", "Unknown", "ViewChanged",
    ),
    "values.lineage": ("Branch", "Comparison", "Fork", "Forked"),
    "values.memory": ("Memory", "MemoryLoaded", "Note", "NoteRemoved", "NoteWritten"),
    "values.message": ("Message", "Reply", "Stop", "Transcript"),
    "values.model": ("Model",),
    "values.parts": ("Media", "Opaque", "Reasoning", "Text", "ToolCall", "ToolResult"),
    "values.policy": ("PermissionRule", "Policy"),
    "values.pooled": ("Amount", "Carried", "Reserved", "Settled"),
    "values.record": ("Record",),
    "values.request": ("Sampling", "Thinking", "ToolChoice"),
    "values.result": ("FinalAnswer", "History", "Result"),
    "values.retrieval": ("Chunk", "ContextGathered", "Query"),
    "values.subrun": ("Subrun", "SubrunCharged", "SubrunStarted"),
    "values.tenancy": ("Across",),
    "values.usage": ("Budget", "Limits", "Usage"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
