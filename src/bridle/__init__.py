"""Bridle: a model-agnostic agent harness.  One log, a pure core, a byte-stable wire.

Every public name is listed here once and found in its module when it is first used: importing the package does
nothing and costs next to nothing.  Names for a purpose are in modules of their own:

    bridle.events      what a log records and a stream yields
    bridle.sessions    fork, compare, replay, export, audit, redact, control
    bridle.tools       kinds of tools, and programs
    bridle.toolkit     ready-made tools
    bridle.mcp         servers of tools
    bridle.hosted      tools that providers run
    bridle.hooks       decisions at five points of a run
    bridle.memory      notes and retrieval
    bridle.messages    parts of messages and replies
    bridle.errors      what Bridle raises
    bridle.watchers    log lines, files, metrics, notebooks
    bridle.testing     fake models and conformance kits
    bridle.serve       agents over HTTP
    bridle.evals       evaluations
"""

import time
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle import errors as errors
    from bridle import evals as evals
    from bridle import events as events
    from bridle import hooks as hooks
    from bridle import hosted as hosted
    from bridle import mcp as mcp
    from bridle import memory as memory
    from bridle import messages as messages
    from bridle import serve as serve
    from bridle import sessions as sessions
    from bridle import testing as testing
    from bridle import toolkit as toolkit
    from bridle import tools as tools
    from bridle import watchers as watchers
    from bridle.config.agent_file import load_agent as load_agent
    from bridle.ports.run_context import RunContext as RunContext
    from bridle.ports.store import Store as Store
    from bridle.ports.tool import Tool as Tool
    from bridle.ports.watcher import Watcher as Watcher
    from bridle.run.agent import Agent
    from bridle.run.budget.shared import SharedBudget as SharedBudget
    from bridle.run.budget.stored import StoredBudget as StoredBudget
    from bridle.run.calls.code_mode import CodeMode as CodeMode
    from bridle.run.calls.handover import Handover as Handover
    from bridle.run.context.instructions import per_turn as per_turn
    from bridle.run.context.prompt_template import PromptTemplate as PromptTemplate
    from bridle.run.context.run_options import RunOptions as RunOptions
    from bridle.run.context.telemetry import flush_telemetry
    from bridle.run.memory.retrieval import Retrieval as Retrieval
    from bridle.run.model_connection import ModelConnection
    from bridle.run.stream import RunHandle as RunHandle
    from bridle.run.stream import Stream as Stream
    from bridle.run.stream import to_sse as to_sse
    from bridle.tools.function.function_tool import tool as tool
    from bridle.transports.deadlines import Deadlines as Deadlines
    from bridle.values.calls import Compensation as Compensation
    from bridle.values.calls import PendingApproval as PendingApproval
    from bridle.values.calls import PermissionRule as PermissionRule
    from bridle.values.calls import Policy as Policy
    from bridle.values.errors import BridleError as BridleError
    from bridle.values.errors import EndRun as EndRun
    from bridle.values.errors import MisuseError as MisuseError
    from bridle.values.errors import ModelRetry as ModelRetry
    from bridle.values.errors import OutcomeUnknown as OutcomeUnknown
    from bridle.values.errors import ProviderError as ProviderError
    from bridle.values.errors import StoreError as StoreError
    from bridle.values.memory import Memory as Memory
    from bridle.values.message import Media as Media
    from bridle.values.message import Message as Message
    from bridle.values.message import Reasoning as Reasoning
    from bridle.values.message import Reply as Reply
    from bridle.values.message import Text as Text
    from bridle.values.message import ToolCall as ToolCall
    from bridle.values.message import ToolResult as ToolResult
    from bridle.values.message import Transcript as Transcript
    from bridle.values.model import Model as Model
    from bridle.values.request import Extra
    from bridle.values.request import Sampling as Sampling
    from bridle.values.request import Thinking as Thinking
    from bridle.values.request import ToolChoice as ToolChoice
    from bridle.values.result import DoneResult as DoneResult
    from bridle.values.result import FinalAnswer as FinalAnswer
    from bridle.values.result import History as History
    from bridle.values.result import Result as Result
    from bridle.values.result import RunStopped as RunStopped
    from bridle.values.result import TextDelta as TextDelta
    from bridle.values.settings import Compaction as Compaction
    from bridle.values.settings import KeepRaw as KeepRaw
    from bridle.values.usage import Budget as Budget
    from bridle.values.usage import Limits as Limits
    from bridle.values.usage import RateLimit as RateLimit
    from bridle.values.usage import Usage as Usage
    from bridle.watchers.otel.settings import Telemetry as Telemetry

__version__ = "0.1.0"
__loaded_at__ = time.time()

_HOMES = {
    "run.context.telemetry": ("flush_telemetry",),
    "run.model_connection": ("ModelConnection",),
    "config.agent_file": ("load_agent",),
    "ports.run_context": ("RunContext",),
    "ports.store": ("Store",),
    "ports.tool": ("Tool",),
    "ports.watcher": ("Watcher",),
    "run.agent": ("Agent",),
    "run.budget.shared": ("SharedBudget",),
    "run.budget.stored": ("StoredBudget",),
    "run.calls.code_mode": ("CodeMode",),
    "run.calls.handover": ("Handover",),
    "run.context.instructions": ("per_turn",),
    "run.context.prompt_template": ("PromptTemplate",),
    "run.context.run_options": ("RunOptions",),
    "run.memory.retrieval": ("Retrieval",),
    "run.stream": (
        "RunHandle",
        "Stream",
        "to_sse",
    ),
    "tools.function.function_tool": ("tool",),
    "transports.deadlines": ("Deadlines",),
    "values.calls": (
        "Compensation",
        "PendingApproval",
        "PermissionRule",
        "Policy",
    ),
    "values.errors": (
        "BridleError",
        "EndRun",
        "MisuseError",
        "ModelRetry",
        "OutcomeUnknown",
        "ProviderError",
        "StoreError",
    ),
    "values.memory": ("Memory",),
    "values.message": (
        "Media",
        "Message",
        "Reasoning",
        "Reply",
        "Text",
        "ToolCall",
        "ToolResult",
        "Transcript",
    ),
    "values.model": ("Model",),
    "values.request": (
        "Extra",
        "Sampling",
        "Thinking",
        "ToolChoice",
    ),
    "values.result": (
        "DoneResult",
        "FinalAnswer",
        "History",
        "Result",
        "RunStopped",
        "TextDelta",
    ),
    "values.settings": (
        "Compaction",
        "KeepRaw",
    ),
    "values.usage": (
        "Budget",
        "Limits",
        "RateLimit",
        "Usage",
    ),
    "watchers.otel.settings": ("Telemetry",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_SUBMODULES = (
    "errors",
    "evals",
    "events",
    "hooks",
    "hosted",
    "mcp",
    "memory",
    "messages",
    "serve",
    "sessions",
    "testing",
    "toolkit",
    "tools",
    "watchers",
)

__all__ = [
    "Agent",
    "BridleError",
    "Budget",
    "CodeMode",
    "Compaction",
    "Compensation",
    "Deadlines",
    "DoneResult",
    "EndRun",
    "Extra",
    "FinalAnswer",
    "Handover",
    "History",
    "KeepRaw",
    "Limits",
    "Media",
    "Memory",
    "Message",
    "MisuseError",
    "Model",
    "ModelConnection",
    "ModelRetry",
    "OutcomeUnknown",
    "PendingApproval",
    "PermissionRule",
    "Policy",
    "PromptTemplate",
    "ProviderError",
    "RateLimit",
    "Reasoning",
    "Reply",
    "Result",
    "Retrieval",
    "RunContext",
    "RunHandle",
    "RunOptions",
    "RunStopped",
    "Sampling",
    "SharedBudget",
    "Store",
    "StoreError",
    "StoredBudget",
    "Stream",
    "Telemetry",
    "Text",
    "TextDelta",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "Transcript",
    "Usage",
    "Watcher",
    "flush_telemetry",
    "load_agent",
    "per_turn",
    "to_sse",
    "tool",
]


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
    return sorted([*__all__, *_SUBMODULES, "__version__"])
