"""A thousand rows under one budget: stopped at the budget, interrupted, killed, and continued by the same command."""

import asyncio
import csv
import json
import signal
from decimal import Decimal

import pytest

from bridle import StoredBudget
from bridle.stores import open_store
from tests.examples.programs import run_program, start_program
from tests.suite.paths import load_program

classify = load_program("examples/batch/classify.py")
WORDS = load_program("examples/batch/keyword_model.py").WORDS
make_rows = load_program("examples/batch/tickets.py").make_rows
CLASSIFY = "batch/classify.py"
JOBS = 16


def write_tickets(folder, count):
    rows = list(make_rows(count))
    with (folder / "tickets.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "text"])
        writer.writeheader()
        writer.writerows(rows)
    return rows


def read_labels(folder):
    with (folder / "labels.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def stop_after(folder, rows, stop):
    """Start the program, and send it a signal once it has reported so many rows; returns its exit code."""
    with start_program(folder, CLASSIFY, "tickets.csv", "--usd", "5") as process:
        for line in process.stderr:
            if int(line.split()[0]) >= rows:
                process.send_signal(stop)
                break
        process.stderr.read()
        return process.wait()


async def count_replies(path):
    """Model replies of each row, by its session."""
    store = open_store(path)
    infos = await store.sessions(limit=5_000)
    names = [info.id for info in infos if info.id.startswith("tickets-")]
    records = {name: await store.read(name) for name in names}
    await store.close()
    return {
        name: sum(type(record.event).__name__ == "ModelReplied" for record in found)
        for name, found in records.items()
    }


@pytest.mark.slow
def test_a_thousand_rows_are_finished_in_spite_of_everything(tmp_path):
    rows = write_tickets(tmp_path, 1000)
    shown = run_program(tmp_path, CLASSIFY, "tickets.csv", "--usd", "0.10", code=3)
    assert "the budget of $0.10 is used up" in shown and "0 failed" in shown
    done = len(read_labels(tmp_path))
    assert 100 < done < 300
    assert stop_after(tmp_path, 400, signal.SIGINT) == 130
    assert stop_after(tmp_path, 700, signal.SIGKILL) == -signal.SIGKILL
    shown = run_program(tmp_path, CLASSIFY, "tickets.csv", "--usd", "5")
    assert shown.startswith("1000 of 1000 rows done, 0 failed")
    labels = read_labels(tmp_path)
    assert [label["id"] for label in labels] == [row["id"] for row in rows]
    expected = [
        next(
            (name for name, words in WORDS.items() if any(word in row["text"].lower() for word in words)),
            "other",
        )
        for row in rows
    ]
    assert [label["category"] for label in labels] == expected
    replies = asyncio.run(count_replies(tmp_path / "batch.db"))
    assert len(replies) == 1000 and min(replies.values()) == 1
    assert sum(replies.values()) - 1000 <= JOBS, (
        "only rows that Ctrl-C caught between answer and end are asked again"
    )
    (budget,) = json.loads(run_program(tmp_path, "bridle", "budgets", "--store", "batch.db", "--json"))
    assert Decimal(str(budget["spent"]["usd"])) < Decimal("0.60")


def test_the_budget_is_not_exceeded(tmp_path):
    rows = list(make_rows(120))
    report = classify.Report()
    pool = StoredBudget(usd=Decimal("0.02"), name="tickets")
    agent = classify.make_agent("sim:", store=tmp_path / "batch.db", pool=pool)
    asyncio.run(classify.classify_rows(agent, "tickets", rows, JOBS, report))
    assert report.is_out_of_budget and 0 < len(report.labels) < 120 and report.cost <= 0.02


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "needs a header"),
        ("id,words\n1,a\n", "needs a header"),
        ("id,text\n1,a\n1,b\n", "line 3: id '1' is also in line 2"),
        ("id,text\n1,a\n2,\n3,c\n", "line 3: `text` is empty"),
        ('id,text\n1,"a\nb"\n2\n', "line 4: `text` is empty"),
        ("id,text\n ,a\n", "line 2: `id` is empty"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, says):
    (tmp_path / "tickets.csv").write_text(text)
    with start_program(tmp_path, CLASSIFY, "tickets.csv") as process:
        (line,) = process.stderr.read().splitlines()
        assert process.wait() == 1
    assert says in line
    assert not (tmp_path / "batch.db").exists()


def test_a_row_with_another_text_gets_a_label_of_its_own(tmp_path):
    """A corrected row, and a file of the same name with the same ids."""
    found = []
    for text in ("My invoice is wrong", "Where is my parcel?", "My invoice is wrong"):
        (tmp_path / "tickets.csv").write_text(f"id,text\n1,{text}\n")
        run_program(tmp_path, CLASSIFY, "tickets.csv")
        found += [label["category"] for label in read_labels(tmp_path)]
    assert found == ["billing", "delivery", "billing"]
    assert list(asyncio.run(count_replies(tmp_path / "batch.db")).values()) == [1, 1]
