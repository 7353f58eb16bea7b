"""The boundaries that Bridle guards: what comes from where, which statement of the source stops it, and the test of it.

A guard is a statement that is marked in the source by a comment, `# guard: token-compare`. `tests/campaigns/guard_mutants.py`
disables it in a copy of the source by the named mutation (tests/campaigns/guard_mutations.py), and each of its tests must
fail then. `docs/generate.py` writes docs/guards.md from this table.
"""

import re
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "bridle"
MARKER = re.compile(r"^\s*(?:#|//|--) guard: (.*)$", re.MULTILINE)
MARKER_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")
SUFFIXES = (".py", ".js")


class Guard(NamedTuple):
    """A marked statement, how it is disabled, and the tests that notice it."""

    marker: str
    mutation: str
    tests: tuple[str, ...]
    """File below tests/, and name; one case in brackets where all of them take long."""


class Boundary(NamedTuple):
    """What one source, which is not trusted, could do."""

    source: str
    risk: str
    guards: tuple[Guard, ...]


class Place(NamedTuple):
    """Where a marker stands."""

    path: Path
    line: int
    """Number of the marker's line, from 0."""


def find_markers(folder: Path = SOURCE) -> dict[str, list[Place]]:
    """Every marker below a folder, by its name."""
    found: dict[str, list[Place]] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES):
        text = path.read_text(encoding="utf-8")
        for marker in MARKER.finditer(text):
            line = text.count("\n", 0, marker.start(1))
            found.setdefault(marker[1], []).append(Place(path, line))
    return found


BOUNDARIES = (
    Boundary(
        "a model",
        "a call that no rule allows",
        (
            Guard(
                "argument-text-folded",
                "value text",
                (
                    "core/calls/test_policy_matrix.py::test_no_generated_call_gets_past_a_rule_that_asks_or_denies",
                ),
            ),
            Guard(
                "rule-value-matched",
                "value any(place.value == pattern for place in found)",
                (
                    "core/calls/test_policy_matrix.py::test_no_generated_call_gets_past_a_rule_that_asks_or_denies",
                ),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a default computed by code, which rules cannot see",
        (
            Guard(
                "unseen-default-refused",
                "value []",
                (
                    "core/calls/test_unseen_defaults.py::test_a_rule_about_a_default_that_only_code_knows_is_refused",
                ),
            ),
        ),
    ),
    Boundary(
        "a model",
        "arguments that violate the tool's schema",
        (
            Guard(
                "arguments-are-object",
                "value {}",
                ("core/calls/test_validation.py::test_what_is_not_one_complete_json_object_is_never_run",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a field under a second name, which rules would not see",
        (
            Guard(
                "unknown-field-refused",
                "removed",
                ("core/calls/test_policy_matrix.py::test_a_second_name_of_a_field_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a program's arguments used as shell code, as an option, or to read API keys from the environment",
        (
            Guard(
                "option-like-text",
                "never",
                ("tools/process/test_command_tool.py::test_text_that_would_be_read_as_an_option_is_refused",),
            ),
            Guard(
                "program-without-shell",
                'argument Popen 0 ["/bin/sh", "-c", " ".join(map(os.fspath, argv))]',
                ("tools/process/test_process.py::test_words_never_pass_through_a_shell",),
            ),
            Guard(
                "program-without-shell",
                "with env={**os.environ, **environment}",
                ("tools/process/test_process.py::test_of_the_environment_only_what_is_named_is_seen",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "an approval used for another call",
        (
            Guard(
                "answer-binding",
                "without binding",
                ("core/calls/test_approvals.py::test_an_answer_bound_to_another_question_is_refused",),
            ),
            Guard(
                "answer-finds-question",
                "value list(questions)[:1]",
                ("core/calls/test_approvals.py::test_an_answer_that_fits_no_question_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a deployment of new code",
        "an approved call that vanishes, or an answer that is recorded and then not used",
        (
            Guard(
                "answer-honoured",
                "never",
                ("core/calls/test_compatibility.py::test_approval_that_cannot_be_honoured_is_refused",),
            ),
            Guard(
                "run-needs-compared",
                "never",
                ("core/calls/test_compatibility.py::test_approval_waits_for_code_that_can_honour_it",),
            ),
            Guard(
                "answering-agent-served",
                "value Agent(PLACEHOLDER_MODEL, store=host.store)",
                ("serve/test_upgrades.py::test_server_without_the_agent_records_no_answer",),
            ),
        ),
    ),
    Boundary(
        "a person who approves",
        "edited arguments that no `before_tool` hook has seen, or a hook's change of them that the person has not seen",
        (
            Guard(
                "edited-arguments-reviewed",
                "with hooks=item.hooks",
                (
                    "run/context/test_hooks_and_approvals.py::test_a_hook_refuses_or_answers_what_a_person_edited",
                ),
            ),
            Guard(
                "replaced-edits-counted",
                "with edits_replaced=0",
                (
                    "run/context/test_hooks_and_approvals.py::test_a_question_that_a_hook_restores_is_a_new_question",
                ),
            ),
            Guard(
                "hook-edit-compared",
                "without canonical_arguments",
                (
                    "run/context/test_hooks_and_approvals.py::test_what_a_hook_makes_of_an_edit_is_put_to_the_person_again",
                ),
            ),
            Guard(
                "restored-question-is-new",
                "never",
                (
                    "run/context/test_hooks_and_approvals.py::test_a_question_that_a_hook_restores_is_a_new_question",
                ),
            ),
            Guard(
                "hook-sees-run-arguments",
                "rename effective_call call",
                ("run/context/test_hooks_and_approvals.py::test_after_tool_sees_the_arguments_that_ran",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "endless calls, steps or spending",
        (
            Guard(
                "calls-per-reply-limit",
                "never",
                ("run/test_bounds.py::test_a_reply_with_more_calls_than_allowed_ends_the_run_and_runs_none",),
            ),
            Guard(
                "budget-limit-reached",
                "never",
                ("core/budget/test_limits.py::test_every_limit_leaves_everything_and_can_be_raised",),
            ),
            Guard(
                "output-room-left",
                "never",
                ("core/budget/test_limits.py::test_every_limit_leaves_everything_and_can_be_raised",),
            ),
            Guard(
                "pool-reservation",
                "value ()",
                ("run/budget/test_shared_budget.py::test_fifty_runs_at_once_never_exceed_it",),
            ),
        ),
    ),
    Boundary(
        "a client, the caller of a run",
        "a budget that lifts or drops the limits of the agent, the session or the tenant",
        (
            Guard(
                "lower-limit",
                "value one",
                ("run/budget/test_floor.py::test_merging_never_lifts_a_limit",),
            ),
            Guard(
                "client-budget",
                "value budget",
                ("run/budget/test_floor.py::test_a_client_lowers_the_limits_of_a_server_and_lifts_none",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "personal data split over parts of a reply or over its continuation, or as JSON escapes in a structured answer, which a text filter would not see",
        (
            Guard(
                "filter-joins-parts",
                "value [FilterChain(self._hooks, is_json=is_json).feed(text, last=True) for text in texts]",
                ("run/context/test_personal_data.py::test_data_split_over_text_parts_is_redacted",),
            ),
            Guard(
                "filter-joins-continuation",
                "value ()",
                (
                    "run/context/test_personal_data.py::test_data_split_over_a_reply_and_its_continuation_is_redacted",
                ),
            ),
            Guard(
                "filter-decodes-escapes",
                "never",
                (
                    "run/context/test_personal_data.py::test_a_structured_answer_is_redacted_as_it_reads_after_decoding",
                ),
            ),
            Guard(
                "filter-structured-answer",
                "unwrap _filter_answer",
                (
                    "run/context/test_personal_data.py::test_a_structured_answer_that_a_tool_asks_for_is_redacted",
                ),
            ),
        ),
    ),
    Boundary(
        "a client, imported history, a tool, another agent",
        "text that the provider is sent for the first time without the input hooks: history, documents, arguments, system prompts, descriptions and schemas of tools, a prompt that another hook answered or another agent began",
        (
            Guard(
                "unjudged-messages",
                "value max(_find_judged(state, hook).message_count, len(conversation.transcript.messages) - 1)",
                ("run/context/test_first_sent.py::test_no_origin_passes_by_the_input_hooks",),
            ),
            Guard(
                "system-prompt-redacted",
                "value ()",
                ("serve/gateway/test_gateway_first_sent.py::test_every_part_of_a_request_passes_the_hooks",),
            ),
            Guard(
                "stop-sequences-judged",
                "never",
                ("run/context/test_first_sent.py::test_stop_sequences_are_judged",),
            ),
            Guard(
                "compacted-after-hooks",
                "value conversation.transcript.messages",
                (
                    "run/context/test_first_sent.py::test_a_compaction_does_not_bring_back_what_a_hook_redacted",
                ),
            ),
            Guard(
                "hand-over-judged-again",
                "with conversation=after.conversation",
                (
                    "run/context/test_first_sent.py::test_a_hand_over_shows_the_conversation_to_the_hooks_of_the_next_agent",
                ),
            ),
        ),
    ),
    Boundary(
        "a browser",
        "instructions, tools, policy, settings, arguments and results, in the frames of a stream",
        (
            Guard(
                "browser-fields",
                "never",
                ("run/stream/test_to_sse.py::test_a_browser_gets_only_the_listed_fields",),
            ),
        ),
    ),
    Boundary(
        "a front end, a program that approves",
        "an unclear answer, or one to another question, that counts as a yes",
        (
            Guard(
                "approved-is-boolean",
                "never",
                (
                    "serve/test_approval_answers.py::test_an_unclear_answer_runs_nothing_and_leaves_the_question_open",
                ),
            ),
            Guard(
                "repeated-names-refused",
                "removed",
                ("serve/test_approval_answers.py::test_an_answer_that_repeats_a_name_is_unclear",),
            ),
            Guard(
                "lost-digits-refused",
                "never",
                (
                    "serve/test_approval_answers.py::test_an_edited_answer_pays_the_account_of_the_question_on_every_entry",
                ),
            ),
            Guard(
                "front-end-shows-asked-arguments",
                "never",
                (
                    "serve/test_stream_formats.py::test_front_ends_show_the_arguments_that_a_question_is_about",
                ),
            ),
            Guard(
                "answer-names-question",
                "never",
                ("serve/test_approval_answers.py::test_an_answer_is_bound_to_its_question",),
            ),
            Guard(
                "verdict-form",
                "unwrap read_verdict",
                ("serve/test_approval_answers.py::test_a_verdict_of_another_form_is_refused",),
            ),
        ),
    ),
    Boundary(
        "another user of the machine",
        "the token of `bridle serve --open`, or the address of a sign-in, on the command line of the browser",
        (
            Guard(
                "browser-gets-file",
                "value webbrowser.open(address)",
                ("cli/test_inspect_browser.py::test_no_token_is_on_the_command_line_of_the_browser",),
            ),
        ),
    ),
    Boundary(
        "a caller's prompt",
        "a refused prompt that is sent with a later one, or that makes every later prompt refused",
        (
            Guard(
                "refused-prompt-removed",
                "unwrap _apply_view_changed",
                ("run/context/test_first_sent.py::test_prompts_after_a_refused_one_are_answered",),
            ),
        ),
    ),
    Boundary(
        "a caller's prompt",
        "personal data split over parts of a prompt",
        (
            Guard(
                "prompt-parts-redacted",
                "value ()",
                (
                    "run/context/test_personal_data.py::test_data_split_over_the_parts_of_a_prompt_is_not_sent",
                ),
            ),
        ),
    ),
    Boundary(
        "a tool's result",
        "more text than the context window holds",
        (
            Guard(
                "text-result-size-limit",
                "value False",
                ("run/calls/test_stored_results.py::test_the_model_gets_an_excerpt_and_reads_the_rest",),
            ),
            Guard(
                "result-size-limit",
                "value False",
                ("run/calls/test_stored_results.py::test_the_parts_of_a_result_are_counted_together",),
            ),
        ),
    ),
    Boundary(
        "a tool's result",
        "values that cannot be recorded or sent",
        (
            Guard(
                "unreadable-result-refused",
                "becomes return (Text(text=repr(value)),)",
                ("tools/function/test_tool_results.py::test_what_a_model_cannot_read_is_named",),
            ),
            Guard(
                "cyclic-result-refused",
                "becomes return None",
                ("tools/function/test_tool_results.py::test_what_contains_itself_is_named",),
            ),
        ),
    ),
    Boundary(
        "a tool's schema",
        "a reference that causes a network request",
        (
            Guard(
                "schema-offline",
                "with offline=False",
                ("core/calls/test_validation.py::test_a_schema_can_never_make_the_check_fetch_anything",),
            ),
        ),
    ),
    Boundary(
        "a tool's process",
        "child processes that outlive a run or keep its lock",
        (
            Guard(
                "crash-guard-kill",
                "removed",
                ("tools/process/test_process.py::test_when_we_are_killed_the_family_goes_too",),
            ),
            Guard(
                "child-closes-locks",
                "removed",
                (
                    "stores/test_session_locks.py::test_a_child_that_a_tool_forked_does_not_keep_the_lock_of_a_killed_driver",
                ),
            ),
            Guard(
                "lock-not-inherited",
                "after os.set_inheritable(descriptor, True)",
                (
                    "stores/test_session_locks.py::test_a_program_that_a_tool_started_does_not_keep_the_lock_of_a_killed_driver",
                ),
            ),
        ),
    ),
    Boundary(
        "a remote MCP server that the provider calls",
        "a call without a person's approval, though the user requires one",
        (
            Guard(
                "hosted-restrictions-enforced",
                "value []",
                (
                    "run/calls/test_hosted_tools.py::test_a_model_without_the_tool_is_refused_with_the_alternative",
                ),
            ),
            Guard(
                "remote-mcp-approval",
                'with approve="never"',
                ("run/calls/test_hosted_tools.py::test_a_remote_mcp_call_is_put_to_a_person",),
            ),
        ),
    ),
    Boundary(
        "a hosted tool",
        "a restriction, such as allowed domains, that the provider does not enforce",
        (
            Guard(
                "hosted-tool-known",
                "never",
                (
                    "run/calls/test_hosted_tools.py::test_a_model_without_the_tool_is_refused_with_the_alternative",
                ),
            ),
            Guard(
                "hosted-restrictions-enforced",
                "value []",
                (
                    "run/calls/test_hosted_tools.py::test_a_model_without_the_tool_is_refused_with_the_alternative",
                ),
            ),
        ),
    ),
    Boundary(
        "a hosted tool",
        "more uses than the budget pays for",
        (
            Guard(
                "hosted-cost-in-room",
                "removed",
                ("run/calls/test_hosted_tools.py::test_the_worst_case_includes_every_use",),
            ),
            Guard(
                "hosted-cost-in-worst-case",
                "removed",
                ("run/calls/test_hosted_tools.py::test_a_budget_holds_however_often_the_model_searches",),
            ),
        ),
    ),
    Boundary(
        "a log's reader",
        "the token or a header for a remote MCP server in the log, a trace or an error",
        (
            Guard(
                "hosted-definition-hidden",
                "unwrap replace",
                (
                    "run/calls/test_hosted_tools.py::test_credentials_of_a_remote_server_reach_the_provider_only",
                ),
            ),
            Guard(
                "hosted-repr-hides-settings",
                'value f"<hosted tool {self.spec!r}>"',
                (
                    "run/calls/test_hosted_tools.py::test_credentials_of_a_remote_server_reach_the_provider_only",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server",
        "a tool that declares itself harmless, though the user does not trust the server",
        (
            Guard(
                "untrusted-annotations",
                "always",
                (
                    "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server",
        "a description with invisible characters or without end; a second tool under a known name",
        (
            Guard(
                "description-escaped",
                "unwrap escape_text",
                (
                    "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
                ),
            ),
            Guard(
                "description-length-limit",
                "never",
                (
                    "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
                ),
            ),
            Guard(
                "duplicate-tool-name",
                "never",
                (
                    "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server",
        "a message without end, on standard output or as a response over streamable HTTP",
        (
            Guard(
                "mcp-stdio-message-limit",
                "never",
                ("tools/mcp/test_mcp_connection.py::test_a_message_without_end_ends_the_connection_only",),
            ),
            Guard(
                "mcp-response-limit",
                "never",
                ("tools/mcp/test_mcp_http.py::test_a_response_without_end_is_not_read_to_its_end",),
            ),
        ),
    ),
    Boundary(
        "an MCP server",
        "control characters, or a token that it was given, in the error messages that quote it",
        (
            Guard(
                "server-error-escaped",
                "unwrap escape_text",
                (
                    "tools/mcp/test_mcp_connection.py::test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_comes_back",
                ),
            ),
            Guard(
                "server-error-redacted",
                "removed",
                (
                    "tools/mcp/test_mcp_connection.py::test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_comes_back",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server",
        "resources and prompts with invisible characters, invalid items or pages without end",
        (
            Guard(
                "resource-text-escaped",
                'value text or ""',
                (
                    "tools/mcp/test_mcp_resources.py::test_hostile_lists_cost_only_their_bad_items_and_have_an_end",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server",
        "a request to the model or to a person that the user has not allowed; more of them than a call may make",
        (
            Guard(
                "sampling-announced",
                "with sampling_callback=self.requests.sample",
                ("tools/mcp/test_mcp_requests.py::test_requests_are_refused_and_not_announced_by_default",),
            ),
            Guard(
                "sampling-approval",
                'with approve="never"',
                (
                    "tools/mcp/test_mcp_requests.py::test_the_policy_allows_or_denies_sampling_without_a_question",
                ),
            ),
            Guard(
                "server-request-limit",
                "never",
                (
                    "tools/mcp/test_mcp_requests.py::test_a_server_cannot_spend_more_than_its_budget_or_ask_without_end",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server",
        "a question to a person with invisible characters, or with an address that is none of the web",
        (
            Guard(
                "server-question-escaped",
                "value params.message",
                (
                    "tools/mcp/test_mcp_requests.py::test_escapes_in_a_question_and_bad_addresses_do_not_reach_the_person",
                ),
            ),
            Guard(
                "server-address-scheme",
                "without URL_SCHEMES",
                (
                    "tools/mcp/test_mcp_requests.py::test_escapes_in_a_question_and_bad_addresses_do_not_reach_the_person",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "an answer to a server's request that you never gave",
        (
            Guard(
                "request-answer-proof",
                "without is_request_answer_proved",
                (
                    "tools/mcp/test_mcp_requests.py::test_an_answer_without_a_proof_of_this_user_is_asked_for_again",
                ),
            ),
        ),
    ),
    Boundary(
        "a model with file tools",
        "a folder that git takes for a repository, whose settings run a program at the next `git status`",
        (
            Guard(
                "planted-repository",
                "never",
                ("toolkit/test_planted_files.py::test_a_repository_that_exists_is_read_and_not_written",),
            ),
            Guard(
                "repository-by-two-writers",
                "never",
                (
                    "toolkit/test_planted_files.py::test_a_piece_is_removed_if_another_process_adds_the_rest_while_it_is_written",
                ),
            ),
        ),
    ),
    Boundary(
        "a sandboxed command",
        "a folder above that of a tool, moved and replaced by a link to another place",
        (
            Guard(
                "mount-identity",
                "never",
                ("toolkit/test_held_roots.py::test_what_is_swapped_after_the_command_was_made_is_not_shown",),
            ),
            Guard(
                "working-folder-held",
                "removed",
                (
                    "toolkit/test_held_roots.py::test_an_mcp_server_is_not_started_in_a_folder_that_was_moved",
                    "toolkit/test_held_roots.py::test_no_program_outside_of_a_sandbox_follows_a_folder_that_was_moved",
                ),
            ),
        ),
    ),
    Boundary(
        "files beside a log",
        "a link or a file at the place of an unfinished backup; the write-ahead log of another file",
        (
            Guard(
                "backup-draft-name",
                'argument with_name 0 f"{target.name}.partial"',
                ("stores/test_restore.py::test_a_backup_trusts_no_file_that_exists",),
            ),
            Guard(
                "foreign-write-ahead-log",
                "never",
                ("stores/test_restore.py::test_a_write_ahead_log_of_another_file_is_noticed",),
            ),
        ),
    ),
    Boundary(
        "an MCP server behind OAuth",
        "the token of another server that shares its token file",
        (
            Guard(
                "token-by-server",
                "value next(iter(self._read().values()), None)",
                (
                    "tools/mcp/test_mcp_sign_in.py::test_a_token_is_sent_only_to_the_server_that_it_is_kept_for[file]",
                ),
            ),
            Guard(
                "token-server-matches",
                "never",
                ("tools/mcp/test_mcp_sign_in.py::test_a_storage_that_mixes_servers_up_is_noticed",),
            ),
        ),
    ),
    Boundary(
        "an MCP server behind OAuth",
        "a sign-in that is led to a host of the private network, or by another page than that of the sign-in",
        (
            Guard(
                "sign-in-host-pinned",
                "always",
                ("tools/mcp/test_mcp_sign_in.py::test_discovery_that_leads_elsewhere_is_refused",),
            ),
            Guard(
                "sign-in-state-compare",
                "without compare_digest",
                ("tools/mcp/test_mcp_sign_in.py::test_a_callback_with_another_state_changes_nothing",),
            ),
            Guard(
                "sign-in-inner-address",
                'value ipaddress.ip_address(address.partition("%")[0])',
                (
                    "tools/mcp/test_mcp_sign_in.py::test_a_sign_in_reaches_no_host_that_the_server_must_not_name",
                ),
            ),
            Guard(
                "sign-in-host-allowed",
                "value None",
                (
                    "tools/mcp/test_mcp_sign_in.py::test_a_sign_in_reaches_no_host_that_the_server_must_not_name",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server behind OAuth",
        "a token in a log, an error or a file that others can read",
        (
            Guard(
                "sign-in-log-redacted",
                "removed",
                (
                    "tools/mcp/test_mcp_oauth.py::test_a_token_in_a_bad_answer_reaches_neither_the_error_nor_the_log",
                ),
            ),
            Guard(
                "token-file-mode",
                "argument open 2 0o644",
                (
                    "tools/mcp/test_mcp_oauth.py::test_a_person_signs_in_once_and_the_tokens_are_kept_in_a_private_file",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server in a sandbox",
        "files and variables outside of its workspace",
        (
            Guard(
                "mcp-server-sandboxed",
                "value SandboxedCommand(argv=self.argv, environment=environment)",
                (
                    "tools/mcp/test_mcp_sandbox.py::test_a_server_in_a_sandbox_sees_and_writes_only_its_workspace",
                ),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "malformed events, unexpected items, implausible usage",
        (
            Guard(
                "garbled-reply",
                "becomes raise SystemError(message) from None",
                (
                    "campaigns/test_fuzz.py::test_changed_replies_never_raise_anything_else_and_take_no_longer",
                ),
            ),
            Guard(
                "decoder-error-wrapped",
                "becomes if not isinstance(error, ProviderError): raise error",
                ("campaigns/test_mutated_replies.py::test_a_changed_reply_never_bricks_a_session",),
            ),
            Guard(
                "usage-below-estimate",
                "always",
                (
                    "campaigns/test_mutated_replies.py::test_usage_above_the_window_is_recorded_and_flagged_and_not_believed",
                ),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "an endless answer or error page",
        (
            Guard(
                "error-body-limit",
                "value (0, sys.maxsize)",
                ("run/test_bounds.py::test_an_error_page_is_not_read_to_its_end",),
            ),
            Guard(
                "total-deadline",
                "value inf",
                (
                    "transports/test_http.py::test_an_answer_that_takes_too_long_as_a_whole_is_given_up_and_not_asked_for_again",
                ),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "an answer nested without end, which ends a run that shows it with `stream.partial()`",
        (
            Guard(
                "partial-answer-nesting",
                "becomes from msgspec.json import decode as parse_json; NESTING_MAX = 10**9",
                (
                    "run/output/test_partial_output.py::test_an_answer_nested_without_end_does_not_end_the_run",
                ),
            ),
            Guard(
                "partial-read-share",
                "without REFRESH_SHARE",
                (
                    "run/output/test_partial_output.py::test_all_readings_of_an_answer_stay_proportional_to_it",
                ),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "a redirect that sends the API key to another host",
        (
            Guard(
                "redirect-not-followed",
                'after if "location" in response.headers: self._outgoing = replace(outgoing, url=response.headers["location"]); return await self.__aenter__()',
                ("transports/test_http.py::test_a_redirect_is_an_answer_like_any_other",),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "the API key, repeated in a reply and so written to the log",
        (
            Guard(
                "reply-redacted",
                "value reply",
                ("run/test_redaction.py::test_a_key_that_a_reply_repeats_is_not_kept",),
            ),
            Guard(
                "redaction-pattern",
                "unwrap sub -1",
                ("run/test_redaction.py::test_a_key_that_a_reply_repeats_is_not_kept",),
            ),
            Guard(
                "provider-error-redacted",
                "unwrap redact_error",
                ("run/test_redaction.py::test_an_error_that_repeats_the_key_is_kept_without_it",),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "the API key, shown to a viewer of the stream, split over deltas",
        (
            Guard(
                "stream-redacted",
                "value found",
                ("values/test_stream_redaction.py::test_no_viewer_of_a_run_sees_the_key",),
            ),
            Guard(
                "stream-parts-separate",
                "always",
                ("values/test_stream_redaction.py::test_what_is_shown_is_what_is_kept",),
            ),
        ),
    ),
    Boundary(
        "a log's reader",
        "a credential in an extra, under any name, in the log, a recording, a terminal or an error",
        (
            Guard(
                "private-extra-hidden",
                "value value",
                (
                    "run/test_private_extras.py::test_the_provider_gets_the_value_and_no_log_recording_or_terminal_does",
                ),
            ),
            Guard(
                "private-extras-are-secret",
                "without texts",
                ("run/test_private_extras.py::test_an_error_that_repeats_any_value_is_kept_without_it",),
            ),
            Guard(
                "omitted-values-recorded",
                "without omitted_extras",
                (
                    "run/test_private_extras.py::test_not_given_again_no_mark_is_sent_and_the_omission_is_an_event",
                ),
            ),
        ),
    ),
    Boundary(
        "a log's reader",
        "a credential in the definition of a hosted tool",
        (
            Guard(
                "hosted-definition-hidden",
                "unwrap replace",
                (
                    "run/test_private_hosted_tools.py::test_the_provider_gets_the_definition_and_no_log_recording_or_terminal_does",
                ),
            ),
            Guard(
                "hidden-definition-refused",
                "never",
                (
                    "run/test_private_hosted_tools.py::test_a_mark_from_a_log_is_refused_as_a_tool_and_never_encoded",
                ),
            ),
            Guard(
                "omitted-values-recorded",
                "without omitted_tools",
                (
                    "run/test_private_hosted_tools.py::test_not_given_again_no_mark_is_sent_and_the_omission_is_an_event",
                ),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "the API key, repeated in a refusal to store a prompt or to open a conversation",
        (
            Guard(
                "stored-prompt-error-redacted",
                "unwrap redact_error",
                (
                    "run/test_private_hosted_tools.py::test_a_refusal_to_store_a_prompt_is_kept_without_key_and_values",
                ),
            ),
        ),
    ),
    Boundary(
        "a tool, a program, a file, a hook",
        "the API key in use, a credential that signs requests or one of an MCP server, in a result, an exception, progress or another text, logged and sent to the model",
        (
            Guard(
                "tool-result-redacted",
                "unwrap redact_result",
                ("run/test_known_secrets.py::test_the_key_in_a_result_is_neither_logged_nor_sent",),
            ),
            Guard(
                "event-redacted",
                "unwrap redact_value",
                ("run/test_known_secrets.py::test_hooks_and_retrieved_text_are_redacted",),
            ),
            Guard(
                "traceback-redacted",
                "unwrap redact_text",
                (
                    "run/failures/test_tool_errors.py::test_a_key_in_an_exception_reaches_neither_log_nor_record",
                ),
            ),
            Guard(
                "sign-in-secrets-known",
                "value set()",
                ("run/test_known_secrets.py::test_a_token_that_a_sign_in_gave_later_is_known",),
            ),
        ),
    ),
    Boundary(
        "a recording's reader",
        "API keys in a recording, in any encoding",
        (
            Guard(
                "recorded-secrets",
                "value set()",
                ("run/test_redaction.py::test_a_recording_has_no_key_in_any_spelling",),
            ),
            Guard(
                "recording-file-mode",
                "removed",
                ("run/test_redaction.py::test_a_recording_is_for_its_owner_only",),
            ),
        ),
    ),
    Boundary(
        "a log's reader",
        "an API key, or text that a hook removes, in the kept bytes of a call",
        (
            Guard(
                "recorded-secrets",
                "value set()",
                ("run/replay/test_sent_calls.py::test_a_key_that_a_reply_repeats_is_not_in_the_kept_bytes",),
            ),
            Guard(
                "filtered-bytes-withheld",
                "without is_filtered",
                ("run/replay/test_sent_calls.py::test_a_text_filter_withholds_the_bytes_of_replies",),
            ),
        ),
    ),
    Boundary(
        "a log's reader",
        "an API key or a private value in a request that is shown",
        (
            Guard(
                "curl-key-variable",
                'argument auth_headers 1 __import__("os").environ[endpoint.key_env[0]]',
                (
                    "cli/replay/test_raw_command.py::test_a_curl_command_sends_the_request_and_never_shows_the_key",
                ),
            ),
            Guard(
                "credential-header-hidden",
                "never",
                (
                    "cli/replay/test_raw_command.py::test_credentials_of_an_endpoint_that_a_log_holds_are_not_shown",
                ),
            ),
            Guard(
                "shown-request-redacted",
                "removed",
                (
                    "run/replay/test_sent_calls.py::test_values_that_the_log_does_not_hold_come_from_the_agent_and_stay_hidden",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "a command in a header, address, model or message, run by the shell that gets the line of `bridle show --as raw --call N --curl`",
        (
            Guard(
                "curl-expands-nothing",
                "with is_expanded=True",
                (
                    "cli/replay/test_raw_command.py::test_a_log_from_elsewhere_runs_nothing_through_a_curl_command",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "an address, a key variable or an import chosen by the log",
        (
            Guard(
                "logged-host-trusted",
                "always",
                (
                    "run/test_logged_models.py::test_an_address_from_a_log_is_not_asked_and_its_host_and_key_are_named",
                ),
            ),
            Guard(
                "logged-endpoint-replaced",
                "becomes return logged",
                ("run/test_logged_models.py::test_nothing_is_imported_because_of_a_log",),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "permissions from its own rules; an address or a credential in its extras",
        (
            Guard(
                "logged-allow-rules",
                "unwrap replace",
                (
                    "run/test_logged_settings.py::test_a_log_that_allows_everything_allows_nothing_when_a_prompt_is_put",
                ),
            ),
            Guard(
                "logged-extras-checked",
                "never",
                ("run/test_logged_settings.py::test_extras_of_a_log_bring_no_address_and_no_credential",),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "an approval in the control log of a session, written without the key of the user",
        (
            Guard(
                "control-answer-proof",
                "never",
                (
                    "run/control/test_control_processes.py::test_forged_and_useless_requests_are_refused_and_change_nothing",
                ),
            ),
            Guard(
                "answer-proof-compare",
                "value True",
                (
                    "run/control/test_control_processes.py::test_forged_and_useless_requests_are_refused_and_change_nothing",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "a removal of content that no `ContentRedacted` records, or a change of what a redaction left",
        (
            Guard(
                "postgres-redaction-key",
                'value next((data for name, data in self._data_by_key.items() if name.startswith("redaction:")), None)',
                ("run/archive/test_redact.py::test_an_unrecorded_removal_or_a_second_change_is_tampering",),
            ),
            Guard(
                "redaction-evidence",
                "never",
                ("run/archive/test_redact.py::test_an_unrecorded_removal_or_a_second_change_is_tampering",),
            ),
            Guard(
                "sqlite-redaction-key",
                "value db.execute(\"SELECT CAST(coalesce(data, bytes) AS BLOB) FROM events LEFT JOIN blobs ON blobs.hash = events.blob WHERE sid = ? AND once > '' AND seq <= ? ORDER BY seq DESC\", (sid, hi))",
                ("run/archive/test_redact.py::test_an_unrecorded_removal_or_a_second_change_is_tampering",),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "an export with a changed, missing, moved or cut line",
        (
            Guard(
                "import-chain",
                "never",
                (
                    "run/archive/test_transfer.py::test_every_single_damage_is_refused_with_its_line_and_nothing_is_written",
                ),
            ),
            Guard(
                "import-header-head",
                "without header",
                (
                    "run/archive/test_transfer.py::test_every_single_damage_is_refused_with_its_line_and_nothing_is_written",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "an approval that you never gave",
        (
            Guard(
                "logged-approval-proof",
                "value False",
                (
                    "run/calls/test_approval_proof.py::test_an_approval_that_was_written_into_a_log_lets_nothing_run",
                ),
            ),
            Guard(
                "approval-discarded",
                "always",
                (
                    "run/calls/test_approval_proof.py::test_an_approval_that_was_written_into_a_log_lets_nothing_run",
                ),
            ),
            Guard(
                "approval-binds-session",
                'argument encode 0 ("approve", binding, arguments)',
                (
                    "run/calls/test_approval_proof.py::test_a_proof_holds_for_its_session_and_its_history_only",
                ),
            ),
            Guard(
                "resource-claim-changed",
                "value None",
                (
                    "run/calls/test_approval_proof.py::test_a_tools_own_word_about_a_call_is_not_taken_from_the_log",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "changed records",
        (
            Guard(
                "sqlite-origin-hash",
                "never",
                ("stores/test_tampering.py::test_a_session_that_is_not_what_was_recorded_is_noticed",),
            ),
            Guard(
                "chain-continues",
                "never",
                ("stores/test_tampering.py::test_a_session_that_is_not_what_was_recorded_is_noticed",),
            ),
            Guard(
                "record-hash",
                "value False",
                (
                    "run/recovery/test_session_log.py::test_a_broken_chain_names_the_record_and_a_fork_goes_on",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "an agent file chosen by the log",
        (
            Guard(
                "tools-not-from-log",
                "never",
                ("config/test_agent_file.py::test_no_agent_file_is_taken_from_a_log",),
            ),
        ),
    ),
    Boundary(
        "a web page",
        "a request to a server on this machine, through a name that was rebound to it",
        (
            Guard(
                "allowed-host",
                "always",
                ("serve/test_serve_security.py::test_a_rebound_name_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a web page",
        "a prompt, an answer or a cancelled run in your name, sent by a page of another site; your sessions, read by one",
        (
            Guard(
                "foreign-origin-read",
                "never",
                ("serve/test_serve_security.py::test_a_page_of_another_site_reads_nothing",),
            ),
            Guard(
                "form-content-type",
                "never",
                ("serve/test_serve_security.py::test_a_page_of_another_site_changes_nothing",),
            ),
        ),
    ),
    Boundary(
        "another machine",
        "agents and sessions of a server without its token; a token that is guessed, or found in a log",
        (
            Guard(
                "local-address",
                "never",
                ("serve/test_router_tenants.py::test_a_server_without_a_secret_is_for_its_own_machine",),
            ),
            Guard(
                "token-required",
                "always",
                ("serve/test_serve_security.py::test_a_server_with_a_token_wants_it_everywhere",),
            ),
            Guard(
                "token-guess-limit",
                "never",
                ("serve/test_serve_security.py::test_guessing_is_stopped_and_the_token_is_not_logged",),
            ),
            Guard(
                "exposed-without-token",
                "never",
                ("serve/test_serve_security.py::test_options_that_make_no_sense_are_refused",),
            ),
        ),
    ),
    Boundary(
        "a client of a server with identities",
        "a route without an identity or its right: identify fails, proves nothing, or a new route has none",
        (
            Guard(
                "router-without-identity",
                "becomes options = options or ServeOptions()",
                ("serve/test_identity.py::test_no_door_of_a_router_is_open_if_identify_is_absent",),
            ),
            Guard(
                "no-identities",
                "becomes scope[ACCESS_KEY] = HOLDER",
                ("serve/test_identity.py::test_no_door_of_a_router_is_open_if_identify_is_absent",),
            ),
            Guard(
                "identity-required",
                "never",
                ("serve/test_identity.py::test_no_door_is_open_if_identify_proves_nothing[nobody is found]",),
            ),
            Guard(
                "access-required",
                "never",
                ("serve/test_identity.py::test_a_route_without_the_check_in_front_of_it_is_closed",),
            ),
            Guard(
                "route-right",
                "never",
                ("serve/test_identity.py::test_every_route_is_open_with_its_right_only[read]",),
            ),
            Guard(
                "right-required",
                "never",
                ("serve/test_identity.py::test_every_route_is_open_with_its_right_only[approve]",),
            ),
            Guard(
                "route-without-right",
                "never",
                ("serve/test_identity.py::test_a_route_without_a_right_stops_the_server_from_starting",),
            ),
            Guard(
                "model-of-fork",
                "never",
                (
                    "serve/test_identity.py::test_a_client_cannot_choose_the_model_of_a_fork_without_the_right",
                ),
            ),
        ),
    ),
    Boundary(
        "a client of a server with identities",
        "sessions of another tenant or caller, by a route, a list, a chat or a wire",
        (
            Guard(
                "session-of-identity",
                "never",
                ("serve/test_identity.py::test_sessions_of_others_are_like_none_on_every_route[ann]",),
            ),
            Guard(
                "session-of-tenant",
                "never",
                ("serve/test_identity.py::test_sessions_of_others_are_like_none_on_every_route[eve]",),
            ),
            Guard(
                "session-of-caller",
                "value True",
                ("serve/test_identity.py::test_sessions_of_others_are_like_none_on_every_route[ann]",),
            ),
            Guard(
                "listed-of-identity",
                "never",
                ("serve/test_identity.py::test_sessions_of_others_are_like_none_on_every_route[ann]",),
            ),
            Guard(
                "chat-of-identity",
                "value True",
                ("serve/test_identity.py::test_a_chat_of_another_is_neither_continued_nor_shown",),
            ),
            Guard(
                "wire-session-of-caller",
                "value True",
                ("serve/test_identity.py::test_front_ends_and_wires_keep_to_the_identity[openai]",),
            ),
            Guard(
                "router-trusts-callers",
                "value HOLDER",
                ("serve/test_router_tenants.py::test_a_tenants_session_is_out_of_reach",),
            ),
            Guard(
                "trusted-caller-unknown",
                "never",
                ("serve/test_router_tenants.py::test_an_application_that_trusts_callers_is_not_open_to_all",),
            ),
        ),
    ),
    Boundary(
        "a client of a server with identities",
        "a tenant, a caller or an author that the request only claims, in a run, an answer or the audit; the context of another person",
        (
            Guard(
                "tenant-of-identity",
                "never",
                ("serve/test_identity.py::test_a_body_cannot_claim_another_identity",),
            ),
            Guard(
                "caller-of-identity",
                "never",
                ("serve/test_identity.py::test_a_body_cannot_claim_another_identity",),
            ),
            Guard(
                "author-of-identity",
                "never",
                ("serve/test_identity.py::test_a_body_cannot_claim_another_identity",),
            ),
            Guard(
                "context-of-caller",
                "operand owner",
                (
                    "serve/test_identity.py::test_a_run_never_goes_on_with_the_context_of_the_person_who_approved[True]",
                ),
            ),
            Guard(
                "context-known-before-answer",
                "never",
                (
                    "serve/test_identity.py::test_a_run_never_goes_on_with_the_context_of_the_person_who_approved[False]",
                ),
            ),
        ),
    ),
    Boundary(
        "a client of a server with identities",
        "a token that is guessed, expired or withdrawn, or a file of tokens that others changed",
        (
            Guard(
                "token-file-compare",
                "never",
                ("serve/identifiers/test_token_file.py::test_other_tokens_prove_nothing",),
            ),
            Guard(
                "token-expires",
                "never",
                ("serve/identifiers/test_token_file.py::test_a_token_ends_when_it_expires",),
            ),
            Guard(
                "token-file-writable",
                "never",
                ("serve/identifiers/test_token_file.py::test_a_file_that_everyone_can_write_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a client of a server with identities",
        "a JSON Web Token that its issuer did not sign for this server; keys changed on the way, without end, or asked for without end",
        (
            Guard(
                "jwt-algorithms",
                "never",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_options_that_check_too_little_are_refused",
                ),
            ),
            Guard(
                "jwt-claims-required",
                "never",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_a_token_that_is_wrong_proves_nothing[without a subject]",
                ),
            ),
            Guard(
                "jwt-rights-limit",
                "value rights",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_a_claim_gives_rights_and_no_more_than_the_server_allows",
                ),
            ),
            Guard(
                "discovery-issuer",
                "never",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_a_description_that_is_wrong_proves_nothing",
                ),
            ),
            Guard(
                "discovery-address",
                "never",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_a_description_that_is_wrong_proves_nothing",
                ),
            ),
            Guard(
                "jwks-address",
                "never",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_options_that_check_too_little_are_refused",
                ),
            ),
            Guard(
                "jwks-size-limit",
                "never",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_keys_of_another_form_prove_nothing[too many bytes]",
                ),
            ),
            Guard(
                "jwks-retry-limit",
                "operand RETRY_SECONDS",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_a_rotated_key_works_at_once_and_guesses_do_not_ask_the_provider",
                ),
            ),
            Guard(
                "jwks-age",
                "never",
                (
                    "serve/identifiers/test_json_web_tokens.py::test_keys_that_cannot_be_read_again_count_for_a_limited_time",
                ),
            ),
        ),
    ),
    Boundary(
        "a client of a server behind a proxy",
        "the headers by which the proxy names people",
        (
            Guard(
                "proxy-address",
                "never",
                ("serve/identifiers/test_trusted_proxy.py::test_other_addresses_prove_nothing",),
            ),
            Guard(
                "proxy-header-once",
                "operator != <",
                ("serve/identifiers/test_trusted_proxy.py::test_missing_and_repeated_headers_prove_nothing",),
            ),
        ),
    ),
    Boundary(
        "a client of a server",
        "more memory, time or runs than the server has: long or slow bodies, requests without end, viewers that read nothing",
        (
            Guard(
                "body-size-limit",
                "never",
                ("serve/test_serve_security.py::test_large_and_slow_bodies_are_refused",),
            ),
            Guard(
                "request-limit",
                "never",
                ("serve/test_serve_security.py::test_requests_are_limited_in_time_and_number",),
            ),
            Guard(
                "run-limit",
                "never",
                ("serve/test_serve_security.py::test_runs_and_viewers_are_limited",),
            ),
            Guard(
                "feed-size-limit",
                "never",
                ("serve/test_feeds.py::test_a_feed_holds_no_more_than_its_limits",),
            ),
        ),
    ),
    Boundary(
        "a client of a server, without its token",
        "a head without end or one that never ends; streams of MCP in any number",
        (
            Guard(
                "head-size-limit",
                "never",
                ("serve/test_serve_limits.py::test_a_head_without_end_is_refused_before_a_token_is_needed",),
            ),
            Guard(
                "head-timer",
                "removed",
                ("serve/test_serve_limits.py::test_a_head_that_never_ends_is_given_up_after_its_time",),
            ),
            Guard(
                "mcp-stream-limit",
                "never",
                ("serve/test_serve_limits.py::test_streams_of_mcp_clients_are_limited_in_number",),
            ),
        ),
    ),
    Boundary(
        "a client of a server",
        "a request of countless tiny messages, which stops the server for all others",
        (
            Guard(
                "mcp-body-count",
                "becomes pass",
                (
                    "serve/test_serve_limits.py::test_a_message_of_countless_values_to_mcp_is_refused_before_it_is_read",
                ),
            ),
            Guard(
                "message-count-limit",
                "never",
                (
                    "serve/test_serve_limits.py::test_a_request_of_many_tiny_messages_is_refused_before_they_are_read",
                ),
            ),
            Guard(
                "part-count-pattern",
                'argument compile 0 rb"\\{"',
                ("serve/test_serve_limits.py::test_parts_are_counted_over_all_messages",),
            ),
            Guard(
                "value-count-limit",
                "never",
                ("serve/test_serve_limits.py::test_objects_are_counted_at_any_depth",),
            ),
        ),
    ),
    Boundary(
        "a client, an MCP server, a file",
        "a JSON Schema whose work explodes: definitions that refer twice to the next, errors that each hold a large value",
        (
            Guard(
                "schema-applied-limit",
                "never",
                (
                    "values/test_schema_limits.py::test_definitions_that_refer_twice_to_the_next_are_refused_at_once",
                ),
            ),
            Guard(
                "external-schema-limits",
                "removed",
                (
                    "tools/mcp/test_mcp_offers.py::test_a_tool_whose_schema_explodes_is_left_out_with_the_reason",
                ),
            ),
            Guard(
                "error-copy-limit",
                "never",
                ("values/test_schema_limits.py::test_errors_that_each_hold_a_large_value_are_not_listed",),
            ),
            Guard(
                "validation-step-limit",
                "never",
                ("values/test_schema_limits.py::test_errors_that_each_hold_a_large_value_are_not_listed",),
            ),
        ),
    ),
    Boundary(
        "a provider's bytes",
        "trailers or extensions of a chunk without end",
        (
            Guard(
                "trailer-size-limit",
                "never",
                ("transports/test_http_limits.py::test_what_follows_the_body_has_a_limit",),
            ),
        ),
    ),
    Boundary(
        "a client of a gateway",
        "calls without a key of the gateway; another model or more spending than its key allows",
        (
            Guard(
                "gateway-key-compare",
                "always",
                ("serve/gateway/test_gateway.py::test_only_known_keys_are_let_in",),
            ),
            Guard(
                "gateway-key-models",
                "always",
                ("serve/gateway/test_gateway.py::test_key_may_use_only_its_models",),
            ),
            Guard(
                "gateway-key-budget",
                "never",
                (
                    "serve/gateway/test_gateway.py::test_budget_of_a_key_ends_its_calls_and_not_those_of_others",
                ),
            ),
        ),
    ),
    Boundary(
        "a client of a served agent",
        "a tool that stands in for one of the agent's or of Bridle's (notes, stored results, search, programs, hand-overs, answers)",
        (
            Guard(
                "client-tool-name-taken",
                "never",
                (
                    "serve/wires/test_served_wires.py::test_tool_of_the_client_with_a_name_of_the_agents_is_refused",
                ),
            ),
            Guard(
                "ag-ui-tool-name-taken",
                "never",
                (
                    "serve/wires/test_served_wires.py::test_tool_of_an_ag_ui_client_with_a_name_of_the_agents_is_refused",
                ),
            ),
            Guard(
                "names-of-session-tools",
                "without tool_names",
                (
                    "serve/wires/test_served_wires.py::test_tool_of_the_client_with_a_name_of_the_agents_is_refused",
                ),
            ),
        ),
    ),
    Boundary(
        "a tool, an MCP server",
        "the name of a tool of Bridle, which it would replace",
        (
            Guard(
                "built-in-tool-name",
                "never",
                ("run/calls/test_built_in_names.py::test_no_tool_takes_the_name_of_one_of_bridle",),
            ),
        ),
    ),
    Boundary(
        "a client of a served agent",
        "a result for a call that does not wait for one",
        (
            Guard(
                "external-result-awaited",
                "never",
                ("run/calls/test_external_calls.py::test_result_that_no_call_waits_for_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a provider",
        "its refusal of the server's credentials, taken for the client's",
        (
            Guard(
                "provider-failure-hidden",
                "never",
                ("serve/wires/test_served_wires.py::test_failure_of_the_provider_is_not_the_clients",),
            ),
        ),
    ),
    Boundary(
        "a session's content",
        "a script in a reply of the server, run by a browser",
        (
            Guard(
                "content-security-policy",
                'with content-security-policy="default-src *; script-src *; style-src *"',
                ("serve/test_serve_security.py::test_every_reply_forbids_foreign_content",),
            ),
        ),
    ),
    Boundary(
        "a session's content",
        "a script, a foreign request or a changed page in the inspector; text that looks like other text",
        (
            Guard(
                "inspector-hidden-characters",
                "always",
                ("serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[text]",),
            ),
            Guard(
                "inspector-media-url",
                'becomes   if (part.url) return h("img", { src: part.url });',
                ("serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[media]",),
            ),
            Guard(
                "inspector-image-type",
                "never",
                ("serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[media]",),
            ),
            Guard(
                "inspector-image-pixels",
                "never",
                ("serve/test_inspector_attacks.py::test_no_content_runs_or_leaves_the_page[media]",),
            ),
            Guard(
                "inspector-trusted-types",
                'value SECURITY_HEADERS["content-security-policy"]',
                (
                    "serve/test_inspector_attacks.py::test_the_policy_of_the_page_stops_what_was_injected_anyway",
                ),
            ),
        ),
    ),
    Boundary(
        "another user",
        "your sessions through `bridle serve --open` on the same machine",
        (
            Guard(
                "inspect-needs-token",
                "without token",
                ("serve/test_inspector.py::test_the_command_opens_the_log_of_another_process",),
            ),
        ),
    ),
    Boundary(
        "another user",
        "a settings file placed above the working folder",
        (
            Guard(
                "settings-search-end",
                "value folders[-1]",
                (
                    "config/test_configuration.py::test_the_search_ends_at_the_repository_or_home_and_is_local_elsewhere",
                ),
            ),
            Guard(
                "settings-file-owner",
                "never",
                ("config/test_configuration.py::test_a_file_of_another_user_is_refused_unless_named",),
            ),
        ),
    ),
    Boundary(
        "a reader of settings files",
        "an API key in a file that is committed or shared",
        (
            Guard(
                "key-in-settings",
                'value ""',
                ("config/test_configuration.py::test_a_credential_in_a_file_is_refused_and_not_repeated",),
            ),
        ),
    ),
    Boundary(
        "a reader of errors, logs and screens",
        "the password of a database",
        (
            Guard(
                "database-url-password",
                'value f"postgresql://{parts.netloc}{parts.path}"',
                (
                    "stores/test_postgres.py::test_a_server_that_cannot_be_used_is_told_in_one_line_without_secrets",
                    "stores/test_postgres.py::test_doctor_and_config_show_the_store_without_its_password",
                ),
            ),
            Guard(
                "driver-error-hidden",
                "without ClientConfigurationError ValueError",
                (
                    "stores/test_postgres.py::test_a_server_that_cannot_be_used_is_told_in_one_line_without_secrets",
                ),
            ),
            Guard(
                "database-password-in-file",
                "never",
                (
                    "config/test_configuration.py::test_a_password_of_a_database_is_refused_and_a_url_without_one_is_not",
                ),
            ),
        ),
    ),
    Boundary(
        "another program in the database",
        "changed records",
        (
            Guard(
                "unique-key-matches",
                "never",
                ("stores/test_postgres.py::test_changed_rows_are_found",),
            ),
            Guard(
                "postgres-identity-hash",
                "never",
                ("stores/test_postgres.py::test_changed_rows_are_found",),
            ),
        ),
    ),
    Boundary(
        "another program in the database",
        "a snapshot that is damaged or does not belong to the records",
        (
            Guard(
                "snapshot-signature",
                "without compare_digest",
                (
                    "run/recovery/test_log_snapshots.py::test_a_damaged_snapshot_is_not_used_and_replaced[sqlite-data]",
                ),
            ),
            Guard(
                "snapshot-matches-records",
                "never",
                (
                    "run/recovery/test_log_snapshots.py::test_a_changed_record_is_found_although_a_snapshot_covers_it[sqlite]",
                ),
            ),
        ),
    ),
    Boundary(
        "another program in the database",
        "a snapshot that it made: a call that runs again under an old approval, a lifted budget",
        (
            Guard(
                "snapshot-signature",
                "without compare_digest",
                ("run/recovery/test_log_snapshots.py::test_a_forged_snapshot_runs_no_call_again[sqlite]",),
            ),
        ),
    ),
    Boundary(
        "another program in the database",
        "a server that acknowledges what it can lose",
        (
            Guard(
                "durable-commit",
                "never",
                ("stores/test_postgres.py::test_a_server_that_may_lose_what_it_acknowledged_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a paused owner of a session",
        "a write after it was taken over",
        (
            Guard(
                "postgres-append-epoch",
                "removed",
                ("stores/test_postgres_crashes.py::test_a_paused_owner_cannot_write_after_a_takeover",),
            ),
            Guard(
                "lost-lease",
                "never",
                (
                    "stores/test_postgres.py::test_a_lease_that_was_lost_with_its_connection_is_not_written_under",
                ),
            ),
        ),
    ),
    Boundary(
        "a log from elsewhere",
        "a log that was cut off or rewritten as a whole, if its heads are anchored in a file that the writer cannot change",
        (
            Guard(
                "head-anchored",
                "removed",
                ("stores/test_anchors.py::test_an_old_copy_put_back_is_found",),
            ),
            Guard(
                "anchor-matches",
                "never",
                ("stores/test_anchors.py::test_tampering_is_always_found",),
            ),
        ),
    ),
    Boundary(
        "a driver that was replaced",
        "a late write of a paused process into a session that another one took over",
        (
            Guard(
                "sqlite-append-epoch",
                "never",
                ("campaigns/test_zombies.py::test_the_late_write_of_a_paused_owner_is_refused",),
            ),
            Guard(
                "memory-append-epoch",
                "never",
                ("stores/test_stores.py::test_a_store_keeps_its_promises",),
            ),
            Guard(
                "lock-raises-epoch",
                "removed",
                ("stores/test_stores.py::test_a_store_keeps_its_promises",),
            ),
        ),
    ),
    Boundary(
        "a second driver",
        "the same call run twice",
        (
            Guard(
                "store-path-resolved",
                "rename resolve absolute",
                (
                    "stores/test_session_locks.py::test_a_mutating_call_is_not_run_by_a_second_driver_that_came_through_a_link",
                ),
            ),
            Guard(
                "session-file-lock",
                "removed",
                (
                    "stores/test_session_locks.py::test_a_mutating_call_is_not_run_by_a_second_driver_that_came_through_a_link",
                ),
            ),
            Guard(
                "tool-run-once",
                "twice",
                ("story/test_kill.py::test_killed_at_every_moment_of_a_payment",),
            ),
        ),
    ),
    Boundary(
        "a session id",
        "access to notes and budgets as if they were sessions",
        (
            Guard(
                "reserved-session-prefix",
                "never",
                (
                    "run/test_tenants.py::test_reserved_names_are_refused_at_every_entry",
                    "run/test_tenants.py::test_reserved_names_are_refused_by_every_command",
                ),
            ),
        ),
    ),
    Boundary(
        "another tenant",
        "continuing, forking, approving, reading",
        (
            Guard(
                "tenant-owns-session",
                "always",
                (
                    "run/test_tenants.py::test_another_tenant_cannot_go_on_fork_answer_or_read",
                    "run/test_tenants.py::test_every_command_about_a_session_keeps_tenants_apart",
                ),
            ),
            Guard(
                "crossing-tenant-recorded",
                'value ""',
                ("run/test_tenants.py::test_undoing_across_tenants_is_recorded",),
            ),
            Guard(
                "notes-of-tenant",
                "never",
                ("run/memory/test_notes.py::test_tenants_never_see_one_anothers_notes_even_in_one_session",),
            ),
        ),
    ),
    Boundary(
        "another caller of the tenant",
        "notes of a person in the prompt of another one",
        (
            Guard(
                "notes-of-caller",
                "never",
                (
                    "run/memory/test_caller_notes.py::test_another_caller_in_the_same_session_gets_other_notes",
                ),
            ),
            Guard(
                "tenant-notes-of-code",
                "value notes",
                (
                    "run/memory/test_caller_notes.py::test_notes_of_a_model_for_a_tenant_are_withheld_from_callers",
                ),
            ),
            Guard(
                "forget-of-caller",
                "never",
                ("run/memory/test_caller_notes.py::test_a_model_removes_notes_of_its_caller_only",),
            ),
        ),
    ),
    Boundary(
        "a terminal",
        "control characters and invisible text",
        (
            Guard(
                "invisible-text-escaped",
                "unwrap sub -1",
                ("cli/test_injections.py::test_no_command_prints_what_steers_a_terminal_or_is_not_seen",),
            ),
            Guard(
                "printed-text-escaped",
                "always",
                ("cli/test_injections.py::test_no_command_prints_what_steers_a_terminal_or_is_not_seen",),
            ),
            Guard(
                "approver-prints-nothing",
                "after print(question.arguments)",
                ("cli/test_injections.py::test_only_one_file_of_the_commands_prints",),
            ),
        ),
    ),
    Boundary(
        "a terminal",
        "the same in warnings about hooks, functions and replies",
        (
            Guard(
                "hook-warning-escaped",
                "unwrap escape_text",
                ("cli/test_injections.py::test_no_warning_of_a_run_prints_what_steers_a_terminal",),
            ),
            Guard(
                "function-warning-escaped",
                "unwrap escape_text",
                ("cli/test_injections.py::test_no_warning_of_a_run_prints_what_steers_a_terminal",),
            ),
            Guard(
                "hook-outcome-shown",
                "without hook",
                ("cli/test_event_lines.py::test_every_event_is_printed_and_none_steers_a_terminal",),
            ),
        ),
    ),
    Boundary(
        "a terminal",
        "the same in warnings about watchers, tool indexes, circuit breakers and approval keys",
        (
            Guard(
                "watcher-warning-escaped",
                "unwrap escape_text",
                (
                    "cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal",
                ),
            ),
            Guard(
                "index-warning-escaped",
                "unwrap escape_text",
                (
                    "cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal",
                ),
            ),
            Guard(
                "breaker-warning-escaped",
                "unwrap escape_text",
                (
                    "cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal",
                ),
            ),
            Guard(
                "approval-key-warning-escaped",
                "unwrap escape_text",
                (
                    "cli/test_injections.py::test_no_warning_about_watchers_indexes_breakers_and_approval_keys_steers_a_terminal",
                ),
            ),
        ),
    ),
    Boundary(
        "a terminal",
        "the same in warnings about telemetry, which quote its receiver and exporter",
        (
            Guard(
                "exporter-warning-escaped",
                "unwrap escape_text",
                (
                    "watchers/test_otel.py::test_warnings_show_no_control_characters_of_a_receiver_or_an_exporter",
                ),
            ),
            Guard(
                "telemetry-warning-escaped",
                "unwrap escape_text",
                (
                    "watchers/test_otel.py::test_warnings_show_no_control_characters_of_a_receiver_or_an_exporter",
                ),
            ),
        ),
    ),
    Boundary(
        "a terminal",
        "an approval of something other than what runs",
        (
            Guard(
                "question-shows-defaults",
                "unwrap complete_call_arguments -1",
                ("cli/test_injections.py::test_defaults_are_part_of_what_is_agreed_to",),
            ),
            Guard(
                "edited-question-shows-defaults",
                "unwrap replace",
                ("cli/test_injections.py::test_defaults_are_part_of_what_is_agreed_to",),
            ),
            Guard(
                "approver-shows-defaults",
                "value more",
                ("cli/test_injections.py::test_a_person_at_the_terminal_sees_the_defaults",),
            ),
            Guard(
                "one-question-meant",
                "always",
                ("cli/test_injections.py::test_no_id_and_half_an_id_that_means_two_answer_nothing",),
            ),
        ),
    ),
    Boundary(
        "the wall clock",
        "deadlines that fire too early or never",
        (
            Guard(
                "clock-counts-seconds",
                "value self.wall.now()",
                ("run/test_clock_steps.py::test_a_budget_in_seconds_counts_the_seconds_that_passed",),
            ),
        ),
    ),
    Boundary(
        "the wall clock",
        "a rate limit that blocks all calls after the clock was set back",
        (
            Guard(
                "rate-limit-clock-step",
                "value sorted(use for use in uses if use[0] - now > -self.seconds)",
                ("run/test_clock_steps.py::test_a_use_far_ahead_of_the_clock_delays_no_call",),
            ),
            Guard(
                "rate-record-expiry",
                "without any",
                ("run/test_clock_steps.py::test_a_rate_limit_waits_at_most_one_period_after_a_step",),
            ),
        ),
    ),
    Boundary(
        "a web page, a slow client",
        "a local simulator that answers web pages, or waits forever",
        (
            Guard(
                "simulator-host-check",
                'value ""',
                ("sim/test_server_limits.py::test_a_foreign_host_name_is_refused_in_one_line",),
            ),
            Guard(
                "simulator-head-timer",
                "argument call_later 0 86_400.0",
                ("sim/test_server_limits.py::test_a_byte_does_not_restart_the_timeout",),
            ),
            Guard(
                "simulator-http2-timer",
                "argument _wait 0 86_400.0",
                ("sim/test_http2.py::test_a_connection_that_asks_for_nothing_is_closed",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a path of a file tool that leaves the workspace, by .. or a link",
        (
            Guard(
                "parent-folder-step",
                "never",
                ("toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",),
            ),
            Guard(
                "workspace-folder-flags",
                "without O_NOFOLLOW",
                ("toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",),
            ),
        ),
    ),
    Boundary(
        "another program",
        "a folder or file of the workspace exchanged for a link while a file tool opens it",
        (
            Guard(
                "workspace-folder-opened",
                "argument open 1 FOLDER_FLAGS if self._read_link(name) else os.O_RDONLY",
                ("toolkit/test_workspace.py::test_what_becomes_a_link_just_before_it_is_opened_is_refused",),
            ),
            Guard(
                "workspace-file-opened",
                "argument open 1 FILE_FLAGS & ~os.O_NOFOLLOW",
                ("toolkit/test_workspace.py::test_what_becomes_a_link_just_before_it_is_opened_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a named pipe, socket or device read or written as a file, without end",
        (
            Guard(
                "workspace-regular-file",
                "removed",
                ("toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",),
            ),
            Guard(
                "workspace-file-flags",
                "without O_NONBLOCK",
                ("toolkit/test_workspace.py::test_what_is_not_a_file_of_the_workspace_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "hooks or settings written to .git, which git runs outside of the sandbox later",
        (
            Guard(
                "protected-names",
                "without .git",
                ("toolkit/test_workspace.py::test_git_is_read_and_never_written",),
            ),
            Guard(
                "protected-name-written",
                "never",
                ("toolkit/test_workspace.py::test_git_is_read_and_never_written",),
            ),
            Guard(
                "protected-paths-read-only",
                "value []",
                ("sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[add a hook of git-bubblewrap]",),
            ),
            Guard(
                "docker-protected-paths",
                "value ()",
                ("sandbox/test_sandbox.py::test_the_words_for_docker",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "settings of Bridle (bridle.toml, [tool.bridle]), whose tools the next command runs with all rights",
        (
            Guard(
                "protected-name-written",
                "never",
                ("toolkit/test_workspace.py::test_settings_of_bridle_are_never_written",),
            ),
            Guard(
                "protected-names",
                "without bridle.toml",
                ("toolkit/test_workspace.py::test_settings_of_bridle_are_never_written",),
            ),
            Guard(
                "settings-file-watched",
                "without SETTINGS_FILE",
                ("sandbox/test_sandbox.py::test_settings_of_bridle_that_a_command_writes_are_moved_aside",),
            ),
            Guard(
                "project-settings-changed",
                "value False",
                ("sandbox/test_sandbox.py::test_settings_of_bridle_in_a_project_file_are_restored",),
            ),
            Guard(
                "protected-paths-read-only",
                "value []",
                (
                    "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[change the settings of Bridle-bubblewrap]",
                ),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "settings of other programs in any folder, such as hooks or tasks of an editor, without a report",
        (
            Guard(
                "other-settings-reported",
                "never",
                (
                    "sandbox/test_sandbox.py::test_settings_of_other_programs_that_a_command_writes_are_reported",
                ),
            ),
            Guard(
                "settings-below-top",
                "value enumerate(self.folders[:1])",
                ("sandbox/test_sandbox.py::test_settings_of_bridle_below_the_top_are_moved_aside",),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "files outside of its workspace, by links that are swapped while new settings are moved aside; their content, by a link that is replaced",
        (
            Guard(
                "settings-folder-opened",
                "value os.open(os.path.join(self._workspace, folder), os.O_RDONLY)",
                (
                    "sandbox/test_settings_guard.py::test_a_folder_that_becomes_a_link_leads_to_nothing_outside",
                ),
            ),
            Guard(
                "link-target-not-copied",
                'becomes if old is not None: os.write(os.open(name, WRITE_FLAGS, 0o666, dir_fd=fd), open(old.target, "rb").read() if old.target else old.data or b"")',
                ("sandbox/test_settings_guard.py::test_the_content_of_a_file_outside_is_not_written",),
            ),
            Guard(
                "scan-follows-no-link",
                "without O_NOFOLLOW",
                (
                    "sandbox/test_settings_guard.py::test_a_folder_that_becomes_a_link_leads_to_nothing_outside",
                ),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "settings that are hidden from the search: by its deadline, by a link, by many or unreadable folders",
        (
            Guard(
                "linked-settings-found",
                "becomes return None",
                ("sandbox/test_settings_guard.py::test_a_link_hides_no_settings",),
            ),
            Guard(
                "unread-folder-reported",
                "removed",
                ("sandbox/test_settings_guard.py::test_what_cannot_be_read_is_reported",),
            ),
            Guard(
                "scan-outlives-launcher",
                "removed",
                (
                    "sandbox/test_settings_guard.py::test_new_settings_are_found_although_the_launcher_is_killed",
                ),
            ),
        ),
    ),
    Boundary(
        "an MCP server, a program",
        "a process that leaves the session and outlives its end",
        (
            Guard(
                "service-left-session",
                "value self.leader.pid, False",
                (
                    "tools/mcp/test_mcp_connection.py::test_a_service_that_left_the_session_ends_with_its_server",
                ),
            ),
            Guard(
                "crash-guard-marked-process",
                "becomes true",
                ("tools/process/test_process.py::test_when_we_are_killed_the_family_goes_too",),
            ),
        ),
    ),
    Boundary(
        "an MCP server, a program",
        "a signal to an unrelated process that got the number of an ended one",
        (
            Guard(
                "reaped-group-signalled",
                "never",
                ("tools/process/test_process_tree.py::test_the_group_of_a_reaped_leader_is_not_signalled",),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "a repository moved to where it is not protected",
        (
            Guard(
                "moved-repository",
                "never",
                ("sandbox/test_sandbox.py::test_a_repository_stays_read_only_where_it_is_moved",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "the keys in the home folder, if a workspace contained it",
        (
            Guard(
                "home-folder-refused",
                "never",
                ("toolkit/test_workspace.py::test_a_home_folder_is_no_workspace",),
            ),
            Guard(
                "toolkit-workspace-checked",
                "removed",
                ("toolkit/test_workspace.py::test_a_home_folder_is_no_workspace",),
            ),
            Guard(
                "docker-workspace-checked",
                "removed",
                ("sandbox/test_sandbox.py::test_a_workspace_with_the_home_folder_is_refused",),
            ),
            Guard(
                "sandbox-workspace-checked",
                "removed",
                ("sandbox/test_sandbox.py::test_a_workspace_with_the_home_folder_is_refused",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a page of a host or a port that is not allowed, or whose name is sent to a name server",
        (
            Guard(
                "host-allowed",
                "never",
                ("toolkit/test_fetch.py::test_other_addresses_are_refused",),
            ),
            Guard(
                "address-without-user",
                "without parts",
                ("toolkit/test_fetch.py::test_other_addresses_are_refused",),
            ),
            Guard(
                "host-below-domain",
                'value self.host.startswith("*.") and host.endswith(self.host[2:])',
                ("toolkit/test_fetch.py::test_other_addresses_are_refused",),
            ),
        ),
    ),
    Boundary(
        "a name server",
        "an address in a private network, at once, in another spelling or at a second question",
        (
            Guard(
                "public-address",
                "value True",
                ("toolkit/test_fetch.py::test_private_addresses_are_refused",),
            ),
            Guard(
                "mapped-address",
                "without MAPPED_NETWORKS",
                ("toolkit/test_fetch.py::test_private_addresses_are_refused",),
            ),
            Guard(
                "private-address-refused",
                "unwrap is_public",
                ("toolkit/test_fetch.py::test_other_spellings_of_an_address_are_resolved_before_the_check",),
            ),
            Guard(
                "fetch-checked-address",
                "rename address host",
                ("toolkit/test_fetch.py::test_the_address_that_was_checked_is_the_one_that_is_used",),
            ),
        ),
    ),
    Boundary(
        "a web page",
        "a redirect to a host that is not allowed, or without end; an endless page; a thread and a socket, held by bytes that come slowly",
        (
            Guard(
                "fetch-read-deadline",
                "removed",
                ("toolkit/test_fetch.py::test_a_server_that_sends_slowly_holds_no_thread_and_no_socket",),
            ),
            Guard(
                "redirect-checked",
                'after self._hosts = HostRules((), (url.split("/")[2] or "x",))',
                ("toolkit/test_fetch.py::test_redirects_are_checked_like_first_requests",),
            ),
            Guard(
                "redirect-limit",
                "value iter(int, 1)",
                ("toolkit/test_fetch.py::test_redirects_end",),
            ),
            Guard(
                "page-size-limit",
                "value False",
                ("toolkit/test_fetch.py::test_endless_and_slow_pages_end",),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "keys in the environment",
        (
            Guard(
                "sandbox-environment",
                "with environment={**os.environ, **environment, **own}",
                ("sandbox/test_sandbox.py::test_variables_are_those_that_are_passed",),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "files outside of the workspace",
        (
            Guard(
                "sandbox-system-folders",
                'plus ("/var",)',
                (
                    "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[read a file outside by its path-namespaces]",
                ),
            ),
            Guard(
                "folder-in-workspace",
                "never",
                ("sandbox/test_sandbox.py::test_folders_outside_are_refused_or_shown_read_only",),
            ),
            Guard(
                "agent-sandbox-used",
                "value None",
                ("sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "the network",
        (
            Guard(
                "sandbox-network",
                "with network=True",
                (
                    "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[connect to a server of the machine-namespaces]",
                ),
            ),
            Guard(
                "bubblewrap-network",
                "always",
                (
                    "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[connect to a server of the machine-bubblewrap]",
                ),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "system calls and rights that lead out of it",
        (
            Guard(
                "seccomp-filter",
                "removed",
                ("sandbox/test_sandbox.py::test_a_command_has_no_rights_left",),
            ),
            Guard(
                "capabilities-dropped",
                "removed",
                ("sandbox/test_sandbox.py::test_a_command_has_no_rights_left",),
            ),
            Guard(
                "landlock-rules",
                "removed",
                ("sandbox/test_sandbox.py::test_a_command_has_no_rights_left",),
            ),
            Guard(
                "refused-system-calls",
                "without REFUSED_EVERYWHERE",
                ("sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[use io_uring-bubblewrap]",),
            ),
            Guard(
                "socket-families",
                "plus (38, 40)",
                (
                    "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[talk to the host of a virtual machine-namespaces]",
                ),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "all memory, processes or disk space of the machine",
        (
            Guard(
                "sandbox-group-limits",
                "argument make_group 0 2**40",
                ("sandbox/test_sandbox.py::test_a_limit_is_named_when_it_is_reached",),
            ),
            Guard(
                "sandbox-group-limits",
                "argument make_group 1 2**20",
                (
                    "sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[start more processes than allowed-namespaces]",
                ),
            ),
            Guard(
                "file-size-limit",
                "removed",
                ("sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[fill a large file-bubblewrap]",),
            ),
            Guard(
                "bubblewrap-tmp-size",
                "without --size tmp_bytes",
                ("sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[fill /tmp-bubblewrap]",),
            ),
            Guard(
                "namespaces-tmp-size",
                'argument _mount 4 "mode=1777"',
                ("sandbox/test_escapes.py::test_nothing_leaves_a_sandbox[fill /tmp-namespaces]",),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "a host that is not allowed, or another port of one that is, through the proxy or beside it",
        (
            Guard(
                "port-allowed",
                "without port",
                ("sandbox/test_proxy.py::test_a_host_is_reached_at_its_ports_only",),
            ),
            Guard(
                "proxy-plain-http",
                "never",
                ("sandbox/test_proxy.py::test_odd_requests_open_no_connection",),
            ),
            Guard(
                "proxy-host-allowed",
                'value (lambda parts: (parts, parts.hostname or "", parts.port or 80))(__import__("urllib.parse").parse.urlsplit(f"https://{target}" if is_tunnel else target))',
                ("sandbox/test_proxy.py::test_everything_else_is_refused_and_the_refusal_names_the_way",),
            ),
            Guard(
                "private-host-refused",
                "never",
                ("sandbox/test_proxy.py::test_allowed_names_with_private_addresses_are_refused",),
            ),
            Guard(
                "proxy-checked-address",
                "rename address host",
                ("sandbox/test_proxy.py::test_the_address_that_was_checked_is_the_one_that_is_used",),
            ),
            Guard(
                "sandbox-network",
                "with network=self._network or bool(self.hosts)",
                ("sandbox/test_proxy.py::test_everything_else_is_refused_and_the_refusal_names_the_way",),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "a request that the proxy and a server read differently, or a second one behind it",
        (
            Guard(
                "proxy-transfer-encoding",
                "never",
                ("sandbox/test_proxy.py::test_requests_that_servers_could_read_differently_are_refused",),
            ),
            Guard(
                "proxy-body-length",
                "becomes server.sendall(rest)",
                (
                    "sandbox/test_proxy.py::test_a_request_names_the_host_of_its_address_and_no_second_one_follows",
                ),
            ),
        ),
    ),
    Boundary(
        "a sandboxed program",
        "a command tool outside of a sandbox, where the policy requires one",
        (
            Guard(
                "required-sandbox",
                "never",
                ("sandbox/test_sandbox.py::test_a_policy_can_require_a_sandbox",),
            ),
        ),
    ),
    Boundary(
        "a skill",
        "a file outside of its folder, by a link or ..",
        (
            Guard(
                "skill-file-inside",
                "value (skill.workspace.root / file).read_text()",
                ("toolkit/test_skills.py::test_files_outside_of_the_skill_are_refused",),
            ),
        ),
    ),
    Boundary(
        "a skill",
        "a description with text that people cannot see, or without end",
        (
            Guard(
                "skill-text-visible",
                "never",
                ("toolkit/test_skills.py::test_wrong_files_are_refused_with_their_line",),
            ),
            Guard(
                "skill-catalogue-limit",
                "never",
                ("toolkit/test_skills.py::test_sizes_are_bounded",),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a skill that it writes for later sessions",
        (
            Guard(
                "read-only-folder",
                "never",
                ("toolkit/test_skills.py::test_commands_can_read_skills_and_no_tool_can_write_them",),
            ),
            Guard(
                "skills-readable-only",
                "without readable",
                ("toolkit/test_skills.py::test_commands_can_read_skills_and_no_tool_can_write_them",),
            ),
        ),
    ),
    Boundary(
        "a changed skill",
        "other instructions in a session that began before, unnoticed",
        (
            Guard(
                "skill-version-hash",
                'value ""',
                ("toolkit/test_skills.py::test_a_session_is_told_that_a_skill_changed_since_it_began",),
            ),
            Guard(
                "skill-change-noted",
                "value []",
                ("toolkit/test_skills.py::test_a_change_while_the_agent_exists_is_told_in_the_result",),
            ),
        ),
    ),
    Boundary(
        "a downloaded folder",
        "instructions that are read although the user named no file",
        (
            Guard(
                "instructions-for-new-sessions",
                "without is_new",
                ("toolkit/test_instruction_files.py::test_settings_apply_to_new_sessions_and_are_shown",),
            ),
        ),
    ),
    Boundary(
        "a machine without a mechanism",
        "a program that runs without the isolation that was asked for",
        (
            Guard(
                "sandbox-mechanism-works",
                "always",
                (
                    "sandbox/test_sandbox.py::test_without_a_mechanism_nothing_is_made_and_the_way_out_is_named",
                ),
            ),
            Guard(
                "kernel-call-failed",
                "never",
                ("sandbox/test_sandbox.py::test_no_command_runs_if_the_isolation_fails",),
            ),
        ),
    ),
    Boundary(
        "a model's program",
        "anything but messages in the channel to the harness: garbage, forged results, a flood, a message without end",
        (
            Guard(
                "program-message-limit",
                "never",
                (
                    "tools/code_mode/test_program_process.py::test_garbage_in_the_channel_ends_the_program[a huge length]",
                ),
            ),
        ),
    ),
    Boundary(
        "a model's program",
        "a second message before the answer to the first, whose outcome depended on timing",
        (
            Guard(
                "program-turn",
                "never",
                (
                    "tools/code_mode/test_program_process.py::test_a_program_that_does_not_wait_for_its_answer_is_ended_however_fast_it_is",
                ),
            ),
        ),
    ),
    Boundary(
        "another process of the user",
        "the folder of a program that is running",
        (
            Guard(
                "program-folder-lock",
                "argument flock 1 fcntl.LOCK_UN",
                (
                    "tools/code_mode/test_program_folder.py::test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_kept",
                ),
            ),
        ),
    ),
    Boundary(
        "a model's program",
        "a call of a tool that programs may not call",
        (
            Guard(
                "program-tool-allowed",
                "never",
                (
                    "tools/code_mode/test_program_process.py::test_garbage_in_the_channel_ends_the_program[another tool]",
                ),
            ),
        ),
    ),
    Boundary(
        "a model's program",
        "a call that no rule allows, or that a person has not approved",
        (
            Guard(
                "program-policy",
                "without policy",
                ("run/calls/test_code_mode.py::test_rules_of_the_policy_hold_in_programs",),
            ),
        ),
    ),
    Boundary(
        "a model's program",
        "calls, time or output without end",
        (
            Guard(
                "program-call-limit",
                "never",
                ("run/calls/test_code_mode.py::test_limits_of_a_program",),
            ),
        ),
    ),
    Boundary(
        "a model's program",
        "keys, files, the network or other processes",
        (
            Guard(
                "program-sandbox",
                "becomes return None",
                (
                    "tools/code_mode/test_program_process.py::test_keys_files_and_the_network_are_out_of_reach",
                ),
            ),
        ),
    ),
    Boundary(
        "a model's program",
        "other calls than those of the log, when it is run again after a crash",
        (
            Guard(
                "program-repeats-calls",
                "always",
                (
                    "run/calls/test_code_mode.py::test_a_program_that_calls_otherwise_when_it_runs_again_is_ended_and_nothing_runs_twice",
                ),
            ),
        ),
    ),
    Boundary(
        "a machine without a sandbox",
        "a program of a model that runs with all rights",
        (
            Guard(
                "program-needs-sandbox",
                "removed",
                (
                    "run/calls/test_code_mode.py::test_without_a_sandbox_code_mode_is_refused_unless_that_is_asked_for",
                ),
            ),
        ),
    ),
    Boundary(
        "a model",
        "a log in a folder that its tools can write",
        (
            Guard(
                "log-outside-workspace",
                "never",
                ("sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",),
            ),
            Guard(
                "command-workspace",
                "value None",
                ("sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",),
            ),
            Guard(
                "file-tools-workspace",
                "removed",
                ("sandbox/test_sandbox.py::test_tools_without_a_sandbox_get_that_of_the_agent",),
            ),
        ),
    ),
    Boundary(
        "a terminal",
        "a diff shown at an approval that hides or forges lines",
        (
            Guard(
                "diff-line-escaped",
                "unwrap escape_text",
                ("toolkit/test_file_tools.py::test_a_person_sees_a_diff_that_cannot_steer_the_terminal",),
            ),
            Guard(
                "diff-line-split",
                "always",
                ("cli/test_approval_screens.py::test_no_text_from_outside_starts_a_line_of_the_screen",),
            ),
        ),
    ),
    Boundary(
        "the Temporal server",
        "content of a session in its history",
        (
            Guard(
                "history-hides-error-text",
                'value f"{kind}: {error}"',
                (
                    "engines/test_temporal_runs.py::test_the_history_gets_the_type_of_an_error_and_not_its_text",
                ),
            ),
        ),
    ),
    Boundary(
        "a client of the Temporal server",
        "an update that answers a question; without the answer and its proof in the store it only makes the workflow look",
        (
            Guard(
                "question-is-open",
                "never",
                (
                    "engines/test_temporal_runs.py::test_an_approved_call_runs_once_and_wrong_answers_leave_no_trace",
                ),
            ),
        ),
    ),
    Boundary(
        "a retried part of an engine",
        "two processes that drive one session",
        (
            Guard(
                "session-was-resumed",
                "value False",
                (
                    "engines/test_parts.py::test_an_attempt_leaves_the_session_to_a_process_that_has_resumed_it",
                ),
            ),
        ),
    ),
    Boundary(
        "a reply that was shown to other processes",
        "text that stays readable beside the log after it was redacted there",
        (
            Guard(
                "live-text-removed",
                "never",
                (
                    "run/control/test_live.py::test_a_viewer_gets_each_piece_once_and_the_text_is_removed_with_the_record",
                ),
            ),
            Guard(
                "live-file-erased",
                "removed",
                (
                    "run/control/test_live.py::test_files_hold_no_text_after_the_reply_nor_after_a_killed_process_was_replaced",
                ),
            ),
        ),
    ),
)
