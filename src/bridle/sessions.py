"""What can be done with a recorded session: fork, compare, replay, export, audit, redact, control, erase.

A name is loaded at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridle.core.cache.report import list_cache_calls, sum_cache_calls
    from bridle.run.archive.audit import audit_session
    from bridle.run.archive.erase import Erasure, erase_caller
    from bridle.run.archive.redact import redact_record
    from bridle.run.archive.redact_notes import redact_note
    from bridle.run.archive.transfer import export_session, import_session
    from bridle.run.calls.approval import wait_for_answers
    from bridle.run.control.requests import SessionControl, control
    from bridle.run.history import export_history, import_history
    from bridle.run.lineage import compare_sessions, fork_session, list_branches
    from bridle.run.replay.replay_session import fork_at_difference, replay, replay_sync
    from bridle.run.replay.sent_calls import read_call
    from bridle.run.stream import RunView
    from bridle.values.calls import ApprovalVerdict
    from bridle.values.lineage import (
        Branch,
        Comparison,
        CrossTenant,
        Divergence,
        Fork,
        RecordedCall,
        Replay,
        RequestDifference,
    )

_HOMES = {
    "sum_cache_calls": "bridle.core.cache.report",
    "list_cache_calls": "bridle.core.cache.report",
    "ApprovalVerdict": "bridle.values.calls",
    "Branch": "bridle.values.lineage",
    "Comparison": "bridle.values.lineage",
    "CrossTenant": "bridle.values.lineage",
    "Divergence": "bridle.values.lineage",
    "Erasure": "bridle.run.archive.erase",
    "Fork": "bridle.values.lineage",
    "RecordedCall": "bridle.values.lineage",
    "Replay": "bridle.values.lineage",
    "RequestDifference": "bridle.values.lineage",
    "RunView": "bridle.run.stream",
    "SessionControl": "bridle.run.control.requests",
    "audit_session": "bridle.run.archive.audit",
    "compare_sessions": "bridle.run.lineage",
    "control": "bridle.run.control.requests",
    "erase_caller": "bridle.run.archive.erase",
    "export_history": "bridle.run.history",
    "export_session": "bridle.run.archive.transfer",
    "fork_at_difference": "bridle.run.replay.replay_session",
    "fork_session": "bridle.run.lineage",
    "import_history": "bridle.run.history",
    "import_session": "bridle.run.archive.transfer",
    "list_branches": "bridle.run.lineage",
    "read_call": "bridle.run.replay.sent_calls",
    "redact_note": "bridle.run.archive.redact_notes",
    "redact_record": "bridle.run.archive.redact",
    "replay": "bridle.run.replay.replay_session",
    "replay_sync": "bridle.run.replay.replay_session",
    "wait_for_answers": "bridle.run.calls.approval",
}

__all__ = [
    "ApprovalVerdict",
    "Branch",
    "Comparison",
    "CrossTenant",
    "Divergence",
    "Erasure",
    "Fork",
    "RecordedCall",
    "Replay",
    "RequestDifference",
    "RunView",
    "SessionControl",
    "audit_session",
    "compare_sessions",
    "control",
    "erase_caller",
    "export_history",
    "export_session",
    "fork_at_difference",
    "fork_session",
    "import_history",
    "import_session",
    "list_branches",
    "list_cache_calls",
    "read_call",
    "redact_note",
    "redact_record",
    "replay",
    "replay_sync",
    "sum_cache_calls",
    "wait_for_answers",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__]
