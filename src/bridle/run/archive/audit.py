"""Reads the audit report of a session, with the reports of the runs inside its tools."""

from msgspec.structs import replace

from bridle.core.audit.report import AuditReport, audit_log
from bridle.ports.store import Store
from bridle.run.validate_input import check_session
from bridle.values.errors import SessionNotFound


async def audit_session(store: Store, session: str) -> AuditReport:
    """The audit report of a session; raises `Corrupt` if its log was changed."""
    report = await _audit(store, check_session(session), {session})
    if report is None:
        raise SessionNotFound(f"no session {session!r} in this store; `bridle sessions` lists them")
    return report


async def _audit(store: Store, session: str, seen: set[str]) -> AuditReport | None:
    records = await store.read(session)
    if not records:
        return None
    report = audit_log(session, records)
    inner: list[AuditReport] = []
    unread: list[str] = []
    for name in dict.fromkeys(entry.session for entry in report.entries if entry.kind == "subrun"):
        if name in seen:  # a log from elsewhere may name itself
            continue
        seen.add(name)
        found = await _audit(store, name, seen)
        inner += [found] if found else []
        unread += [] if found else [name]
    return replace(report, subruns=tuple(inner), unread=tuple(unread))
