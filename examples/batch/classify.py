"""Classifies the rows of a CSV file in parallel, under one budget. Run the same command again to continue.

    python examples/batch/tickets.py 1000 > tickets.csv
    python examples/batch/classify.py tickets.csv --usd 0.50          # stops at 50 cents, exit code 3
    python examples/batch/classify.py tickets.csv --usd 2.00          # continues: no row is paid for twice

Every row is a session of its own, so the log is the checkpoint: Ctrl-C and kill -9 lose at most the calls in flight.
"""

import argparse
import asyncio
import csv
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from bridle import Agent, BridleError, Budget, Model, ModelConnection, Result, StoredBudget, Usage
from bridle.errors import SessionNotFound
from bridle.messages import escape_text
from bridle.testing import simulated
from keyword_model import classify_ticket

INSTRUCTIONS = """\
You classify one ticket of a bicycle shop. billing: money, invoices, refunds. delivery: parcels that are late or lost.
defect: goods that are broken or incomplete. other: everything else. Urgent means that the customer names today."""
FIELDS = ("id", "text", "category", "is_urgent")
PROGRESS_ROWS = 100
EXIT_FAILED, EXIT_BUDGET, EXIT_INTERRUPTED = 1, 3, 130


class Label(msgspec.Struct, frozen=True):
    category: Literal["billing", "delivery", "defect", "other"]
    is_urgent: bool


@dataclass
class Report:
    """What became of the rows; rows of earlier runs are included."""

    labels: dict[str, Label] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    cost: float = 0.0
    usage: Usage = field(default_factory=Usage)
    is_out_of_budget: bool = False

    def add(self, id_: str, result: Result[Label]) -> None:
        self.cost += result.cost or 0.0
        self.usage += result.usage
        if result.output is not None:
            self.labels[id_] = result.output
        elif result.stop == "budget":
            self.is_out_of_budget = True
        else:
            self.failures[id_] = f"{result.stop}: {result.reason}"

    def describe(self, total: int) -> str:
        done = len(self.labels)
        prompt = self.usage.input + self.usage.cache_read + self.usage.cache_write
        counts = Counter(label.category for label in self.labels.values())
        lines = [
            f"{done} of {total} rows done, {len(self.failures)} failed",
            f"cost ${self.cost:.4f}" + (f", ${self.cost / done:.6f} per row" if done else ""),
            f"tokens {self.usage.output} out, {prompt} in, {self.usage.cache_read / max(1, prompt):.0%} from the cache",
            ", ".join(f"{name} {count}" for name, count in sorted(counts.items())),
        ]
        failed = [
            escape_text(f"row {id_}: {why}", exact=True) for id_, why in list(self.failures.items())[:5]
        ]
        return "\n".join([*lines, *failed])


def choose_model(name: str) -> str | ModelConnection:
    """The offline model for `sim:…`, else the model of that name."""
    return simulated(classify_ticket, model=name) if name.startswith("sim:") else name


def make_agent(model: str | Model | ModelConnection = "sim:", **options: Any) -> Agent[object, Label]:
    """Build the agent; `options` are further ones of `Agent`, such as its store and its budget."""
    return Agent(
        choose_model(model) if isinstance(model, str) else model,
        name="batch",
        instructions=INSTRUCTIONS,
        output=Label,
        max_tokens=200,
        budget=Budget(steps=3),
        **options,
    )


async def classify_rows(
    agent: Agent[object, Label], name: str, rows: list[dict[str, str]], jobs: int, report: Report
) -> None:
    """Classify all rows that have no answer yet, `jobs` at a time, until the budget is used up."""
    waiting = iter(rows)

    async def work() -> None:
        for row in waiting:
            if report.is_out_of_budget:
                return
            session = name_session(name, row)
            try:
                result = await agent.resume(session)  # returns the answer if there is one
            except SessionNotFound:
                result = await agent.run(row["text"], session)
            report.add(row["id"], result)
            if len(report.labels) % PROGRESS_ROWS == 0:
                print(
                    f"{len(report.labels)} of {len(rows)} rows, ${report.cost:.4f}",
                    file=sys.stderr,
                    flush=True,
                )

    async with asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(work())


def name_session(batch: str, row: dict[str, str]) -> str:
    """The session of a row. The text is part of the name: a row whose text was corrected is classified again."""
    return f"{batch}-{row['id']}-{sha256(row['text'].encode()).hexdigest()[:12]}"


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read all rows; raises `ValueError` with the line of the first one that is not valid."""
    rows: list[dict[str, str]] = []
    lines: dict[str, int] = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        for row in reader:
            if not {"id", "text"} <= row.keys():
                break
            for column in ("id", "text"):
                if not (row[column] or "").strip():
                    raise ValueError(f"{path}, line {reader.line_num}: `{column}` is empty")
            if (first := lines.setdefault(row["id"], reader.line_num)) != reader.line_num:
                raise ValueError(f"{path}, line {reader.line_num}: id {row['id']!r} is also in line {first}")
            rows.append(row)
    if not rows:
        raise ValueError(f"{path} needs a header with the columns id and text, and at least one row")
    return rows


def write_labels(path: Path, rows: list[dict[str, str]], report: Report) -> None:
    """Write the rows that are done; the file appears complete or not at all."""
    draft = path.with_suffix(".part")
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        for row in rows:
            if (label := report.labels.get(row["id"])) is not None:
                writer.writerow({**row, **msgspec.structs.asdict(label)})
    draft.replace(path)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, help="CSV file with the columns id and text")
    parser.add_argument("--out", type=Path, default=Path("labels.csv"), help="default: labels.csv")
    parser.add_argument(
        "--usd", type=Decimal, default=Decimal(1), help="budget of the whole batch (default: 1)"
    )
    parser.add_argument("--jobs", type=int, default=16, help="rows at the same time (default: 16)")
    parser.add_argument("--name", help="name of the batch (default: name of the file)")
    parser.add_argument("--store", default="batch.db", help="the log (default: batch.db)")
    parser.add_argument(
        "--model", default=os.environ.get("BRIDLE_MODEL", "sim:"), help="default: $BRIDLE_MODEL or sim:"
    )
    return parser.parse_args()


def main() -> int:
    given = parse_arguments()
    name, report = given.name or given.rows.stem, Report()
    try:
        rows = read_rows(given.rows)
        pool = StoredBudget(usd=given.usd, name=name)  # holds for all runs and processes of this batch
        agent = make_agent(given.model, store=given.store, pool=pool)
        asyncio.run(classify_rows(agent, name, rows, given.jobs, report))
    except (OSError, ValueError, BridleError) as error:
        print(escape_text(str(error), exact=True), file=sys.stderr)
        return EXIT_FAILED
    except ExceptionGroup as errors:  # of the rows that were in progress
        print(escape_text(str(errors.exceptions[0]), exact=True), file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print(
            f"\ninterrupted after {len(report.labels)} rows; run the same command to continue",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    write_labels(given.out, rows, report)
    print(report.describe(len(rows)))
    if report.is_out_of_budget:
        print(f"the budget of ${given.usd} is used up; continue with a higher --usd")
        return EXIT_BUDGET
    return EXIT_FAILED if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
