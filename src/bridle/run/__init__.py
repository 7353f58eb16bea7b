"""Drives sessions: carries out what core decides, awaits, stamps time and writes the log.

Importing the package loads nothing.  `Agent` finds what it calls here; all of it is loaded when the first agent is
made, so a program that only imports `Agent` starts quickly.

Does not belong here: any decision about what happens next (core).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agent_settings import AgentInputs as AgentInputs
    from .agent_settings import check_options as check_options
    from .agent_settings import load_policy as load_policy
    from .agent_settings import make_parts as make_parts
    from .agent_settings import renew_addresses as renew_addresses
    from .agent_settings import resolve_summarizer as resolve_summarizer
    from .budget.nested import apply_parent_context as apply_parent_context
    from .budget.nested import current_nested_run as current_nested_run
    from .budget.sources import check_pool as check_pool
    from .budget.sources import check_shared_limits as check_shared_limits
    from .calls.agent_tool import AgentTool as AgentTool
    from .calls.approval import encode_arguments as encode_arguments
    from .calls.code_mode import BoundCodeMode as BoundCodeMode
    from .calls.handover import SessionOptions as SessionOptions
    from .calls.handover import add_handover_tools as add_handover_tools
    from .calls.handover import check_run_output as check_run_output
    from .calls.handover import collect_handovers as collect_handovers
    from .clock import SystemClock as SystemClock
    from .context.registered_hooks import register_hooks as register_hooks
    from .context.resources import RunResources as RunResources
    from .context.run_context import check_context as check_context
    from .context.run_context import list_certain_needs as list_certain_needs
    from .context.run_options import RunOptions as RunOptions
    from .context.run_options import find_output_type as find_output_type
    from .context.run_options import open_to_resume as open_to_resume
    from .context.run_options import override_parts as override_parts
    from .lineage import compare_sessions as compare_sessions
    from .lineage import fork_session as fork_session
    from .lineage import list_branches as list_branches
    from .memory.notes import Notes as Notes
    from .memory.retrieval import Retriever as Retriever
    from .override import Overrides as Overrides
    from .override import override_agent as override_agent
    from .private_extras import check_extras as check_extras
    from .result import make_session_result as make_session_result
    from .session import ResumeFlags as ResumeFlags
    from .stream import Stream as Stream
    from .sync import SyncStream as SyncStream
    from .sync import run_in_background as run_in_background
    from .validate_input import check_given as check_given
    from .validate_input import check_hosted_tools as check_hosted_tools
    from .validate_input import check_session as check_session
    from .validate_input import check_types as check_types
    from .validate_input import make_prompted as make_prompted
    from .validate_input import resolve_session as resolve_session

_WHERE = {
    "AgentInputs": "agent_settings",
    "AgentTool": "calls.agent_tool",
    "BoundCodeMode": "calls.code_mode",
    "Notes": "memory.notes",
    "Overrides": "override",
    "ResumeFlags": "session",
    "Retriever": "memory.retrieval",
    "RunOptions": "context.run_options",
    "RunResources": "context.resources",
    "SessionOptions": "calls.handover",
    "Stream": "stream",
    "SyncStream": "sync",
    "SystemClock": "clock",
    "add_handover_tools": "calls.handover",
    "apply_parent_context": "budget.nested",
    "check_context": "context.run_context",
    "check_extras": "private_extras",
    "check_given": "validate_input",
    "check_hosted_tools": "validate_input",
    "check_options": "agent_settings",
    "check_pool": "budget.sources",
    "check_run_output": "calls.handover",
    "check_session": "validate_input",
    "check_shared_limits": "budget.sources",
    "check_types": "validate_input",
    "collect_handovers": "calls.handover",
    "compare_sessions": "lineage",
    "current_nested_run": "budget.nested",
    "encode_arguments": "calls.approval",
    "find_output_type": "context.run_options",
    "fork_session": "lineage",
    "list_branches": "lineage",
    "list_certain_needs": "context.run_context",
    "load_policy": "agent_settings",
    "make_parts": "agent_settings",
    "make_prompted": "validate_input",
    "make_session_result": "result",
    "open_to_resume": "context.run_options",
    "override_agent": "override",
    "override_parts": "context.run_options",
    "register_hooks": "context.registered_hooks",
    "renew_addresses": "agent_settings",
    "resolve_session": "validate_input",
    "resolve_summarizer": "agent_settings",
    "run_in_background": "sync",
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for each, module in _WHERE.items():
        globals()[each] = getattr(import_module(f".{module}", __name__), each)
    return globals()[name]
