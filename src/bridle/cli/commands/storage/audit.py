"""Show who decided what in a session: approvals, edits, rejections, takeovers, redactions, effects, spending.

The report is computed from the log alone, and each line names its record. Runs inside tools follow, indented.
"""

import argparse
import asyncio
from collections.abc import Iterator

from bridle.cli.format.printing import print_json, print_line
from bridle.cli.log_access import add_log_options, format_local_time, read_session, tenant_of, use_log
from bridle.cli.session_names import add_latest_argument
from bridle.core.audit.report import AuditEntry, AuditReport
from bridle.core.calls.argument_changes import list_changes, show_arguments
from bridle.run.archive.audit import audit_session
from bridle.watchers.console import format_count, format_dollars

POLICY_SHOWN = 8
"""Characters of the hash in a row; the first lines of a report have the whole hash."""
NO_POLICY = "no policy"
HASH_SHOWN = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_latest_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    add_log_options(parser)


def execute(options: argparse.Namespace) -> int:
    report = asyncio.run(_read_report(options))
    if options.json:
        print_json(report)
        return 0
    for line in format_report(report):
        print_line(line)
    return 0


async def _read_report(options: argparse.Namespace) -> AuditReport:
    async with use_log(options.store) as store:
        await read_session(store, options.session, tenant_of(options))
        return await audit_session(store, options.session)


def format_report(report: AuditReport, indent: str = "") -> Iterator[str]:
    """Lines of a report and of its subruns."""
    tenant = f" · tenant {report.tenant}" if report.tenant else ""
    yield f"{indent}session {report.session}{tenant} · {report.records:,} records · head {report.head[:HASH_SHOWN]}"
    for policy in report.policies:
        name = f"policy {policy.hash}" if policy.hash else NO_POLICY
        version = f" (version {policy.version})" if policy.version else ""
        yield f"{indent}  from record {policy.since}: {name}{version}"
    for entry in report.entries:
        yield from _format_entry(entry, indent + "  ")
    dollars = format_dollars(float(report.usd)) if report.usd is not None else "price unknown"
    tokens, calls = format_count(report.usage.total, "token"), format_count(report.steps, "model call")
    yield f"{indent}  spent: {dollars}, {tokens}, {calls}"
    for name in report.unread:
        yield f"{indent}  session {name} is not in this store"
    for inner in report.subruns:
        yield from format_report(inner, indent + "    ")


def _format_entry(entry: AuditEntry, indent: str) -> Iterator[str]:
    call = f" {entry.tool}" if entry.tool else ""
    shown = f"({show_arguments(entry.arguments)})" if entry.arguments else ""
    facts = (
        f"by {entry.by}" if entry.by else "",
        entry.outcome,
        f"session {entry.session}" if entry.session else "",
        f"rule {entry.rule}" if entry.rule else "",
        f"policy {entry.policy[:POLICY_SHOWN]}" if entry.policy else "",
        entry.reason,
    )
    head = f"{entry.kind}{call}{shown}"
    told = " · ".join(fact for fact in (head, *facts) if fact)
    yield f"{indent}{entry.record:>4}  {format_local_time(entry.at)}  {told}"
    for line in list_changes(entry.arguments, entry.edited_arguments) if entry.edited_arguments else ():
        yield f"{indent}      changed: {line}"
    if entry.key:
        label = "SHA-256 of the original" if entry.kind == "redacted" else "idempotency key"
        yield f"{indent}      {label}: {entry.key}"
