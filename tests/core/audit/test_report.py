"""The audit report: every decision of a log is in it, with its author, its record and the policy in force."""

import asyncio
import json

from bridle import Agent, PermissionRule, Policy, tool
from bridle.core.audit.report import audit_log, hash_policy
from bridle.hooks import Change, before_tool
from bridle.sessions import audit_session, redact_record
from bridle.stores import open_store
from tests.suite.command import bridle
from tests.suite.in_loop import in_loop

ASKING = Policy(rules=(PermissionRule(decision="ask", tools=("pay",), name="boss"),), version="7")
DENYING = Policy(rules=(PermissionRule(decision="deny", tools=("pay",), name="closed"),), version="8")


@tool(effect="write")
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


@tool(effect="read")
def look() -> str:
    """Look."""
    return "nothing"


PROMPT = '!call look {}\n!call pay {"amount": 7}\n!then\n!say done'


@in_loop
async def test_the_report_names_people_rules_policies_effects_and_costs():
    store = open_store(None)
    agent = Agent("sim:", tools=[pay, look], store=store, policy=ASKING)
    await agent.run(PROMPT, "s", caller="carl", tenant="acme")
    (question,) = await agent.approvals("s")
    await agent.approve("s", question.id, arguments={"amount": 5}, by="ann", reason="half is enough")
    await agent.resume("s")
    await Agent("sim:", tools=[pay, look], store=store, policy=DENYING).run(PROMPT, "s", tenant="acme")
    await redact_record(store, "s", 2, reason="erasure", by="eve")
    report = await audit_session(store, "s")
    by_kind = {}
    for entry in report.entries:
        by_kind.setdefault(entry.kind, []).append(entry)
    (approved,) = by_kind["approved"]
    assert (approved.by, approved.tool, approved.rule, approved.reason) == (
        "ann",
        "pay",
        "boss",
        "half is enough",
    )
    assert (json.loads(approved.arguments), json.loads(approved.edited_arguments)) == (
        {"amount": 7},
        {"amount": 5},
    )
    assert approved.policy == hash_policy(ASKING)
    (effect,) = by_kind["effect"]
    assert json.loads(effect.arguments) == {"amount": 5}
    assert effect.key
    (denied,) = by_kind["denied"]
    assert (denied.rule, denied.policy) == ("closed", hash_policy(DENYING))
    assert [(policy.version, policy.hash) for policy in report.policies] == [
        ("7", hash_policy(ASKING)),
        ("8", hash_policy(DENYING)),
    ]
    (redacted,) = by_kind["redacted"]
    assert (redacted.by, redacted.reason, redacted.outcome) == ("eve", "erasure", "all content of record 2")
    assert [entry.outcome for entry in by_kind["ended"]] == ["waiting", "done", "done"]
    assert [entry.by for entry in by_kind["prompted"]] == ["carl", ""]
    assert not any(entry.tool == "look" for entry in report.entries)
    assert (report.tenant, report.steps > 0, report.usd > 0) == ("acme", True, True)
    records = await store.read("s")
    assert all(records[entry.record - 1].at == entry.at for entry in report.entries)
    assert report.head == records[-1].hash


@in_loop
async def test_a_hook_that_changed_arguments_is_shown_with_the_tool_and_both_values(tmp_path):
    def limit(amount):
        @before_tool(tools=["pay"], name=f"limit {amount}")
        def change(run, call):
            return Change(arguments={"amount": amount})

        return change

    store = open_store(tmp_path / "log.db")
    await Agent("sim:", tools=[pay, look], store=store, hooks=[limit(5), limit(3)]).run(PROMPT, "s")
    hooks = [entry for entry in (await audit_session(store, "s")).entries if entry.kind == "hook"]
    assert [
        (entry.tool, json.loads(entry.arguments), json.loads(entry.edited_arguments)) for entry in hooks
    ] == [
        ("pay", {"amount": 7}, {"amount": 5}),
        ("pay", {"amount": 5}, {"amount": 3}),
    ]
    await store.close()
    shown = (
        await asyncio.to_thread(bridle, "show", "s", "--as", "audit", "--store", str(tmp_path / "log.db"))
    ).out
    assert "changed: amount: 7 → 5" in " ".join(shown.split())


@in_loop
async def test_the_runs_inside_tools_are_followed_once_and_missing_ones_are_named():
    store = open_store(None)
    inner = Agent("sim:", tools=[pay], store=store, name="payer").as_tool("payer", "Pays.")
    outer = Agent("sim:", tools=[inner], store=store)
    call = json.dumps({"prompt": PROMPT.replace("!call look {}\n", "")})
    result = await outer.run(f"!call payer {call}\n!then\n!say done", "s")
    assert result.stop == "done"
    report = await audit_session(store, "s")
    (subrun,) = report.subruns
    assert [entry.tool for entry in subrun.entries if entry.kind == "effect"] == ["pay"]
    alone = audit_log("s", await store.read("s"))
    elsewhere = open_store(None)
    await elsewhere.append("s", 0, await store.read("s"))
    assert (await audit_session(elsewhere, "s")).unread == (subrun.session,)
    assert alone.subruns == ()
