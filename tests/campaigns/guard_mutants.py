"""Disables each guard of SECURITY.md, one at a time, and reports if the test of its row fails:

    python tests/campaigns/guard_mutants.py [PART OF A TEST'S NAME]

A test that passes without its guard proves nothing. The source is copied and changed in the copy; the working tree
stays as it is. It takes some minutes. test_guard_mutants.py checks on every run that the table matches the source and
SECURITY.md.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = "src/bridle"
COPIED = (
    "src",
    "tests",
    "examples",
    "docs",
    "bench",
    "pyproject.toml",
    "SECURITY.md",
    "README.md",
    "ARCHITECTURE.md",
)
SECONDS_MAX = 150
"""Far more than any of the tests takes; without its guard, some wait for ever."""


class Mutant(NamedTuple):
    """A guard that is disabled by replacing a text, and a test that must fail then."""

    guard: str
    """File below src/bridle."""
    old: str
    new: str
    test: str
    """File below tests, and name; one case in brackets where all of them take long."""


MUTANTS = (
    Mutant(
        "engines/temporal/activities.py",
        'shown = f"{kind}{meaning}; the log of the worker has the details"',
        'shown = f"{kind}: {error}"',
        "engines/test_temporal_runs.py::test_the_history_gets_the_type_of_an_error_and_not_its_text",
    ),
    Mutant(
        "engines/temporal/workflow.py",
        "if approval not in self._status.questions:",
        "if False:",
        "engines/test_temporal_runs.py::test_an_approved_call_runs_once_and_wrong_answers_leave_no_trace",
    ),
    Mutant(
        "engines/parts.py",
        'return bool(begun) and not getattr(begun[-1], "engine", False)',
        "return False",
        "engines/test_parts.py::test_an_attempt_leaves_the_session_to_a_process_that_has_resumed_it",
    ),
    Mutant(
        "run/control/live.py",
        "            if was_shown:",
        "            if False:",
        "run/control/test_live.py::test_a_viewer_gets_each_piece_once_and_the_text_is_removed_with_the_record",
    ),
    Mutant(
        "stores/sqlite/live.py",
        "                _erase(descriptor, status.st_size)",
        "                pass",
        "run/control/test_live.py::test_files_hold_no_text_after_the_reply_nor_after_a_killed_process_was_replaced",
    ),
    Mutant(
        "serve/gateway/settings.py",
        "if hmac.compare_digest(key.sha256, digest):",
        "if True:",
        "serve/gateway/test_gateway.py::test_only_known_keys_are_let_in",
    ),
    Mutant(
        "serve/gateway/server.py",
        "if not allowed or name in allowed",
        "if True",
        "serve/gateway/test_gateway.py::test_key_may_use_only_its_models",
    ),
    Mutant(
        "serve/gateway/server.py",
        "    if limits != NO_LIMITS:",
        "    if False:",
        "serve/gateway/test_gateway.py::test_budget_of_a_key_ends_its_calls_and_not_those_of_others",
    ),
    Mutant(
        "serve/wires/options.py",
        "if spec.name in agent.tools:",
        "if False:",
        "serve/wires/test_served_wires.py::test_tool_of_the_client_with_a_name_of_the_agents_is_refused",
    ),
    Mutant(
        "serve/wires/reply.py",
        'if failure.kind in ("unauthorized", "quota", "not_found"):',
        "if False:",
        "serve/wires/test_served_wires.py::test_failure_of_the_provider_is_not_the_clients",
    ),
    Mutant(
        "run/calls/approval.py",
        "if call_id not in waiting:",
        "if False:",
        "run/calls/test_external_calls.py::test_result_that_no_call_waits_for_is_refused",
    ),
    Mutant(
        "serve/inspector/dom.js",
        "if (value.search(HIDDEN) < 0) return",
        "if (true) return",
        "serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[text]",
    ),
    Mutant(
        "serve/inspector/media.js",
        'if (part.url) return h("p.media-note", {},',
        'if (part.url) return h("img", { src: part.url },',
        "serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[media]",
    ),
    Mutant(
        "serve/inspector/media.js",
        "if (!type) return refusal",
        "if (false) return refusal",
        "serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[media]",
    ),
    Mutant(
        "serve/inspector/media.js",
        "size[0] * size[1] > PIXELS_MAX",
        "false",
        "serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[media]",
    ),
    Mutant(
        "serve/inspector/__init__.py",
        "; require-trusted-types-for 'script'; trusted-types 'none'",
        "",
        "serve/test_inspector_attacks.py::test_the_policy_of_the_page_stops_what_was_injected_anyway",
    ),
    Mutant(
        "cli/commands/serving/inspect.py",
        "ServeOptions(token=token, resumes_runs=False)",
        "ServeOptions(resumes_runs=False)",
        "serve/test_inspector.py::test_the_command_opens_the_log_of_another_process",
    ),
    Mutant(
        'serve/security.py',
        'if self._any_host or _host_name(host) in self._hosts:',
        'if True:',
        'serve/test_serve_security.py::test_a_rebound_name_is_refused',
    ),
    Mutant(
        'serve/security.py',
        'if foreign and not is_page and (method not in SAFE_METHODS or path not in self._public):',
        'if False:',
        'serve/test_serve_security.py::test_a_page_of_another_site_reads_nothing',
    ),
    Mutant(
        'serve/security.py',
        'if kind in FORM_TYPES and CLIENT_HEADER not in headers:',
        'if False:',
        'serve/test_serve_security.py::test_a_page_of_another_site_changes_nothing',
    ),
    Mutant(
        'serve/security.py',
        '        if path in self._public:\n            return False\n        if given and',
        '        return False\n        if given and',
        'serve/test_serve_security.py::test_a_server_with_a_token_wants_it_everywhere',
    ),
    Mutant(
        'serve/security.py',
        'if given and self._guesses.is_blocked(address):',
        'if False:',
        'serve/test_serve_security.py::test_guessing_is_stopped_and_the_token_is_not_logged',
    ),
    Mutant(
        'serve/options.py',
        'if not options.has_secret and not options.trusts_callers and not is_loopback(options.host):',
        'if False:',
        'serve/test_serve_security.py::test_options_that_make_no_sense_are_refused',
    ),
    Mutant(
        'serve/security.py',
        'if self.body_bytes > self._options.body_bytes_max:',
        'if False:',
        'serve/test_serve_security.py::test_large_and_slow_bodies_are_refused',
    ),
    Mutant(
        'serve/security.py',
        'if self._active >= self._options.requests_max:',
        'if False:',
        'serve/test_serve_security.py::test_requests_are_limited_in_time_and_number',
    ),
    Mutant(
        'serve/runs.py',
        'if not self.has_room:',
        'if False:',
        'serve/test_serve_security.py::test_runs_and_viewers_are_limited',
    ),
    Mutant(
        'serve/feeds.py',
        'if len(self._items) > 2 * FEED_ITEMS_MAX or self._bytes > 2 * FEED_BYTES_MAX:',
        'if False:',
        'serve/test_feeds.py::test_a_feed_holds_no_more_than_its_limits',
    ),
    Mutant(
        'serve/security.py',
        '"default-src \'none\'; script-src \'self\'; style-src',
        '"default-src *; script-src *; style-src',
        'serve/test_serve_security.py::test_every_reply_forbids_foreign_content',
    ),
    Mutant(
        "run/recovery/snapshots.py",
        "if not signed or not hmac.compare_digest(signed.encode(), stored.digest.encode()):",
        "if not signed:",
        "run/recovery/test_log_snapshots.py::test_a_damaged_snapshot_is_not_used_and_replaced[sqlite-data]",
    ),
    Mutant(
        "run/recovery/snapshots.py",
        "if not signed or not hmac.compare_digest(signed.encode(), stored.digest.encode()):",
        "if not signed:",
        "run/recovery/test_log_snapshots.py::test_a_forged_snapshot_runs_no_call_again[sqlite]",
    ),
    Mutant(
        "run/recovery/snapshots.py",
        "if _digest_records(rows, length, count, needed, contents) != digest:",
        "if not _digest_records(rows, length, count, needed, contents):",
        "run/recovery/test_log_snapshots.py::test_a_changed_record_is_found_although_a_snapshot_covers_it[sqlite]",
    ),
    Mutant(
        "tools/code_mode/process.py",
        "if length > MESSAGE_BYTES_MAX:",
        "if False:",
        "tools/code_mode/test_program_process.py::test_garbage_in_the_channel_ends_the_program[a huge length]",
    ),
    Mutant(
        "run/calls/program_model.py",
        'if call.name not in self._tools or not bytes(call.arguments).startswith(b"{"):',
        "if False:",
        "tools/code_mode/test_program_process.py::test_garbage_in_the_channel_ends_the_program[another tool]",
    ),
    Mutant(
        "run/calls/code_tool.py",
        "        policy=settings.policy,\n",
        "",
        "run/calls/test_code_mode.py::test_rules_of_the_policy_hold_in_programs",
    ),
    Mutant(
        "run/calls/program_model.py",
        "if made + len(message.calls) > self._mode.calls_max:",
        "if made > 20:",
        "run/calls/test_code_mode.py::test_limits_of_a_program",
    ),
    Mutant(
        "run/calls/code_tool.py",
        'if self._mode.sandbox != "auto":\n            return self._mode.sandbox',
        "if True:\n            return None",
        "tools/code_mode/test_program_process.py::test_keys_files_and_the_network_are_out_of_reach",
    ),
    Mutant(
        "run/calls/program_model.py",
        "if now == batch.calls:",
        "if True:",
        "run/calls/test_code_mode.py::test_a_program_that_calls_otherwise_when_it_runs_again_is_ended_and_nothing_runs_twice",
    ),
    Mutant(
        "run/calls/code_mode.py",
        'import_module("bridle.sandbox.local").find_sandbox(None)',
        "pass",
        "run/calls/test_code_mode.py::test_without_a_sandbox_code_mode_is_refused_unless_that_is_asked_for",
    ),
    Mutant(
        "core/calls/catalogue.py",
        "    if options is None:",
        "    if False:",
        "run/calls/test_hosted_tools.py::test_a_model_without_the_tool_is_refused_with_the_alternative",
    ),
    Mutant(
        "core/calls/catalogue.py",
        "unmet = [name for name in hosted.restrictions if name not in options]",
        "unmet: list[str] = []",
        "run/calls/test_hosted_tools.py::test_a_model_without_the_tool_is_refused_with_the_alternative",
    ),
    Mutant(
        "tools/hosted.py",
        'approve="always"',
        'approve="never"',
        "run/calls/test_hosted_tools.py::test_a_remote_mcp_call_is_put_to_a_person",
    ),
    Mutant(
        "core/budget/limits.py",
        "after_prompt -= hosted",
        "pass",
        "run/calls/test_hosted_tools.py::test_the_worst_case_includes_every_use",
    ),
    Mutant(
        "core/budget/limits.py",
        "dollars += hosted",
        "pass",
        "run/calls/test_hosted_tools.py::test_a_budget_holds_however_often_the_model_searches",
    ),
    Mutant(
        "run/private_extras.py",
        "return replace(spec, native=msgspec.json.encode(shown).decode(), native_digest=digest)",
        "return spec",
        "run/calls/test_hosted_tools.py::test_credentials_of_a_remote_server_reach_the_provider_only",
    ),
    Mutant(
        "tools/hosted.py",
        'return f"<hosted tool {self.spec.name!r}>"',
        'return f"<hosted tool {self.spec!r}>"',
        "run/calls/test_hosted_tools.py::test_credentials_of_a_remote_server_reach_the_provider_only",
    ),
    Mutant(
        "tools/mcp/definitions.py",
        'read_annotations(tool) if trust else ("write", "report")',
        "read_annotations(tool)",
        "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
    ),
    Mutant(
        "tools/mcp/definitions.py",
        "visible = escape_text(whole, prose=True)",
        "visible = whole",
        "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
    ),
    Mutant(
        "tools/mcp/definitions.py",
        "if len(visible) > DESCRIPTION_CHARACTERS_MAX:",
        "if False:",
        "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
    ),
    Mutant(
        "tools/mcp/definitions.py",
        "        if name in specs:",
        "        if False:",
        "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
    ),
    Mutant(
        "tools/mcp/stdio.py",
        "if len(buffer) > MESSAGE_BYTES_MAX:",
        "if False:",
        "tools/mcp/test_mcp_connection.py::test_a_message_without_end_ends_the_connection_only",
    ),
    Mutant(
        "tools/mcp/connection.py",
        "if size > RESPONSE_BYTES_MAX:",
        "if False:",
        "tools/mcp/test_mcp_http.py::test_a_response_without_end_is_not_read_to_its_end",
    ),
    Mutant(
        "tools/mcp/contents.py",
        'return clean_description(text or "")[0]',
        'return text or ""',
        "tools/mcp/test_mcp_resources.py::test_hostile_lists_cost_only_their_bad_items_and_have_an_end",
    ),
    Mutant(
        "tools/mcp/connection.py",
        "self.requests.sample if self._settings.sampling is not None else None",
        "self.requests.sample",
        "tools/mcp/test_mcp_requests.py::test_requests_are_refused_and_not_announced_by_default",
    ),
    Mutant(
        "core/calls/server_requests.py",
        'approve="always"',
        'approve="never"',
        "tools/mcp/test_mcp_requests.py::test_the_policy_allows_or_denies_sampling_without_a_question",
    ),
    Mutant(
        "run/calls/server_requests.py",
        "if counts.total() > REQUESTS_MAX:",
        "if False:",
        "tools/mcp/test_mcp_requests.py::test_a_server_cannot_spend_more_than_its_budget_or_ask_without_end",
    ),
    Mutant(
        "run/calls/server_requests.py",
        "if found is None or not is_request_answer_proved(run.store, run.session, run.state, found):",
        "if found is None:",
        "tools/mcp/test_mcp_requests.py::test_an_answer_without_a_proof_of_this_user_is_asked_for_again",
    ),
    Mutant(
        "tools/mcp/requests.py",
        "message = escape_text(repair_surrogates(params.message), prose=True)",
        "message = params.message",
        "tools/mcp/test_mcp_requests.py::test_escapes_in_a_question_and_bad_addresses_do_not_reach_the_person",
    ),
    Mutant(
        "tools/mcp/requests.py",
        "not url.startswith(URL_SCHEMES)",
        "False",
        "tools/mcp/test_mcp_requests.py::test_escapes_in_a_question_and_bad_addresses_do_not_reach_the_person",
    ),
    Mutant(
        "tools/mcp/sign_in.py",
        "record.exc_info = record.exc_text = None",
        "pass",
        "tools/mcp/test_mcp_oauth.py::test_a_token_in_a_bad_answer_reaches_neither_the_error_nor_the_log",
    ),
    Mutant(
        "tools/mcp/sign_in.py",
        "descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)",
        "descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)",
        "tools/mcp/test_mcp_oauth.py::test_a_person_signs_in_once_and_the_tokens_are_kept_in_a_private_file",
    ),
    Mutant(
        "tools/mcp/server_settings.py",
        "return self.sandbox.wrap(self.argv, cwd=folder, environment=environment)",
        "return SandboxedCommand(argv=self.argv, environment=environment)",
        "tools/mcp/test_mcp_sandbox.py::test_a_server_in_a_sandbox_sees_and_writes_only_its_workspace",
    ),
    Mutant(
        "tools/mcp/link.py",
        'escape_text(str(error) or "it is not connected", prose=True)',
        "str(error)",
        "tools/mcp/test_mcp_connection.py::test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_comes_back",
    ),
    Mutant(
        "tools/mcp/server_settings.py",
        "text = text.replace(secret, HIDDEN)",
        "pass",
        "tools/mcp/test_mcp_connection.py::test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_comes_back",
    ),
    Mutant(
        "values/usage.py",
        "recent = sorted(use for use in uses if abs(use[0] - now) < self.seconds)",
        "recent = sorted(use for use in uses if use[0] - now > -self.seconds)",
        "run/test_clock_steps.py::test_a_rate_limit_waits_at_most_one_period_after_a_step",
    ),
    Mutant(
        "run/budget/rates.py",
        "not any(abs(record.at - now) < limit.seconds for record in records)",
        "True",
        "run/test_clock_steps.py::test_a_rate_limit_waits_at_most_one_period_after_a_step",
    ),
    Mutant(
        'run/stream.py',
        'LOG.warning("%s and was dismissed", escape_text(text))',
        'LOG.warning("%s and was dismissed", text)',
        'cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal',
    ),
    Mutant(
        'run/calls/catalogue.py',
        'LOG.warning("%s; no tools are revealed for the first prompt", escape_text(text))',
        'LOG.warning("%s; no tools are revealed for the first prompt", text)',
        'cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal',
    ),
    Mutant(
        'run/recovery/breakers.py',
        'escape_text(key), after.failures, seconds, failure.kind,',
        'key, after.failures, seconds, failure.kind,',
        'cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal',
    ),
    Mutant(
        'run/calls/tool_runner.py',
        'LOG.warning("%s", escape_text(f"session {self._session}: {error}"))',
        'LOG.warning("%s", f"session {self._session}: {error}")',
        'cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal',
    ),
    Mutant(
        "watchers/otel/exporter.py",
        'LOG.warning("telemetry: %s", escape_text(message))',
        'LOG.warning("telemetry: %s", message)',
        "watchers/test_otel.py::test_warnings_show_no_control_characters_of_a_receiver_or_an_exporter",
    ),
    Mutant(
        "run/context/telemetry.py",
        'LOG.warning("telemetry: a run continues without it: %s", escape_text(locate_error(error)))',
        'LOG.warning("telemetry: a run continues without it: %s", locate_error(error))',
        "watchers/test_otel.py::test_warnings_show_no_control_characters_of_a_receiver_or_an_exporter",
    ),
    Mutant(
        "run/context/reply_filter.py",
        "filtered = [chain.feed(text) for text in texts]",
        "filtered = [FilterChain(self._hooks, is_json=is_json).feed(text, last=True) for text in texts]",
        "run/context/test_personal_data.py::test_data_split_over_text_parts_is_redacted",
    ),
    Mutant(
        "run/context/reply_filter.py",
        "CUT_OFF = (Stop.LENGTH, Stop.PAUSED)",
        "CUT_OFF = ()",
        "run/context/test_personal_data.py::test_data_split_over_a_reply_and_its_continuation_is_redacted",
    ),
    Mutant(
        "hooks/json_filter.py",
        'if token.startswith("\\\\") else token',
        "if not token else token",
        "run/context/test_personal_data.py::test_a_structured_answer_is_redacted_as_it_reads_after_decoding",
    ),
    Mutant(
        "run/context/reply_filter.py",
        "parts.append(self._filter_answer(part, is_cut=is_cut))",
        "parts.append(part)",
        "run/context/test_personal_data.py::test_a_structured_answer_that_a_tool_asks_for_is_redacted",
    ),
    Mutant(
        "hooks/pii.py",
        "edits = edit_joined_texts(",
        "edits = () and edit_joined_texts(",
        "run/context/test_personal_data.py::test_data_split_over_the_parts_of_a_prompt_is_not_sent",
    ),
    Mutant(
        "core/calls/transitions.py",
        "hooks=item.hooks if event.arguments is None or is_doubted else item.hooks.for_new_arguments(),",
        "hooks=item.hooks,",
        "run/context/test_hooks_and_approvals.py::test_a_hook_refuses_or_answers_what_a_person_edited",
    ),
    Mutant(
        "core/hooks.py",
        "edits_replaced=hooks.edits_replaced + is_edited)",
        "edits_replaced=0)",
        "run/context/test_hooks_and_approvals.py::test_a_question_that_a_hook_restores_is_a_new_question",
    ),
    Mutant(
        "core/hooks.py",
        "if spec and canonical_arguments(item.arguments, spec) == canonical_arguments(call.arguments, spec):",
        "if spec:",
        "run/context/test_hooks_and_approvals.py::test_what_a_hook_makes_of_an_edit_is_put_to_the_person_again",
    ),
    Mutant(
        "core/calls/permission.py",
        "if item.hooks.edits_replaced else ()",
        "if False else ()",
        "run/context/test_hooks_and_approvals.py::test_a_question_that_a_hook_restores_is_a_new_question",
    ),
    Mutant(
        "run/hooks.py",
        "return (item.effective_call, item.hooks.unreviewed.result)",
        "return (item.call, item.hooks.unreviewed.result)",
        "run/context/test_hooks_and_approvals.py::test_after_tool_sees_the_arguments_that_ran",
    ),
    Mutant(
        "tools/schema/partial_output.py",
        "from bridle.values.text import NESTING_MAX, parse_json",
        "from msgspec.json import decode as parse_json\n\nNESTING_MAX = 10**9",
        "run/output/test_partial_output.py::test_an_answer_nested_without_end_does_not_end_the_run",
    ),
    Mutant(
        "tools/schema/partial_output.py",
        "return self._unread >= self._size // REFRESH_SHARE and self._take_unread()",
        "return self._take_unread()",
        "run/output/test_partial_output.py::test_all_readings_of_an_answer_stay_proportional_to_it",
    ),
    Mutant(
        "run/hooks.py",
        'LOG.warning("%s", escape_text(text))',
        'LOG.warning("%s", text)',
        "cli/test_injections.py::test_no_warning_of_a_run_prints_what_steers_a_terminal",
    ),
    Mutant(
        "run/context/user_functions.py",
        'LOG.warning("%s", escape_text(warning or message))',
        'LOG.warning("%s", warning or message)',
        "cli/test_injections.py::test_no_warning_of_a_run_prints_what_steers_a_terminal",
    ),
    Mutant(
        "cli/show/transcript.py",
        '"hook": "not run, answered by a hook",',
        "",
        "cli/test_event_lines.py::test_every_event_is_printed_and_none_steers_a_terminal",
    ),
    Mutant(
        "core/calls/argument_matching.py",
        'return CONTROL_CHARACTERS.sub("", SPACES.sub(" ", text)).casefold()',
        "return text",
        "core/calls/test_policy_matrix.py::test_no_generated_call_gets_past_a_rule_that_asks_or_denies",
    ),
    Mutant(
        "core/calls/permission.py",
        "return any(_value_matches(schema, place, pattern) for place in found)",
        "return any(place.value == pattern for place in found)",
        "core/calls/test_policy_matrix.py::test_no_generated_call_gets_past_a_rule_that_asks_or_denies",
    ),
    Mutant(
        "core/calls/permission.py",
        "tools = [spec for spec in specs if unseen.get(spec.name)]",
        "tools: list[ToolSpec] = []",
        "core/calls/test_unseen_defaults.py::test_a_rule_about_a_default_that_only_code_knows_is_refused",
    ),
    Mutant(
        "core/calls/validation.py",
        'return _explain_malformed(phrases, f"must be a JSON object, not {_name_json_kind(parsed)}")',
        "return {}",
        "core/calls/test_validation.py::test_what_is_not_one_complete_json_object_is_never_run",
    ),
    Mutant(
        "tools/schema/pydantic_types.py",
        "raise ValueError(f\"unknown field `{name}`; the fields are {', '.join(names)}\")",
        "pass",
        "core/calls/test_policy_matrix.py::test_a_second_name_of_a_field_is_refused",
    ),
    Mutant(
        "tools/process/command_tool.py",
        'if text.startswith("-"):',
        "if False:",
        "tools/process/test_command_tool.py::test_text_that_would_be_read_as_an_option_is_refused",
    ),
    Mutant(
        "tools/process/run_process.py",
        "[os.fspath(word) for word in argv],",
        '" ".join(os.fspath(word) for word in argv), shell=True,',
        "tools/process/test_process.py::test_words_never_pass_through_a_shell",
    ),
    Mutant(
        "tools/process/run_process.py",
        "env=dict(environment),",
        "env={**os.environ, **environment},",
        "tools/process/test_process.py::test_of_the_environment_only_what_is_named_is_seen",
    ),
    Mutant(
        "core/calls/transitions.py",
        "if item is None or question is None or question.binding != event.binding:",
        "if item is None or question is None:",
        "core/calls/test_approvals.py::test_an_answer_bound_to_another_question_is_refused",
    ),
    Mutant(
        "run/calls/approval.py",
        "found = [item for item in questions if item.id.startswith(wanted) or item.call_id == wanted]",
        "found = list(questions)[:1]",
        "core/calls/test_approvals.py::test_an_answer_that_fits_no_question_is_refused",
    ),
    Mutant(
        "core/calls/dispatch.py",
        "if limit is not None and count > limit:",
        "if False:",
        "run/test_bounds.py::test_a_reply_with_more_calls_than_allowed_ends_the_run_and_runs_none",
    ),
    Mutant(
        "core/budget/limits.py",
        "if kind not in CHECKED_PER_CALL and scope.used(kind) >= getattr(scope.limits, kind):",
        "if False:",
        "core/budget/test_limits.py::test_every_limit_leaves_everything_and_can_be_raised",
    ),
    Mutant(
        "core/budget/limits.py",
        "if output_tokens_room(state) < OUTPUT_TOKENS_MIN:",
        "if False:",
        "core/budget/test_limits.py::test_every_limit_leaves_everything_and_can_be_raised",
    ),
    Mutant(
        "run/budget/sources.py",
        "for source in sources[len(reservations) :]:",
        "for source in sources[:0]:",
        "run/budget/test_shared_budget.py::test_fifty_runs_at_once_never_exceed_it",
    ),
    Mutant(
        "core/context/excerpt.py",
        "return sum(map(len, _text_pieces(result))) > limit",
        "return False",
        "run/calls/test_stored_results.py::test_the_model_gets_an_excerpt_and_reads_the_rest",
    ),
    Mutant(
        "tools/function/invoker.py",
        "raise TypeError(f\"tool `{tool}` returned {error}; {_suggest_type(value)}\") from None",
        "return (Text(text=repr(value)),)",
        "tools/function/test_tool_results.py::test_what_a_model_cannot_read_is_named",
    ),
    Mutant(
        "tools/schema/json_form.py",
        'raise TypeError(f"a {type(value).__name__} that is nested too deeply, or contains itself") from None',
        "return None",
        "tools/function/test_tool_results.py::test_what_contains_itself_is_named",
    ),
    Mutant(
        "core/calls/validation.py",
        "_load_closed_schema(schema), validate_formats=True, offline=True",
        "_load_closed_schema(schema), validate_formats=True, offline=False",
        "core/calls/test_validation.py::test_a_schema_can_never_make_the_check_fetch_anything",
    ),
    Mutant(
        "tools/process/crash_guard.py",
        "end_trees KILL",
        "",
        "tools/process/test_process.py::test_when_we_are_killed_the_family_goes_too",
    ),
    Mutant(
        "stores/locks.py",
        "    inherited.close_files()",
        "    del inherited",
        "stores/test_session_locks.py::test_a_child_that_a_tool_forked_does_not_keep_the_lock_of_a_killed_driver",
    ),
    Mutant(
        "stores/locks.py",
        "        status = os.fstat(descriptor)",
        "        os.set_inheritable(descriptor, True)\n        status = os.fstat(descriptor)",
        "stores/test_session_locks.py::test_a_program_that_a_tool_started_does_not_keep_the_lock_of_a_killed_driver",
    ),
    Mutant(
        "providers/wire/decoder.py",
        'raise self._make_error("garbled", message) from None',
        "raise SystemError(message) from None",
        "campaigns/test_fuzz.py::test_changed_replies_never_raise_anything_else_and_take_no_longer",
    ),
    Mutant(
        "providers/wire/decoder.py",
        "        if not isinstance(error, ProviderError):",
        "        if not isinstance(error, ProviderError):\n            raise error",
        "campaigns/test_mutated_replies.py::test_a_changed_reply_never_bricks_a_session",
    ),
    Mutant(
        "core/context/token_estimate.py",
        "if total <= IMPLAUSIBLE_TIMES * estimate:",
        "if True:",
        "campaigns/test_mutated_replies.py::test_usage_above_the_window_is_recorded_and_flagged_and_not_believed",
    ),
    Mutant(
        "run/model_call.py",
        "ERROR_BODY_BYTES_MAX if self._refused else self._bytes_max or sys.maxsize,",
        "sys.maxsize if self._refused else self._bytes_max or sys.maxsize,",
        "run/test_bounds.py::test_an_error_page_is_not_read_to_its_end",
    ),
    Mutant(
        "transports/http.py",
        "self._ends = started + _seconds_or_infinity(deadlines.total_seconds)",
        "self._ends = inf",
        "transports/test_http.py::test_an_answer_that_takes_too_long_as_a_whole_is_given_up_and_not_asked_for_again",
    ),
    Mutant(
        "transports/http.py",
        "        self.status = response.status\n",
        "        self.status = response.status\n"
        '        if "location" in response.headers:\n'
        "            import msgspec\n"
        '            self._outgoing = msgspec.structs.replace(outgoing, url=response.headers["location"])\n'
        "            return await self.__aenter__()\n",
        "transports/test_http.py::test_a_redirect_is_an_answer_like_any_other",
    ),
    Mutant(
        "run/model_call.py",
        "return reply if redactor is None else redact_reply(reply, redactor)",
        "return reply",
        "run/test_redaction.py::test_a_key_that_a_reply_repeats_is_not_kept",
    ),
    Mutant(
        "values/redaction.py",
        "return self._pattern.sub(self._mark, text)",
        "return text",
        "run/test_redaction.py::test_a_key_that_a_reply_repeats_is_not_kept",
    ),
    Mutant(
        "run/model_call.py",
        "return self._connection.redact_error(text, self._list_secrets())",
        "return text",
        "run/test_redaction.py::test_an_error_that_repeats_the_key_is_kept_without_it",
    ),
    Mutant(
        "run/model_call.py",
        "if ready := found if shown is None else shown.take(found):",
        "if ready := found:",
        "values/test_stream_redaction.py::test_no_viewer_of_a_run_sees_the_key",
    ),
    Mutant(
        "run/context/shown_deltas.py",
        "if self._last is None or find_part_key(self._last) != find_part_key(delta):",
        "if True:",
        "values/test_stream_redaction.py::test_what_is_shown_is_what_is_kept",
    ),
    Mutant(
        "run/private_extras.py",
        "return HIDDEN_MARK",
        "return value",
        "run/test_private_extras.py::test_the_provider_gets_the_value_and_no_log_recording_or_terminal_does",
    ),
    Mutant(
        "run/model_connection.py",
        "secrets = self.secrets | self.private_extras.texts | signed",
        "secrets = self.secrets | signed",
        "run/test_private_extras.py::test_an_error_that_repeats_any_value_is_kept_without_it",
    ),
    Mutant(
        "run/private_extras.py",
        "omitted_extras=tuple(name for name in extras if name not in given),",
        "",
        "run/test_private_extras.py::test_not_given_again_no_mark_is_sent_and_the_omission_is_an_event",
    ),
    Mutant(
        "run/private_extras.py",
        "return replace(spec, native=msgspec.json.encode(shown).decode(), native_digest=digest)",
        "return spec",
        "run/test_private_hosted_tools.py::test_the_provider_gets_the_definition_and_no_log_recording_or_terminal_does",
    ),
    Mutant(
        "providers/schema/tool_schema.py",
        "if spec.native_digest:",
        "if False:",
        "run/test_private_hosted_tools.py::test_a_mark_from_a_log_is_refused_as_a_tool_and_never_encoded",
    ),
    Mutant(
        "run/private_extras.py",
        "omitted_tools=tuple(name for name in tools if name not in settings.tool_names),",
        "",
        "run/test_private_hosted_tools.py::test_not_given_again_no_mark_is_sent_and_the_omission_is_an_event",
    ),
    Mutant(
        "run/cache.py",
        "why = connection.redact_error(error.failure.message)\n        await",
        "why = error.failure.message\n        await",
        "run/test_private_hosted_tools.py::test_a_refusal_to_store_a_prompt_is_kept_without_key_and_values",
    ),
    Mutant(
        "transports/recorded.py",
        "return {secret for secret in found if not is_plain_word(secret)}",
        "return set()",
        "run/test_redaction.py::test_a_recording_has_no_key_in_any_spelling",
    ),
    Mutant(
        "transports/recorded.py",
        "return {secret for secret in found if not is_plain_word(secret)}",
        "return set()",
        "run/replay/test_sent_calls.py::test_a_key_that_a_reply_repeats_is_not_in_the_kept_bytes",
    ),
    Mutant(
        "run/replay/raw_recorder.py",
        "has_reply = bool(answer.body) and not is_filtered",
        "has_reply = bool(answer.body)",
        "run/replay/test_sent_calls.py::test_a_text_filter_withholds_the_bytes_of_replies",
    ),
    Mutant(
        "run/replay/sent_calls.py",
        'f"${endpoint.key_env[0]}"',
        '__import__("os").environ[endpoint.key_env[0]]',
        "cli/replay/test_raw_command.py::test_a_curl_command_sends_the_request_and_never_shows_the_key",
    ),
    Mutant(
        "run/replay/sent_calls.py",
        "    if is_credential_name(name):\n        return HIDDEN_MARK\n",
        "",
        "cli/replay/test_raw_command.py::test_credentials_of_an_endpoint_that_a_log_holds_are_not_shown",
    ),
    Mutant(
        "cli/commands/replay/raw.py",
        "is_expanded=bool(is_safe)",
        "is_expanded=True",
        "cli/replay/test_raw_command.py::test_a_log_from_elsewhere_runs_nothing_through_a_curl_command",
    ),
    Mutant(
        "stores/postgres/rows.py",
        "data = self._data_by_key.get(escape_nul(key))",
        'data = next((data for name, data in self._data_by_key.items() if name.startswith("redaction:")), None)',
        "run/archive/test_redact.py::test_an_unrecorded_removal_or_a_second_change_is_tampering",
    ),
    Mutant(
        "toolkit/workspace.py",
        "if name.casefold() in PROTECTED_NAMES:",
        'if name.casefold() == ".git":',
        "toolkit/test_workspace.py::test_settings_of_bridle_are_never_written",
    ),
    Mutant(
        "sandbox/protected_paths.py",
        'PROTECTED_NAMES = (".git", "bridle.toml")',
        'PROTECTED_NAMES = ("bridle.toml",)',
        "toolkit/test_workspace.py::test_git_is_read_and_never_written",
    ),
    Mutant(
        "sandbox/protected_paths.py",
        'PROTECTED_NAMES = (".git", "bridle.toml")',
        'PROTECTED_NAMES = (".git",)',
        "toolkit/test_workspace.py::test_settings_of_bridle_are_never_written",
    ),
    Mutant(
        "sandbox/protected_paths.py",
        "elif any(_identify(path) != key for key, path in self._known.items()):",
        "elif False:",
        "sandbox/test_sandbox.py::test_a_repository_stays_read_only_where_it_is_moved",
    ),
    Mutant(
        "sandbox/launcher/settings_guard.py",
        "if found != before.others.get(path)",
        "if False",
        "sandbox/test_sandbox.py::test_settings_of_other_programs_that_a_command_writes_are_reported",
    ),
    Mutant(
        "sandbox/launcher/settings_scan.py",
        "for at, folder in enumerate(self.folders):",
        "for at, folder in enumerate(self.folders[:1]):",
        "sandbox/test_sandbox.py::test_settings_of_bridle_below_the_top_are_moved_aside",
    ),
    Mutant(
        "tools/process/process_tree.py",
        "looks_further = self.leader.pid, self.ends_services and bool(self._mark)",
        "looks_further = self.leader.pid, False",
        "tools/mcp/test_mcp_connection.py::test_a_service_that_left_the_session_ends_with_its_server",
    ),
    Mutant(
        "tools/process/process_tree.py",
        "if not is_used or _is_found(os.kill, number):",
        "if False:",
        "tools/process/test_process_tree.py::test_the_group_of_a_reaped_leader_is_not_signalled",
    ),
    Mutant(
        "tools/process/crash_guard.py",
        'kill "-$1" "${found%/environ}"',
        "true",
        "tools/process/test_process.py::test_when_we_are_killed_the_family_goes_too",
    ),
    Mutant(
        "tools/code_mode/process.py",
        "if not self._turn.startswith(self._buffer[:TURN_BYTES]):",
        "if False:",
        "tools/code_mode/test_program_process.py::test_a_program_that_does_not_wait_for_its_answer_is_ended_however_fast_it_is",
    ),
    Mutant(
        "tools/code_mode/folder.py",
        "fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.flock(held, fcntl.LOCK_UN)",
        "tools/code_mode/test_program_folder.py::test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_kept",
    ),
    Mutant(
        "sandbox/launcher/settings_scan.py",
        "elif name in (SETTINGS_FILE, PROJECT_FILE):",
        "elif name == PROJECT_FILE:",
        "sandbox/test_sandbox.py::test_settings_of_bridle_that_a_command_writes_are_moved_aside",
    ),
    Mutant(
        "sandbox/launcher/settings_guard.py",
        "return settings is not None and settings != read_settings(old)",
        "return False",
        "sandbox/test_sandbox.py::test_settings_of_bridle_in_a_project_file_are_restored",
    ),
    Mutant(
        "sandbox/launcher/settings_guard.py",
        "fd = open_folder(self._root, folder)",
        "fd = os.open(os.path.join(self._workspace, folder), os.O_RDONLY)",
        "sandbox/test_settings_guard.py::test_a_folder_that_becomes_a_link_leads_to_nothing_outside",
    ),
    Mutant(
        "sandbox/launcher/settings_guard.py",
        "if old is not None and old.data is not None and not old.target:",
        "if old is not None:\n                old = old._replace(data=open(old.target, 'rb').read() if old.target else old.data)",
        "sandbox/test_settings_guard.py::test_the_content_of_a_file_outside_is_not_written",
    ),
    Mutant(
        "sandbox/launcher/settings_scan.py",
        "FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC",
        "sandbox/test_settings_guard.py::test_a_folder_that_becomes_a_link_leads_to_nothing_outside",
    ),
    Mutant(
        "sandbox/launcher/settings_scan.py",
        "target = os.path.realpath(f\"{self._workspace}/{path}\")",
        "return None",
        "sandbox/test_settings_guard.py::test_a_link_hides_no_settings",
    ),
    Mutant(
        "sandbox/launcher/settings_scan.py",
        "            except OSError:\n                self.unread.add(folder)\n                continue",
        "            except OSError:\n                continue",
        "sandbox/test_settings_guard.py::test_what_cannot_be_read_is_reported",
    ),
    Mutant(
        "sandbox/launcher/main.py",
        "            leave_session()\n",
        "",
        "sandbox/test_settings_guard.py::test_new_settings_are_found_although_the_launcher_is_killed",
    ),
    Mutant(
        "run/replay/log_wire.py",
        "body = redact_json_strings(body, extras.texts, HIDDEN_MARK)",
        "pass",
        "run/replay/test_sent_calls.py::test_values_that_the_log_does_not_hold_come_from_the_agent_and_stay_hidden",
    ),
    Mutant(
        "transports/recorded.py",
        "os.fchmod(descriptor, 0o600)",
        "pass",
        "run/test_redaction.py::test_a_recording_is_for_its_owner_only",
    ),
    Mutant(
        "run/logged_settings.py",
        "if trusted_host and trusted_host == host:",
        "if True:",
        "run/test_logged_models.py::test_an_address_from_a_log_is_not_asked_and_its_host_and_key_are_named",
    ),
    Mutant(
        "run/logged_settings.py",
        "    endpoint = logged.endpoint\n",
        "    return logged\n",
        "run/test_logged_models.py::test_nothing_is_imported_because_of_a_log",
    ),
    Mutant(
        "run/logged_settings.py",
        "return replace(logged, allow_rules_hold=False)",
        "return logged",
        "run/test_logged_settings.py::test_a_log_that_allows_everything_allows_nothing_when_a_prompt_is_put",
    ),
    Mutant(
        "run/logged_settings.py",
        "        if fault:",
        "        if False:",
        "run/test_logged_settings.py::test_extras_of_a_log_bring_no_address_and_no_credential",
    ),
    Mutant(
        "run/calls/approval_proof.py",
        "discards = bool(item.answer.binding) and not _is_proved(key, session, state, item)",
        "discards = False",
        "run/calls/test_approval_proof.py::test_an_approval_that_was_written_into_a_log_lets_nothing_run",
    ),
    Mutant(
        "core/calls/transitions.py",
        "if not event.discards_approval or item.answer is None:",
        "if True:",
        "run/calls/test_approval_proof.py::test_an_approval_that_was_written_into_a_log_lets_nothing_run",
    ),
    Mutant(
        "run/calls/approval_proof.py",
        '("approve", session, state.calls.request_hash, binding, arguments)',
        '("approve", binding, arguments)',
        "run/calls/test_approval_proof.py::test_a_proof_holds_for_its_session_and_its_history_only",
    ),
    Mutant(
        "run/calls/approval_proof.py",
        "changed = claim if claim is not None and claim != item.resource_claim else None",
        "changed = None",
        "run/calls/test_approval_proof.py::test_a_tools_own_word_about_a_call_is_not_taken_from_the_log",
    ),
    Mutant(
        "stores/sqlite/origins.py",
        "if _hash_origin(session, row.sid, row.parent, row.forked_at, anchor) != row.origin_hash:",
        "if False:",
        "stores/test_tampering.py::test_a_session_that_is_not_what_was_recorded_is_noticed",
    ),
    Mutant(
        "stores/chain.py",
        "if head and (expected != length + 1 or prev != head):",
        "if False:",
        "stores/test_tampering.py::test_a_session_that_is_not_what_was_recorded_is_noticed",
    ),
    Mutant(
        "values/record.py",
        "is_redacted = _hash_record(seq, at, data, prev) != hash_",
        "is_redacted = False",
        "run/recovery/test_session_log.py::test_a_broken_chain_names_the_record_and_a_fork_goes_on",
    ),
    Mutant(
        "values/record.py",
        "if not isinstance(evidence, ContentRedacted) or evidence.record_hash != hash_:",
        "if False:",
        "run/archive/test_redact.py::test_an_unrecorded_removal_or_a_second_change_is_tampering",
    ),
    Mutant(
        "stores/sqlite/rows.py",
        "db.execute(_SELECT_BY_KEY, (sid, key, hi))",
        "db.execute(_SELECT_BY_KEY.replace('once = ?', 'once > ?') + 'ORDER BY seq DESC', (sid, '', hi))",
        "run/archive/test_redact.py::test_an_unrecorded_removal_or_a_second_change_is_tampering",
    ),
    Mutant(
        "run/archive/transfer.py",
        "if line.seq != expected or line.prev != prev:",
        "if False:",
        "run/archive/test_transfer.py::test_every_single_damage_is_refused_with_its_line_and_nothing_is_written",
    ),
    Mutant(
        "run/archive/transfer.py",
        "if not records or len(records) != header.records or prev != header.head:",
        "if not records:",
        "run/archive/test_transfer.py::test_every_single_damage_is_refused_with_its_line_and_nothing_is_written",
    ),
    Mutant(
        "run/control/listener.py",
        "if not is_answer_proved(self._store, self._session, driver.state, answer):",
        "if False:",
        "run/control/test_control_processes.py::test_forged_and_useless_requests_are_refused_and_change_nothing",
    ),
    Mutant(
        "run/calls/approval_proof.py",
        "return hmac.compare_digest(prove_answer(store, session, state, event).encode(), event.proof.encode())",
        "return True",
        "run/control/test_control_processes.py::test_forged_and_useless_requests_are_refused_and_change_nothing",
    ),
    Mutant(
        "stores/postgres/address.py",
        "parts.netloc.rpartition('@')[2]",
        "parts.netloc",
        "stores/test_postgres.py::test_a_server_that_cannot_be_used_is_told_in_one_line_without_secrets",
    ),
    Mutant(
        "stores/postgres/connections.py",
        "except (pg.ClientConfigurationError, ValueError, OverflowError):",
        "except OverflowError:",
        "stores/test_postgres.py::test_a_server_that_cannot_be_used_is_told_in_one_line_without_secrets",
    ),
    Mutant(
        "stores/postgres/address.py",
        "parts.netloc.rpartition('@')[2]",
        "parts.netloc",
        "stores/test_postgres.py::test_doctor_and_config_show_the_store_without_its_password",
    ),
    Mutant(
        "config/key_check.py",
        "if _DATABASE_PASSWORD.search(value):",
        "if False:",
        "config/test_configuration.py::test_a_password_of_a_database_is_refused_and_a_url_without_one_is_not",
    ),
    Mutant(
        "stores/chain.py",
        "if record.event.unique_key != once and not isinstance(record.event, UnknownEvent):",
        "if False:",
        "stores/test_postgres.py::test_changed_rows_are_found",
    ),
    Mutant(
        "stores/postgres/rows.py",
        "if hash_identity(self.session, self.parent, self.forked_at, anchor) != self.seal:",
        "if False:",
        "stores/test_postgres.py::test_changed_rows_are_found",
    ),
    Mutant(
        "stores/postgres/tables.py",
        'if commit == "off" or fsync == "off":',
        "if False:",
        "stores/test_postgres.py::test_a_server_that_may_lose_what_it_acknowledged_is_refused",
    ),
    Mutant(
        "stores/postgres/queries.py",
        " AND s.epoch = coalesce(job.epoch, s.epoch)",
        "",
        "stores/test_postgres_crashes.py::test_a_paused_owner_cannot_write_after_a_takeover",
    ),
    Mutant(
        "stores/postgres/leases.py",
        "if key in self._lost:",
        "if False:",
        "stores/test_postgres.py::test_a_lease_that_was_lost_with_its_connection_is_not_written_under",
    ),
    Mutant(
        "stores/anchors.py",
        "self.write(Anchor(session=session, seq=record.seq, head=record.hash, at=record.at))",
        "pass",
        "stores/test_anchors.py::test_an_old_copy_put_back_is_found",
    ),
    Mutant(
        "run/recovery/verification.py",
        "if hashes.get(anchor.seq) != anchor.head]",
        "if False]",
        "stores/test_anchors.py::test_tampering_is_always_found",
    ),
    Mutant(
        "stores/sqlite/rows.py",
        "if epoch is not None and epoch != stored_epoch:",
        "if False:",
        "campaigns/test_zombies.py::test_the_late_write_of_a_paused_owner_is_refused",
    ),
    Mutant(
        "stores/memory.py",
        "if epoch is not None and line.epoch != epoch:",
        "if False:",
        "stores/test_stores.py::test_a_store_keeps_its_promises",
    ),
    Mutant(
        "stores/locks.py",
        "await self._epochs.raise_epoch(session, epoch)",
        "pass",
        "stores/test_stores.py::test_a_store_keeps_its_promises",
    ),
    Mutant(
        "stores/sqlite/database_file.py",
        "        return path.resolve()",
        "        return path.absolute()",
        "stores/test_session_locks.py::test_a_mutating_call_is_not_run_by_a_second_driver_that_came_through_a_link",
    ),
    Mutant(
        "stores/locks.py",
        '_set_lock(file.descriptor, offset, "F_WRLCK")',
        "pass",
        "stores/test_session_locks.py::test_a_mutating_call_is_not_run_by_a_second_driver_that_came_through_a_link",
    ),
    Mutant(
        "run/calls/tool_runner.py",
        "            result = await self._run_tool(effect, nested)\n",
        "            result = await self._run_tool(effect, nested)\n            result = await self._run_tool(effect, nested)\n",
        "story/test_kill.py::test_killed_at_every_moment_of_a_payment",
    ),
    Mutant(
        "run/validate_input.py",
        "        if session.startswith(prefix):",
        "        if False:",
        "run/test_tenants.py::test_reserved_names_are_refused_at_every_entry",
    ),
    Mutant(
        "run/validate_input.py",
        "        if session.startswith(prefix):",
        "        if False:",
        "run/test_tenants.py::test_reserved_names_are_refused_by_every_command",
    ),
    Mutant(
        "run/validate_input.py",
        "if tenant is None or state.identity.owner is None or str(tenant) == state.identity.owner:",
        "if True:",
        "run/test_tenants.py::test_another_tenant_cannot_go_on_fork_answer_or_read",
    ),
    Mutant(
        "run/validate_input.py",
        'return str(tenant) or "(none)"',
        'return ""',
        "run/test_tenants.py::test_undoing_across_tenants_is_recorded",
    ),
    Mutant(
        "run/validate_input.py",
        "if tenant is None or state.identity.owner is None or str(tenant) == state.identity.owner:",
        "if True:",
        "run/test_tenants.py::test_every_command_about_a_session_keeps_tenants_apart",
    ),
    Mutant(
        "core/memory.py",
        "elif notes.loaded.tenant != state.run.origin.tenant:",
        "elif False:",
        "run/memory/test_notes.py::test_tenants_never_see_one_anothers_notes_even_in_one_session",
    ),
    Mutant(
        "values/text.py",
        "return _NOT_ASCII.sub(lambda found: found[0] if found[0] in kept else escape(found[0]), text)",
        "return text",
        "cli/test_injections.py::test_no_command_prints_what_steers_a_terminal_or_is_not_seen",
    ),
    Mutant(
        "cli/format/printing.py",
        "piece if at % 2 else escape_text(piece, prose=prose)",
        "piece",
        "cli/test_injections.py::test_no_command_prints_what_steers_a_terminal_or_is_not_seen",
    ),
    Mutant(
        "cli/terminal_approver.py",
        "first, *rest = format_question(question, screen_width() - len(INDENT))",
        "first, *rest = format_question(question, screen_width() - len(INDENT)); print(question.arguments)",
        "cli/test_injections.py::test_only_one_file_of_the_commands_prints",
    ),
    Mutant(
        "run/calls/approval.py",
        "complete_arguments=complete_call_arguments(state, item.call.name, arguments),",
        "complete_arguments=arguments,",
        "cli/test_injections.py::test_defaults_are_part_of_what_is_agreed_to",
    ),
    Mutant(
        "cli/commands/approve.py",
        "answered, arguments=text, complete_arguments=complete_call_arguments(state, question.tool, text)",
        "answered",
        "cli/test_injections.py::test_defaults_are_part_of_what_is_agreed_to",
    ),
    Mutant(
        "cli/terminal_approver.py",
        "for line in (*rest, *more):",
        "for line in more:",
        "cli/test_injections.py::test_a_person_at_the_terminal_sees_the_defaults",
    ),
    Mutant(
        "run/calls/approval.py",
        "if len(found) == 1:",
        "if found:",
        "cli/test_injections.py::test_no_id_and_half_an_id_that_means_two_answer_nothing",
    ),
    Mutant(
        "config/configuration.py",
        "last = root or (home if home in folders else start)",
        "last = folders[-1]",
        "config/test_configuration.py::test_the_search_ends_at_the_repository_or_home_and_is_local_elsewhere",
    ),
    Mutant(
        "config/configuration.py",
        "if owner not in (os.getuid(), 0):",
        "if owner is None:",
        "config/test_configuration.py::test_a_file_of_another_user_is_refused_unless_named",
    ),
    Mutant(
        "config/key_check.py",
        "if variable := _find_key_variable(value):",
        'if variable := "":',
        "config/test_configuration.py::test_a_credential_in_a_file_is_refused_and_not_repeated",
    ),
    Mutant(
        "cli/agent_builder.py",
        "if names and not self._tools and not self._servers:",
        "if not names:",
        "config/test_agent_file.py::test_no_agent_file_is_taken_from_a_log",
    ),
    Mutant(
        "run/clock.py",
        "return self._started_at + (self.monotonic() - self._monotonic_start)",
        "return self.wall.now()",
        "run/test_clock_steps.py::test_a_budget_in_seconds_counts_the_seconds_that_passed",
    ),
    Mutant(
        "sim/server.py",
        'if problem := check_host(request.headers.getall("Host", ())):',
        'if problem := "":',
        "sim/test_server_limits.py::test_a_name_that_somebody_made_point_here_is_refused_in_one_line",
    ),
    Mutant(
        "sim/server.py",
        "self._limits.header_seconds, self._refuse_head, HEAD_TOO_SLOW",
        "86_400.0, self._refuse_head, HEAD_TOO_SLOW",
        "sim/test_server_limits.py::test_every_byte_does_not_begin_the_time_anew",
    ),
    Mutant(
        "toolkit/workspace.py",
        'if name == "..":',
        'if name == "":',
        "toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",
    ),
    Mutant(
        "toolkit/workspace.py",
        "FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
        "FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY",
        "toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",
    ),
    Mutant(
        "toolkit/workspace.py",
        "opened = os.open(name, FOLDER_FLAGS, dir_fd=self",
        "opened = os.open(name, FOLDER_FLAGS if self._read_link(name) else os.O_RDONLY, dir_fd=self",
        "toolkit/test_workspace.py::test_what_becomes_a_link_just_before_it_is_opened_is_refused",
    ),
    Mutant(
        "toolkit/workspace.py",
        "fd = os.open(place.name, FILE_FLAGS, dir_fd",
        "fd = os.open(place.name, FILE_FLAGS & ~os.O_NOFOLLOW, dir_fd",
        "toolkit/test_workspace.py::test_what_becomes_a_link_just_before_it_is_opened_is_refused",
    ),
    Mutant(
        "toolkit/workspace.py",
        "        _check_regular(about, path)\n        data =",
        "        data =",
        "toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",
    ),
    Mutant(
        "toolkit/workspace.py",
        "os.O_NOFOLLOW | os.O_NONBLOCK",
        "os.O_NOFOLLOW",
        "toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",
    ),
    Mutant(
        "toolkit/workspace.py",
        "if name.casefold() in PROTECTED_NAMES:",
        "if name in ():",
        "toolkit/test_workspace.py::test_git_is_read_and_never_written",
    ),
    Mutant(
        "sandbox/local.py",
        "for each in self._protected.find()]",
        "for each in ()]",
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[add a hook of git-bubblewrap]",
    ),
    Mutant(
        "sandbox/docker.py",
        "for path in protected:",
        "for path in ():",
        "sandbox/test_sandbox.py::test_the_words_for_docker",
    ),
    Mutant(
        "sandbox/local.py",
        "if home == root or root in home.parents:",
        "if home is None:",
        "toolkit/test_workspace.py::test_a_home_folder_is_no_workspace",
    ),
    Mutant(
        "toolkit/workspace.py",
        "        check_workspace(self.root, what)",
        "        check_workspace",
        "toolkit/test_workspace.py::test_a_home_folder_is_no_workspace",
    ),
    Mutant(
        "sandbox/docker.py",
        "        check_workspace(self.workspace)",
        "        check_workspace",
        "sandbox/test_sandbox.py::test_a_workspace_with_the_home_folder_is_refused",
    ),
    Mutant(
        "sandbox/local.py",
        "        check_workspace(self.workspace)",
        "        check_workspace",
        "sandbox/test_sandbox.py::test_a_workspace_with_the_home_folder_is_refused",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "if not any(rule.matches(host, port) for rule in self.rules):",
        "if not host:",
        "toolkit/test_fetch.py::test_other_addresses_are_refused",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "if not host or parts.username is not None or parts.password is not None:",
        "if not host:",
        "toolkit/test_fetch.py::test_other_addresses_are_refused",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "return port in self.ports and (host == self.host or is_below)",
        "return host == self.host or is_below",
        "sandbox/test_proxy.py::test_a_host_is_reached_at_its_ports_only",
    ),
    Mutant(
        "toolkit/fetch_tool.py",
        "        self._stream.settimeout(_seconds_left(self._deadline))\n        return self._stream.recv_into(buffer)",
        "        return self._stream.recv_into(buffer)",
        "toolkit/test_fetch.py::test_a_server_that_sends_slowly_holds_no_thread_and_no_socket",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "host.endswith(self.host[1:])",
        "host.endswith(self.host[2:])",
        "toolkit/test_fetch.py::test_other_addresses_are_refused",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "return ip.is_global and not ip.is_multicast",
        "return True",
        "toolkit/test_fetch.py::test_private_addresses_are_refused",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "if any(ip in network for network in MAPPED_NETWORKS) or ip.teredo is not None:",
        "if ip.teredo is not None:",
        "toolkit/test_fetch.py::test_private_addresses_are_refused",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "if not is_public(address):",
        "if not address:",
        "toolkit/test_fetch.py::test_other_spellings_of_an_address_are_resolved_before_the_check",
    ),
    Mutant(
        "toolkit/fetch_tool.py",
        "with _connect(address, port,",
        "with _connect(host, port,",
        "toolkit/test_fetch.py::test_the_address_that_was_checked_is_the_one_that_is_used",
    ),
    Mutant(
        "toolkit/fetch_tool.py",
        "url = urljoin(url, answer.location)",
        'url = urljoin(url, answer.location); self._hosts = HostRules((), (url.split("/")[2] or "x",))',
        "toolkit/test_fetch.py::test_redirects_are_checked_like_first_requests",
    ),
    Mutant(
        "toolkit/fetch_tool.py",
        "for _ in range(REDIRECTS_MAX + 1):",
        "while True:",
        "toolkit/test_fetch.py::test_redirects_end",
    ),
    Mutant(
        "toolkit/fetch_tool.py",
        "cut = len(body) > BODY_BYTES_MAX",
        "cut = False",
        "toolkit/test_fetch.py::test_endless_and_slow_pages_end",
    ),
    Mutant(
        "sandbox/local.py",
        "environment={**environment, **own})",
        "environment={**os.environ, **environment, **own})",
        "sandbox/test_sandbox.py::test_variables_are_those_that_are_passed",
    ),
    Mutant(
        "sandbox/local.py",
        'SYSTEM_FOLDERS = ("/usr",',
        'SYSTEM_FOLDERS = ("/var", "/usr",',
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[read a file outside by its path-namespaces]",
    ),
    Mutant(
        "sandbox/local.py",
        "if folder != workspace and workspace not in folder.parents:",
        "if not folder.exists():",
        "sandbox/test_sandbox.py::test_folders_outside_are_refused_or_shown_read_only",
    ),
    Mutant(
        "tools/process/command_tool.py",
        "made._sandbox = sandbox",
        "made._sandbox = None",
        "sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",
    ),
    Mutant(
        "sandbox/local.py",
        '"network": self._network,',
        '"network": True,',
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[connect to a server of the machine-namespaces]",
    ),
    Mutant(
        "sandbox/local.py",
        "        if self._network:\n",
        "        if True:\n",
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[connect to a server of the machine-bubblewrap]",
    ),
    Mutant(
        "sandbox/launcher/main.py",
        "    install_filter()\n    argv",
        "    argv",
        "sandbox/test_sandbox.py::test_a_command_has_no_rights_left",
    ),
    Mutant(
        "sandbox/launcher/main.py",
        "    drop_capabilities()\n",
        "",
        "sandbox/test_sandbox.py::test_a_command_has_no_rights_left",
    ),
    Mutant(
        "sandbox/launcher/kernel.py",
        'check_call("landlock", LIBC.syscall(LANDLOCK_RESTRICT, rules, 0))',
        "pass",
        "sandbox/test_sandbox.py::test_a_command_has_no_rights_left",
    ),
    Mutant(
        "sandbox/launcher/seccomp.py",
        "(*REFUSED_EVERYWHERE.values(), *REFUSED[machine].values())",
        "REFUSED[machine].values()",
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[use io_uring-bubblewrap]",
    ),
    Mutant(
        "sandbox/launcher/seccomp.py",
        "SOCKET_FAMILIES = (1, 2, 10, 16)",
        "SOCKET_FAMILIES = (1, 2, 10, 16, 38, 40)",
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[talk to the host of a virtual machine-namespaces]",
    ),
    Mutant(
        "sandbox/launcher/main.py",
        'make_group(limits["memory_bytes"], ',
        "make_group(2**40, ",
        "sandbox/test_sandbox.py::test_a_limit_is_named_when_it_is_reached",
    ),
    Mutant(
        "sandbox/launcher/main.py",
        'limits["memory_bytes"], limits["processes"])',
        'limits["memory_bytes"], 2**20)',
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[start more processes than allowed-namespaces]",
    ),
    Mutant(
        "sandbox/launcher/main.py",
        '    set_limit(resource.RLIMIT_FSIZE, limits["file_bytes"])\n',
        "",
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[fill a large file-bubblewrap]",
    ),
    Mutant(
        "sandbox/local.py",
        '"--size", str(self._limits.tmp_bytes), ',
        "",
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[fill /tmp-bubblewrap]",
    ),
    Mutant(
        "sandbox/launcher/namespaces.py",
        'f"mode=1777,size={tmp_bytes}"',
        '"mode=1777"',
        "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[fill /tmp-namespaces]",
    ),
    Mutant(
        "sandbox/local.py",
        "if not problem:",
        "if True:",
        "sandbox/test_sandbox.py::test_without_a_mechanism_nothing_is_made_and_the_way_out_is_named",
    ),
    Mutant(
        "sandbox/launcher/kernel.py",
        "    if result < 0:",
        "    if result is None:",
        "sandbox/test_sandbox.py::test_no_command_runs_if_the_isolation_fails",
    ),
    Mutant(
        "run/validate_input.py",
        "file.is_relative_to(folder)",
        "folder == file",
        "sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",
    ),
    Mutant(
        "tools/process/command_tool.py",
        "return None if self._sandbox is None else self._sandbox.workspace",
        "return None",
        "sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",
    ),
    Mutant(
        "toolkit/file_tools.py",
        "        self.workspace = workspace",
        "        del workspace",
        "sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",
    ),
    Mutant(
        "cli/commands/approvals.py",
        "shown = escape_text(line, exact=True)",
        "shown = line",
        "toolkit/test_file_tools.py::test_a_person_sees_a_diff_that_cannot_steer_the_terminal",
    ),
    Mutant(
        "cli/commands/approvals.py",
        "[shown] if room is None else split_cells(shown, max(1, room - len(CONTINUED)))",
        "[shown]",
        "cli/test_approval_screens.py::test_no_text_from_outside_starts_a_line_of_the_screen",
    ),
    Mutant(
        "sandbox/launcher/proxy.py",
        'if not is_tunnel and parts.scheme != "http":',
        'if not parts:',
        "sandbox/test_proxy.py::test_odd_requests_open_no_connection",
    ),
    Mutant(
        "sandbox/launcher/proxy.py",
        "parts, host, port = self._rules.parse_url(f\"https://{target}\" if is_tunnel else target)",
        "parts = __import__('urllib.parse').parse.urlsplit(f'https://{target}' if is_tunnel else target); host, port = parts.hostname or '', parts.port or 80",
        "sandbox/test_proxy.py::test_everything_else_is_refused_and_the_refusal_names_the_way",
    ),
    Mutant(
        "sandbox/host_rules.py",
        "if not any(rule.matches(host, port) for rule in self.private):",
        "if not host:",
        "sandbox/test_proxy.py::test_allowed_names_with_private_addresses_are_refused",
    ),
    Mutant(
        "sandbox/launcher/proxy.py",
        "with socket.create_connection((address, port), CONNECT_SECONDS) as server:",
        "with socket.create_connection((host, port), CONNECT_SECONDS) as server:",
        "sandbox/test_proxy.py::test_the_address_that_was_checked_is_the_one_that_is_used",
    ),
    Mutant(
        "sandbox/local.py",
        '["-I", "-S", "-c", BOOT, find_source_folder()],',
        '["-I", "-S", "-c", BOOT, find_source_folder()], **({"network": True} if self.hosts else {}),',
        "sandbox/test_proxy.py::test_everything_else_is_refused_and_the_refusal_names_the_way",
    ),
    Mutant(
        "sandbox/launcher/proxy.py",
        'if name == "transfer-encoding":',
        'if name == "":',
        "sandbox/test_proxy.py::test_requests_that_servers_could_read_differently_are_refused",
    ),
    Mutant(
        "sandbox/launcher/proxy.py",
        "_send_body(client, server, rest, body_bytes)",
        "server.sendall(rest)",
        "sandbox/test_proxy.py::test_a_request_names_the_host_of_its_address_and_no_second_one_follows",
    ),
    Mutant(
        "run/validate_input.py",
        'if policy.sandbox == "required":',
        "if False:",
        "sandbox/test_sandbox.py::test_a_policy_can_require_a_sandbox",
    ),
    Mutant(
        "toolkit/skill_tool.py",
        "text = skill.workspace.read_text(file).text",
        "text = (skill.workspace.root / file).read_text()",
        "toolkit/test_skills.py::test_files_outside_of_the_skill_are_refused",
    ),
    Mutant(
        "toolkit/skill_tool.py",
        "if escape_text(value, prose=True) != value:",
        "if not value:",
        "toolkit/test_skills.py::test_wrong_files_are_refused_with_their_line",
    ),
    Mutant(
        "toolkit/skill_tool.py",
        "if len(made) > CATALOGUE_CHARACTERS_MAX:",
        "if not made:",
        "toolkit/test_skills.py::test_sizes_are_bounded",
    ),
    Mutant(
        "toolkit/workspace.py",
        "for folder in self._read_only:",
        "for folder in ():",
        "toolkit/test_skills.py::test_commands_can_read_skills_and_no_tool_can_write_them",
    ),
    Mutant(
        "toolkit/__init__.py",
        "find_sandbox(root, allow=allow, readable=resolved)",
        "find_sandbox(root, allow=allow)",
        "toolkit/test_skills.py::test_commands_can_read_skills_and_no_tool_can_write_them",
    ),
    Mutant(
        "toolkit/skill_tool.py",
        "return whole.hexdigest()",
        'return ""',
        "toolkit/test_skills.py::test_a_session_is_told_that_a_skill_changed_since_it_began",
    ),
    Mutant(
        "toolkit/skill_tool.py",
        "notes = [CHANGED] if _hash_files(skill.workspace) != skill.version else []",
        "notes: list[str] = []",
        "toolkit/test_skills.py::test_a_change_while_the_agent_exists_is_told_in_the_result",
    ),
    Mutant(
        "cli/agent_builder.py",
        "if not files and is_new:",
        "if not files:",
        "toolkit/test_instruction_files.py::test_settings_apply_to_new_sessions_and_are_shown",
    ),
)  # fmt: skip


def read_boundaries() -> list[tuple[list[str], list[str]]]:
    """The guards and the tests of each row of SECURITY.md."""
    rows = [
        line.strip("|").split(" | ")
        for line in (ROOT / "SECURITY.md").read_text().splitlines()
        if line.startswith(("| a", "| the "))
    ]
    return [(re.findall(r"`([^`]+)`", row[2]), re.findall(r"`([^`]+)`", row[3])) for row in rows]


def run_tests(copy: Path, *tests: str) -> str:
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-o", "addopts=", "-p", "no:cacheprovider", *tests],
            cwd=copy / "tests",
            env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX * len(tests),
        )
    except subprocess.TimeoutExpired:
        return "failed"  # the test never ends without the guard
    if ended.returncode == 0:
        return "PASSED" if " passed" in ended.stdout else "SKIPPED"
    return "failed" if ended.returncode == 1 else f"ERROR {ended.returncode}: {ended.stdout[-300:]}"


def run_mutant(mutant: Mutant, copy: Path) -> str:
    """Outcome of the test with the guard disabled: `failed` is what should happen."""
    changed = copy / SOURCE / mutant.guard
    original = changed.read_text()
    changed.write_text(original.replace(mutant.old, mutant.new))
    try:
        return run_tests(copy, mutant.test)
    finally:
        changed.write_text(original)


def main(part: str = "") -> None:
    survivors = 0
    with tempfile.TemporaryDirectory(dir=ROOT.parent) as folder:  # recordings are found beside the repository
        copy = Path(folder)
        ignored = shutil.ignore_patterns("__pycache__", ".git")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, copy / name)
        chosen = [mutant for mutant in MUTANTS if part in f"{mutant.guard} {mutant.test}"]
        if run_tests(copy, *{mutant.test for mutant in chosen}) != "PASSED":
            sys.exit("a test fails with every guard in place; correct it first")
        for mutant in chosen:
            outcome = run_mutant(mutant, copy)
            survivors += outcome != "failed"
            print(f"{outcome:8} {mutant.guard:40} {mutant.test}", flush=True)
    print(f"{len(chosen)} guards disabled, {survivors} not noticed")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main(*sys.argv[1:])
