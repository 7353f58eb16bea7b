"""The guard of the whole suite, as a plugin of pytest.

Whatever a test sends to a model is heard by a strict simulator, in the test and in the programs it starts.
A test fails in which

    something was refused      and it is not marked `@pytest.mark.refusals`; a mark for nothing fails too.
                               `refusals("RULE", …)` allows what these rules refuse, if they do
    something is untyped       by the vendors' published types, and it is not listed in `UNTYPED`
    something went elsewhere   and it is not listed in `ELSEWHERE`
    a prefix moved             and no event of the session says so

What happened in all of them is one line at the end of the run.

Scripts are played on all wires in turn, each file's on its own; `BRIDLE_SCRIPT_MODEL` puts all of them on one.
"""

import os
from collections import Counter
from pathlib import Path
from zlib import crc32

import pytest

from bridle.testing.scripted_model import MODEL_VARIABLE
from tests.suite import listening
from tests.suite.witness import Account

HERE = Path(__file__).parent
SHOWN_MAX = 3
WIRES = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai/gpt-6.1-sol",
    "sim:openai-chat/gpt-6.1-sol",
    "sim:gemini/gemini-3.8-flash",
    "sim:bedrock/anthropic.claude-sonnet-5-5",
)
CHOSEN = os.environ.get(MODEL_VARIABLE)

MADE_UP = "the answer holds what no simulator says: a key, at every place where it might be cut"
TOO_LONG = "the reply is longer than any that a simulator writes"
NOBODY = "the address is one where nobody answers: what is said of that is the test"
MEDDLED = "somebody in between changes what is sent on its way: what the simulator heard is not what was sent"
RECORDED = "answers are played back from a file, and a request that is not in it is an error"
JUDGED = (
    "the servers of switch_servers.py hold every request against the simulator's tables and against rules of their"
    " own, and hand out secrets that no simulator has, to find them where they do not belong"
)
INVENTED = "the provider sent an item of a type that does not exist, and gets it back"
GATEWAY = "a gateway gave members of its own, and wants them back"
SERVED = "a server under test hears the client; its own requests go to a strict simulator"
TAKES_ALL = "a provider under test accepts every field of the vendors' types, which no simulator does"
ELSEWHERE = {
    "test_gateway_fields.py::test_every_field_arrives_on_the_same_wire_or_is_named_or_refused": TAKES_ALL,
    "test_gateway_fields.py::test_every_field_arrives_or_is_refused_in_strict_mode": TAKES_ALL,
    "test_gateway_fields.py::test_every_field_of_a_streamed_request_arrives_or_is_named_or_refused": TAKES_ALL,
    "test_gateway_fields.py::test_a_member_of_the_same_wire_arrives_also_in_strict_mode": TAKES_ALL,
    "test_gateway_fields.py::test_a_member_that_another_wire_lacks_is_named_and_refused_in_strict_mode": TAKES_ALL,
    "test_gateway_fields.py::test_a_member_that_hooks_would_not_see_is_withheld_and_named": TAKES_ALL,
    "test_gateway_fields.py::test_a_member_that_the_vendor_does_not_take_back_is_named_by_its_own_name": TAKES_ALL,
    "test_gateway_fields.py::test_a_text_outside_the_conversation_does_not_pass_by_the_hooks": TAKES_ALL,
    "test_gateway_fields.py::test_no_field_of_a_request_passes_by_the_hooks": TAKES_ALL,
    "test_gateway_fields.py::test_another_form_of_the_answer_is_another_request": TAKES_ALL,
    "test_gateway_fields.py::test_a_cache_mark_is_carried_or_named_and_never_refused": TAKES_ALL,
    "test_gateway_fields.py::test_headers_that_ask_for_something_arrive_on_the_same_wire": TAKES_ALL,
    "test_gateway_fields.py::test_headers_of_another_wire_are_named_and_refuse_nothing": TAKES_ALL,
    "test_gateway.py::test_clients_of_every_wire_get_a_stream_of_errors_they_know": SERVED,
    "test_gateway.py::test_next_model_of_the_chain_is_used_if_one_fails": NOBODY,
    "test_served_wires.py::test_an_agent_uses_a_served_agent_as_its_model": SERVED,
    "test_wire_sessions.py::test_conversation_is_found_after_a_restart": SERVED,
    "test_gateway_pairs.py::test_every_wire_reaches_every_provider": SERVED,
    "test_agent.py::test_no_key_ever_reaches_the_log": NOBODY,
    "test_forbid_requests.py::test_a_run_against_a_provider_fails_loudly": NOBODY,
    "test_forbid_requests.py::test_a_request_inside_a_tool_fails_the_test": NOBODY,
    "test_bounds.py::test_an_error_page_is_not_read_to_its_end": MADE_UP,
    "test_compaction_bounds.py::test_a_reply_of_ten_megabytes_that_arrives_does_not_end_a_session": TOO_LONG,
    "test_bounds.py::test_a_reply_that_is_too_long_is_given_up_and_not_asked_for_again": MADE_UP,
    "test_cli.py::test_an_unreachable_server_is_named_in_one_line": NOBODY,
    "test_kit_failures.py::test_a_key_at_the_edge_of_what_is_shown_does_not_survive": MADE_UP,
    "test_foreign_servers.py::test_a_signature_kept_in_an_id_reaches_the_server_that_put_it_there": RECORDED,
    "test_foreign_servers.py::test_a_thought_that_came_in_fragments_goes_back_as_one": RECORDED,
    "test_foreign_servers.py::test_the_calls_run_as_they_were_made_and_the_answer_is_heard": RECORDED,
    "test_foreign_servers.py::test_the_ids_of_calls_go_back_unchanged": RECORDED,
    "test_cache_diagnosis.py::test_what_the_provider_says_itself_explains_a_miss": MEDDLED,
    "test_stored_results.py::test_words_pictures_and_files_go_out_legally": JUDGED,
    "test_breakpoints.py::test_many_failed_tries_do_not_lose_the_kept_prefix": NOBODY,
    "test_private_extras.py::test_a_recording_without_the_value_is_replayed": RECORDED,
    "test_recordings.py::test_a_recorded_run_is_replayed_without_a_server": RECORDED,
    "test_recordings.py::test_the_difference_is_shown_where_it_is_however_long_a_prompt_begins_alike": RECORDED,
    "test_recordings.py::test_what_was_never_recorded_is_told_with_the_difference": RECORDED,
    "test_code_blocks.py::test_the_page_that_replays_a_recording_runs": RECORDED,
    "test_switch.py::test_there_and_back": JUDGED,
    "test_switch.py::test_switching_and_back_works_when_the_file_is_reopened_for_every_prompt": JUDGED,
}
"""Tests whose requests no strict simulator hears, and why."""
UNTYPED = {
    "test_gateway_fields.py::test_every_field_arrives_on_the_same_wire_or_is_named_or_refused": TAKES_ALL,
    "test_gateway_fields.py::test_every_field_arrives_or_is_refused_in_strict_mode": TAKES_ALL,
    "test_gateway_fields.py::test_every_field_of_a_streamed_request_arrives_or_is_named_or_refused": TAKES_ALL,
    "test_gateway_fields.py::test_no_field_of_a_request_passes_by_the_hooks": TAKES_ALL,
    "test_foreign_servers.py::test_a_signature_kept_in_an_id_reaches_the_server_that_put_it_there": GATEWAY,
    "test_foreign_servers.py::test_a_thought_that_came_in_fragments_goes_back_as_one": GATEWAY,
    "test_foreign_servers.py::test_the_calls_run_as_they_were_made_and_the_answer_is_heard": GATEWAY,
    "test_foreign_servers.py::test_the_ids_of_calls_go_back_unchanged": GATEWAY,
    "test_hosted_calls.py::test_a_response_of_unknown_items_is_no_answer": INVENTED,
    "test_mutated_replies.py::test_sessions_found_by_a_campaign_go_on": INVENTED,
}
"""Tests whose requests the vendors' types do not allow, and why."""

_NOW = [Account()]
_TOTALS = Counter()
_LISTENING = []


def pytest_configure(config):
    if not _LISTENING:
        _LISTENING.append(True)
        listening.listen(lambda *told: _NOW[0].take(*told))


@pytest.fixture(scope="session")
def told_by_programs(tmp_path_factory):
    """The file to which the programs of tests write; they inherit its name with the environment."""
    path = tmp_path_factory.mktemp("witness") / "told.jsonl"
    path.touch()
    found = os.pathsep.join(filter(None, (str(HERE / "witnessed"), os.environ.get("PYTHONPATH"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(listening.FILE, str(path))
        patch.setenv("PYTHONPATH", found)
        yield path


def wire_of(file):
    """The model that plays the scripts of a test file; always the same one."""
    return CHOSEN or WIRES[crc32(file.encode()) % len(WIRES)]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Scripts that a file plays when it is imported are played on its wire too."""
    if not isinstance(collector, pytest.Module):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MODEL_VARIABLE, wire_of(collector.path.name))
        return (yield)


@pytest.fixture(autouse=True)
def accounted(request, monkeypatch, told_by_programs):
    monkeypatch.setenv(MODEL_VARIABLE, wire_of(request.node.path.name))
    _NOW[0] = Account()
    request.node.told_by_programs = told_by_programs


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        result = yield
    finally:
        problems = check_account(item, _NOW[0])
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)
    return result


def check_account(item, account):
    """What is wrong with what happened in a test; what happened is counted."""
    if item.told_by_programs.stat().st_size:
        for process, told in listening.read(item.told_by_programs):
            account.take_from_program(process, *told)
    mark = item.get_closest_marker("refusals")
    unasked = [
        told for rule, told in account.refusals if mark is None or (mark.args and rule not in mark.args)
    ]
    place = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
    _TOTALS.update(
        heard=sum(account.heard.values()),
        meant=len(account.refusals) - len(unasked),
        unasked=len(unasked),
        elsewhere=len(account.elsewhere),
        compared=account.compared,
        told=account.told,
        untold=len(account.moves),
    )
    untyped = [] if mark is not None or place in UNTYPED else list(account.untyped)
    _TOTALS.update(typed=0 if mark is not None else len(account.bodies), untyped=len(untyped))
    in_vain = mark is not None and not mark.args and not account.refusals
    return list(judge_account(account, unasked, untyped, in_vain=in_vain, listed=place in ELSEWHERE))


def judge_account(account, unasked, untyped, *, in_vain, listed):
    if untyped:
        yield f"{len(untyped)} requests are not what the vendor's types say: {join_shown(untyped)}"
    if unasked:
        yield f"the simulated provider refused {len(unasked)} requests: {join_shown(unasked)}"
    if in_vain:
        yield "this test is marked for refusals and nothing was refused: remove the mark"
    if account.elsewhere and not listed:
        yield f"no strict simulator heard what was sent to {join_shown(account.elsewhere)}: see ELSEWHERE in guard.py"
    if listed and account.asked and not account.elsewhere:
        yield "this test is listed in ELSEWHERE and everything was heard by a strict simulator: remove it there"
    if account.moves:
        yield f"{len(account.moves)} prefixes moved and no event says so: {join_shown(account.moves)}"


def join_shown(items):
    more = len(items) - SHOWN_MAX
    return "\n".join(items[:SHOWN_MAX]) + (f"\nand {more} more" if more > 0 else "")


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["guard"] = dict(_TOTALS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A worker of pytest-xdist is done."""
    _TOTALS.update(getattr(node, "workeroutput", {}).get("guard", {}))


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(
        "strict everywhere: {heard:,} requests to the simulator, {meant:,} refusals asked for, {unasked:,} unasked;"
        " {compared:,} prefixes compared, {told:,} moves told, {untold:,} untold;"
        " {typed:,} requests judged by the vendors' types, {untyped:,} wrong".format_map(
            {
                name: _TOTALS[name]
                for name in ("typed", "untyped", "heard", "meant", "unasked", "compared", "told", "untold")
            }
        )
    )
