"""The clinical example: unsafe orders are refused in code every time, safe ones wait, and nothing runs twice."""

import asyncio
import json
import tomllib
from concurrent.futures import ThreadPoolExecutor

import pytest

from bridle import RunContext
from bridle.events import ApprovalAsked, HookDecided, ToolFinished, ToolStarted
from tests.examples.programs import run_program
from tests.suite.paths import load_program

assistant = load_program("examples/clinical/assistant.py")
ClinicTools = load_program("examples/clinical/clinic_tools.py").ClinicTools
records = load_program("examples/clinical/records.py")
compute_score = load_program("examples/clinical/scores.py").compute_score
PROGRAM = "clinical/assistant.py"
CASES = tomllib.loads((records.DATA / "cases.toml").read_text())["cases"]
MODELS = ("sim:anthropic/claude-sonnet-5-5", "sim:openai/gpt-6.1-sol")


def read_orders(folder):
    return ClinicTools(records.load_clinic(), folder / "orders.jsonl").list_orders()


async def approve_all(agent, result):
    for question in await agent.approvals(result.session):
        await agent.approve(result.session, question.id, by="Dr. Osei")
    return await agent.resume(result.session) if result.stop == "waiting" else result


async def play(case, folder, model):
    """Run a case, approve everything that waits, and return the events before the approvals."""
    agent = assistant.make_agent(model, folder)
    if "earlier" in case:
        await approve_all(
            agent, await assistant.start_visit(agent, case["patient"], case["earlier"], session="earlier")
        )
        assert len(read_orders(folder)) == 1
    book = read_orders(folder)
    result = await assistant.start_visit(agent, case["patient"], case["request"], caller="clinician")
    before = [record.event for record in await agent.store.read(result.session)]
    assert read_orders(folder) == book, "nothing runs before a person has answered"
    result = await approve_all(agent, result)
    await agent.store.close()
    return result, before


def list_refusals(events):
    """Texts of refused calls by the drug or the tool."""
    calls = {
        call.id: call for event in events for call in getattr(getattr(event, "reply", None), "calls", ())
    }
    finished = [event for event in events if isinstance(event, ToolFinished)]
    texts = {}
    for event in finished:
        if event.result.outcome in ("denied", "invalid"):
            arguments = json.loads(calls[event.call_id].arguments)
            texts[arguments.get("drug", event.name)] = event.result.text
    return texts


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_all_cases(tmp_path, model):
    assert len(CASES) >= 25 and sum("injection" in case for case in CASES) >= 8
    for number, case in enumerate(CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        refused, waiting = case.get("refused", {}), case.get("waiting", [])
        result, before = asyncio.run(play(case, folder, model))
        assert result.stop == "done", (case["name"], result.reason)
        texts = list_refusals(before)
        assert texts.keys() == refused.keys(), case["name"]
        assert all(word in texts[drug] for drug, word in refused.items()), (case["name"], texts)
        # Checks of parallel calls run in threads, so that their questions have no fixed order.
        asked = [event for event in before if isinstance(event, ApprovalAsked)]
        drugs = [json.loads(event.arguments)["drug"] for event in asked]
        assert sorted(drugs) == sorted(waiting), case["name"]
        started = [event for event in before if isinstance(event, ToolStarted)]
        assert not [event for event in started if event.name.startswith("order_")], case["name"]
        assert not any(
            event.name == "get_record" and case["patient"] not in event.arguments for event in started
        )
        placed = [order for order in read_orders(folder) if order.session != "earlier"]
        assert [order.medication.drug for order in placed] == case.get("placed", waiting), case["name"]
        assert {order.patient for order in placed} <= {case["patient"]}
        if "injection" in case:
            seen = [event.result.text for event in before if isinstance(event, ToolFinished)]
            assert any(case["injection"] in text for text in seen), "the model has read the injection"
        assert result.output.patient == case["patient"]


def test_the_cases_fail_without_the_policy(tmp_path, monkeypatch):
    monkeypatch.setattr("safety.find_hazards", lambda *_: ())
    monkeypatch.setattr("clinic_tools.find_hazards", lambda *_: ())
    case = next(case for case in CASES if case.get("injection") == "N-101")
    asyncio.run(play(case, tmp_path, "sim:"))
    assert [order.medication.drug for order in read_orders(tmp_path)] == ["warfarin"]


def test_a_person_cannot_edit_an_order_into_an_unsafe_one(tmp_path):
    async def main():
        agent = assistant.make_agent("sim:", tmp_path)
        result = await assistant.start_visit(agent, "P-001", "order paracetamol 500 mg 4 times a day")
        (question,) = await agent.approvals(result.session)
        edited = {**json.loads(question.arguments), "drug": "ibuprofen"}
        await agent.approve(result.session, question.id, arguments=edited, by="Dr. Osei")
        result = await agent.resume(result.session)
        events = [record.event for record in await agent.store.read(result.session)]
        return result, [event for event in events if isinstance(event, HookDecided)]

    result, decisions = asyncio.run(main())
    assert result.stop == "done" and read_orders(tmp_path) == []
    assert any("interaction (ibuprofen with warfarin)" in event.reason for event in decisions)


def test_an_order_is_checked_again_when_it_is_carried_out(tmp_path):
    tools = ClinicTools(records.load_clinic(), tmp_path / "orders.jsonl")
    with pytest.raises(ValueError, match="allergy"):
        tools.order_medication(RunContext(context=None), "P-002", "amoxicillin", 500, 3)
    assert read_orders(tmp_path) == []


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        (("warfarin", 5, 1), ("clarithromycin", 500, 2), "interaction"),
        (("clarithromycin", 500, 2), ("Warfarin", 5, 1), "interaction"),
        (("paracetamol", 1000, 4), ("paracetamol", 999, 4), "overdose"),
        (("paracetamol", 500, 1), (" Paracetamol ", 500, 1), "duplicate"),
    ],
)
def test_an_order_is_checked_against_the_open_orders_until_they_are_cancelled(tmp_path, first, second, word):
    tools = ClinicTools(records.load_clinic(), tmp_path / "orders.jsonl")
    patient = "P-005"

    def act(key, do, *arguments):
        return do(RunContext(context=None, session="s", idempotency_key=key), patient, *arguments)

    receipt = act("1", tools.order_medication, *first)
    for number in range(2):
        with pytest.raises(ValueError, match=word):
            act(f"2{number}", tools.order_medication, *second)
    assert [act("3", tools.cancel_order, receipt) for _ in range(2)] == 2 * [f"cancelled: {receipt}"]
    assert len(read_orders(tmp_path)) == 2, "a repeated cancellation is one line"
    act("4", tools.order_medication, *second)
    with pytest.raises(ValueError, match=word):
        act("5", tools.order_medication, *first)
    assert tools.list_open_orders("P-001") == []
    assert [order.drug for order in tools.list_open_orders(patient)] == [second[0].strip().lower()]


def test_of_orders_that_are_placed_at_once_only_one_is_written(tmp_path):
    def place(number):
        tools = ClinicTools(records.load_clinic(), tmp_path / "orders.jsonl")
        ctx = RunContext(context=None, session=f"s{number}", idempotency_key=str(number))
        try:
            return tools.order_medication(ctx, "P-005", "paracetamol", 1000 - number, 4)
        except ValueError:
            return None

    with ThreadPoolExecutor(8) as pool:
        assert sum(found is not None for found in pool.map(place, range(32))) == 1
    assert len(read_orders(tmp_path)) == 1


def test_a_student_reads_and_does_not_order(tmp_path):
    async def main():
        agent = assistant.make_agent("sim:", tmp_path)
        request = "order paracetamol 500 mg 4 times a day"
        result = await assistant.start_visit(agent, "P-005", request, caller="student:kim")
        events = [record.event for record in await agent.store.read(result.session)]
        return result, events

    result, events = asyncio.run(main())
    assert result.stop == "done" and read_orders(tmp_path) == []
    assert "students do not order" in list_refusals(events)["paracetamol"]


def test_the_model_is_asked_again_if_a_briefing_cites_what_is_not_there(tmp_path):
    """The first answer is about a source that the record does not have; the second one is corrected."""
    from bridle.testing import scripted

    briefing = {"patient": "P-005", "summary": "", "scores": [], "orders": []}
    wrong = {**briefing, "problems": [{"text": "asthma", "source": "N-999"}]}
    right = {**briefing, "problems": [{"text": "sore throat", "source": "N-005"}]}

    async def main():
        agent = assistant.make_agent("sim:", tmp_path)
        model = scripted(json.dumps(wrong), json.dumps(right))
        return await agent.run("Visit of P-005.", tenant="P-005", model=model), model

    result, model = asyncio.run(main())
    assert result.output.problems[0].source == "N-005"
    assert "not in the record: N-999" in model.script.requests[1].messages[-1].text


@pytest.mark.parametrize(
    ("patient", "name", "value"),
    [("P-002", "curb65", 0), ("P-001", "cha2ds2_vasc", 3), ("P-003", "egfr", 19.9), ("P-001", "egfr", 67.5)],
)
def test_scores(patient, name, value):
    """The values were computed by hand from the published formulas."""
    assert compute_score(records.load_clinic().patient(patient), name).value == pytest.approx(value, abs=0.05)


def test_the_program_waits_for_a_clinician_and_leaves_an_audit(tmp_path):
    request = "order clarithromycin 500 mg 2 times a day and order amoxicillin 500 mg 3 times a day"
    shown = run_program(tmp_path, PROGRAM, "visit", "P-006", request, "--session", "fay", code=3)
    assert shown.startswith("Invented data") and "amoxicillin" in shown and "resume fay" in shown
    (question,) = json.loads(run_program(tmp_path, "bridle", "approvals", "--store", "clinical.db", "--json"))
    run_program(
        tmp_path,
        "bridle",
        "approvals",
        "approve",
        question["id"],
        "--store",
        "clinical.db",
        "--by",
        "Dr. Osei",
    )
    shown = run_program(tmp_path, PROGRAM, "resume", "fay")
    assert '"status": "placed"' in shown and '"status": "refused"' in shown
    assert len(read_orders(tmp_path)) == 1
    audit = run_program(tmp_path, "bridle", "show", "--as", "audit", "fay", "--store", "clinical.db")
    assert "refuse_unsafe_orders" in audit and "approved" in audit and "Dr. Osei" in audit
    assert "unsafe order: interaction (clarithromycin with simvastatin)" in audit
    assert "tenant P-006" in audit


def test_help_says_what_it_is(tmp_path):
    shown = run_program(tmp_path, PROGRAM, "--help")
    assert "NOT A MEDICAL DEVICE" in shown and "--model" in shown
