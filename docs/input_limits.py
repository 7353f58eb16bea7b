"""The entries of data from outside, each with its limit and the test that goes beyond it.

`docs/generate.py` writes the table into docs/limits.md with the values of the constants.
"""

from importlib import import_module
from typing import NamedTuple


class InputLimit(NamedTuple):
    entry: str
    """Where data from outside comes in."""
    constant: str
    """Module and name of the limit, below `bridle`."""
    unit: str
    test: str
    """File below tests/ and name of a test that goes beyond the limit."""

    @property
    def value(self) -> float:
        module, _, name = self.constant.rpartition(".")
        found: float = getattr(import_module(f"bridle.{module}"), name)
        return found


BEYOND = "docs/test_beyond_limits.py::test_what_is_beyond_a_limit_is_refused_or_cut"

INPUT_LIMITS = (
    InputLimit(
        "head of a provider's response",
        "transports.http1.HEAD_BYTES_MAX",
        "bytes",
        "transports/test_http1.py::test_what_is_no_response_is_one_line",
    ),
    InputLimit(
        "trailers of a provider's response",
        "transports.http1.HEAD_BYTES_MAX",
        "bytes",
        "transports/test_http_limits.py::test_what_follows_the_body_has_a_limit",
    ),
    InputLimit(
        "compressed piece of a provider's response",
        "transports.http1.INFLATED_BYTES_MAX",
        "bytes",
        "transports/test_http1.py::test_a_compressed_answer_is_handed_out_in_bounded_pieces",
    ),
    InputLimit("body of a provider's response", "providers.wire.decoder.BODY_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "stream of a provider's reply (default)",
        "values.settings.REPLY_BYTES_DEFAULT",
        "bytes",
        "run/test_bounds.py::test_a_reply_that_is_too_long_is_given_up_and_not_asked_for_again",
    ),
    InputLimit(
        "body of a provider's error",
        "providers.wire.decoder.ERROR_BYTES_MAX",
        "bytes",
        "providers/wire/test_decoder.py::test_an_error_page_is_read_as_far_as_it_tells_anything",
    ),
    InputLimit(
        "response to a request besides model calls",
        "run.model_connection.RESPONSE_BYTES_MAX",
        "bytes",
        BEYOND,
    ),
    InputLimit(
        "one event of a stream (SSE)",
        "providers.wire.sse.EVENT_BYTES_MAX",
        "bytes",
        "providers/wire/test_sse.py::test_an_event_may_not_grow_without_end",
    ),
    InputLimit(
        "one message of a stream (AWS)", "providers.wire.eventstream.MESSAGE_BYTES_MAX", "bytes", BEYOND
    ),
    InputLimit(
        "one element of a stream (Gemini)",
        "providers.gemini.json_array.ELEMENT_BYTES_MAX",
        "bytes",
        "providers/wire/test_json_array.py::test_an_element_may_not_grow_without_end",
    ),
    InputLimit(
        "head of a served request",
        "serve.http_protocol.HEAD_BYTES_MAX",
        "bytes",
        "serve/test_serve_limits.py::test_a_head_without_end_is_refused_before_a_token_is_needed",
    ),
    InputLimit(
        "headers of a served request",
        "serve.http_protocol.HEADERS_MAX",
        "headers",
        "serve/test_serve_limits.py::test_a_head_without_end_is_refused_before_a_token_is_needed",
    ),
    InputLimit(
        "time of the head of a served request",
        "serve.http_protocol.HEAD_SECONDS_MAX",
        "seconds",
        "serve/test_serve_limits.py::test_a_head_that_never_ends_is_given_up_after_its_time",
    ),
    InputLimit(
        "body of a served request (default)",
        "serve.options.BODY_BYTES_DEFAULT",
        "bytes",
        "serve/test_serve_security.py::test_large_and_slow_bodies_are_refused",
    ),
    InputLimit(
        "messages or tools of a served request",
        "serve.body_limits.MESSAGES_MAX",
        "items",
        "serve/test_serve_limits.py::test_a_request_of_many_tiny_messages_is_refused_before_they_are_read",
    ),
    InputLimit(
        "time of the body of a served request (default)",
        "serve.options.BODY_SECONDS_DEFAULT",
        "seconds",
        "serve/test_serve_security.py::test_large_and_slow_bodies_are_refused",
    ),
    InputLimit(
        "bodies of all served requests (default)",
        "serve.options.BODIES_BYTES_DEFAULT",
        "bytes",
        "serve/test_serve_security.py::test_the_bodies_of_all_requests_are_limited",
    ),
    InputLimit(
        "parts of a served request",
        "serve.body_limits.PARTS_MAX",
        "items",
        "serve/test_serve_limits.py::test_parts_are_counted_over_all_messages",
    ),
    InputLimit(
        "objects in lists of a served request, at any depth",
        "serve.body_limits.LISTED_MAX",
        "objects",
        "serve/test_serve_limits.py::test_objects_are_counted_at_any_depth",
    ),
    InputLimit(
        "values of a served request, at any depth",
        "serve.body_limits.VALUES_MAX",
        "values",
        "serve/test_serve_limits.py::test_values_are_counted_at_any_depth",
    ),
    InputLimit(
        "values of a message to `/mcp`",
        "serve.body_limits.VALUES_MAX",
        "values",
        "serve/test_serve_limits.py::test_a_message_of_countless_values_to_mcp_is_refused_before_it_is_read",
    ),
    InputLimit(
        "streams of MCP clients (`GET /mcp`)",
        "serve.mcp.STREAMS_MAX",
        "streams",
        "serve/test_serve_limits.py::test_streams_of_mcp_clients_are_limited_in_number",
    ),
    InputLimit(
        "open requests of an HTTP/2 connection to the simulator",
        "sim.http2.STREAMS_MAX",
        "requests",
        "sim/test_http2.py::test_requests_of_one_connection_are_limited_in_number",
    ),
    InputLimit(
        "message of an MCP server over a pipe",
        "tools.mcp.stdio.MESSAGE_BYTES_MAX",
        "bytes",
        "tools/mcp/test_mcp_connection.py::test_a_message_without_end_ends_the_connection_only",
    ),
    InputLimit(
        "response of an MCP server over HTTP",
        "tools.mcp.connection.RESPONSE_BYTES_MAX",
        "bytes",
        "tools/mcp/test_mcp_http.py::test_a_response_without_end_is_not_read_to_its_end",
    ),
    InputLimit(
        "tools of an MCP server",
        "tools.mcp.definitions.TOOLS_MAX",
        "tools",
        "tools/mcp/test_mcp_offers.py::test_of_countless_tools_the_first_are_used",
    ),
    InputLimit("resources or prompts of an MCP server", "tools.mcp.tool_filter.ITEMS_MAX", "items", BEYOND),
    InputLimit("schema of an MCP tool", "tools.mcp.definitions.SCHEMA_CHARACTERS_MAX", "characters", BEYOND),
    InputLimit(
        "sampling request of an MCP server",
        "tools.mcp.requests.SAMPLING_CHARACTERS_MAX",
        "characters",
        BEYOND,
    ),
    InputLimit(
        "requests of an MCP server during one call",
        "core.calls.server_requests.REQUESTS_MAX",
        "requests",
        "tools/mcp/test_mcp_requests.py::test_a_server_cannot_spend_more_than_its_budget_or_ask_without_end",
    ),
    InputLimit("response of an OAuth server", "tools.mcp.connection.RESPONSE_BYTES_MAX", "bytes", BEYOND),
    InputLimit("callback of an OAuth sign-in", "tools.mcp.sign_in.REQUEST_BYTES_MAX", "bytes", BEYOND),
    InputLimit("file of OAuth tokens", "tools.mcp.token_store.FILE_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "schema: text",
        "values.schema_limits.CHARACTERS_MAX",
        "characters",
        "values/test_schema_limits.py::test_each_limit_is_checked",
    ),
    InputLimit(
        "schema: values",
        "values.schema_limits.VALUES_MAX",
        "values",
        "values/test_schema_limits.py::test_each_limit_is_checked",
    ),
    InputLimit(
        "schema: nesting",
        "values.schema_limits.NESTING_MAX",
        "levels",
        "values/test_schema_limits.py::test_nesting_has_a_limit",
    ),
    InputLimit(
        "schema: references",
        "values.schema_limits.REFERENCES_MAX",
        "targets",
        "values/test_schema_limits.py::test_each_limit_is_checked",
    ),
    InputLimit(
        "schema: combinations",
        "values.schema_limits.APPLIED_MAX",
        "schemas",
        "values/test_schema_limits.py::test_definitions_that_refer_twice_to_the_next_are_refused_at_once",
    ),
    InputLimit(
        "schema: fields that are listed at references",
        "values.schema_limits.FIELDS_MAX",
        "fields",
        "values/test_schema_limits.py::test_many_references_to_many_fields_end_in_bounded_time",
    ),
    InputLimit(
        "schema: numbers",
        "values.schema_limits.NUMBER_BITS_MAX",
        "bits",
        "values/test_schema_limits.py::test_each_limit_is_checked",
    ),
    InputLimit(
        "schema: steps of errors that are listed",
        "values.schema_limits.STEPS_MAX",
        "steps",
        "values/test_schema_limits.py::test_errors_of_a_recursive_union_are_not_listed_when_that_is_exponential",
    ),
    InputLimit(
        "schema: values in errors that are listed",
        "values.schema_limits.COPIED_MAX",
        "values",
        "values/test_schema_limits.py::test_errors_that_each_hold_a_large_value_are_not_listed",
    ),
    InputLimit(
        "schema: one `pattern` on one text",
        "values.schema_limits.BACKTRACKS_MAX",
        "steps back",
        "values/test_schema_limits.py::test_a_pattern_for_names_cannot_backtrack_without_end",
    ),
    InputLimit(
        "arguments of a call: nesting",
        "values.text.NESTING_MAX",
        "levels",
        "run/test_bounds.py::test_arguments_nested_too_deeply_are_an_error_for_the_model",
    ),
    InputLimit(
        "calls of one reply (default)",
        "values.settings.REPLY_CALLS_DEFAULT",
        "calls",
        "run/test_bounds.py::test_a_reply_with_more_calls_than_allowed_ends_the_run_and_runs_none",
    ),
    InputLimit(
        "result of a tool that the model is sent (default)",
        "values.settings.RESULT_CHARACTERS_DEFAULT",
        "characters",
        "run/calls/test_stored_results.py::test_the_model_gets_an_excerpt_and_reads_the_rest",
    ),
    InputLimit("error text of a tool", "run.calls.run_tool.ERROR_CHARACTERS_MAX", "characters", BEYOND),
    InputLimit("output of a program", "ports.sandbox.OUTPUT_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "message of a program of code mode",
        "tools.code_mode.process.MESSAGE_BYTES_MAX",
        "bytes",
        "tools/code_mode/test_program_process.py::test_a_large_result_arrives_and_a_large_call_is_refused",
    ),
    InputLimit(
        "progress and deltas of a run that nobody has read",
        "run.stream.DELTAS_BUFFERED_MAX",
        "items",
        "run/stream/test_viewers.py::test_who_falls_behind_loses_pieces_and_is_told_and_no_event",
    ),
    InputLimit(
        "page that `fetch_page` reads",
        "toolkit.fetch_tool.BODY_BYTES_MAX",
        "bytes",
        "toolkit/test_fetch.py::test_endless_and_slow_pages_end",
    ),
    InputLimit(
        "file that a file tool reads",
        "toolkit.workspace.FILE_BYTES_MAX",
        "bytes",
        "toolkit/test_workspace.py::test_binary_and_large_files_are_said_to_be_that",
    ),
    InputLimit("file of a `Media`", "values.media.FILE_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "project instructions",
        "toolkit.instruction_files.PROJECT_BYTES_MAX",
        "bytes",
        "toolkit/test_instruction_files.py::test_wrong_files_are_refused_at_once",
    ),
    InputLimit(
        "text of a skill",
        "toolkit.skill_tool.TEXT_CHARACTERS_MAX",
        "characters",
        "toolkit/test_skills.py::test_wrong_files_are_refused_with_their_line",
    ),
    InputLimit(
        "files of a skill",
        "toolkit.skill_tool.FILES_MAX",
        "files",
        "toolkit/test_skills.py::test_sizes_are_bounded",
    ),
    InputLimit("text of a note of memory", "values.memory.NOTE_CHARACTERS_MAX", "characters", BEYOND),
    InputLimit(
        "facts of a prompt",
        "values.memory.FACTS_CHARACTERS_MAX",
        "characters",
        "run/memory/test_retrieval.py::test_facts_may_fail_too_and_have_a_limit",
    ),
    InputLimit(
        "steering message of another process",
        "run.control.listener.STEER_CHARACTERS_MAX",
        "characters",
        BEYOND,
    ),
    InputLimit("configuration, agent and suite files", "config.toml_file.FILE_BYTES_MAX", "bytes", BEYOND),
    InputLimit("recorded traffic", "transports.recorded.FILE_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "line of an imported session",
        "run.archive.transfer.LINE_BYTES_MAX",
        "bytes",
        "run/archive/test_hostile_imports.py::test_a_line_without_end_is_not_read_whole",
    ),
    InputLimit(
        "snapshot of a log",
        "run.recovery.snapshots.PLAIN_BYTES_MAX",
        "bytes",
        "run/recovery/test_log_snapshots.py::test_a_snapshot_that_is_too_long_is_not_kept",
    ),
    InputLimit(
        "digits of a budget's limit",
        "values.usage.LIMIT_DIGITS_MAX",
        "digits",
        "values/test_budget_numbers.py::test_a_limit_is_a_number_that_can_be_added",
    ),
    InputLimit(
        "amount of a rate limit",
        "values.usage.AMOUNT_MAX",
        "units",
        "values/test_budget_numbers.py::test_a_rate_limit_is_a_number_that_can_be_added",
    ),
    InputLimit(
        "wait that a provider asks for",
        "core.recovery.failure_policy.RETRY_AFTER_SECONDS_MAX",
        "seconds",
        "core/recovery/test_retry.py::test_a_wait_that_is_too_long_is_an_end_that_says_so",
    ),
    InputLimit(
        "text of a provider's error",
        "providers.wire.failures.MESSAGE_LENGTH_MAX",
        "characters",
        "providers/kit/test_kit_failures.py::test_long_messages_are_cut_and_long_pages_not_kept",
    ),
    InputLimit(
        "error page that is not the provider's",
        "providers.wire.failures.UNRECOGNISED_LENGTH_MAX",
        "characters",
        "providers/kit/test_kit_failures.py::test_a_key_at_the_edge_of_what_is_shown_does_not_survive",
    ),
    InputLimit(
        "page of an error that is received",
        "run.model_call.ERROR_BODY_BYTES_MAX",
        "bytes",
        "run/test_bounds.py::test_an_error_page_is_not_read_to_its_end",
    ),
    InputLimit(
        "response that is received and not read yet",
        "transports.http1.BUFFER_BYTES_MAX",
        "bytes",
        "transports/test_http1.py::test_a_reader_that_is_slow_stops_the_socket_and_gets_everything",
    ),
    InputLimit("compressed body that is recorded", "transports.recorded.UNPACKED_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "answer of an OpenTelemetry receiver", "watchers.otel.exporter.ANSWER_BYTES_MAX", "bytes", BEYOND
    ),
    InputLimit(
        "time of an answer of an OpenTelemetry receiver (default)",
        "watchers.otel.endpoint.TIMEOUT_SECONDS_DEFAULT",
        "seconds",
        BEYOND,
    ),
    InputLimit(
        "JSON Web Token of a request",
        "serve.identifiers.json_web_tokens.TOKEN_BYTES_MAX",
        "bytes",
        "serve/identifiers/test_json_web_tokens.py::test_a_token_that_is_wrong_proves_nothing",
    ),
    InputLimit(
        "description of an identity provider (discovery)",
        "serve.identifiers.json_web_tokens.DISCOVERY_BYTES_MAX",
        "bytes",
        "serve/identifiers/test_json_web_tokens.py::test_a_description_that_is_wrong_proves_nothing",
    ),
    InputLimit(
        "keys of an identity provider (JWKS)",
        "serve.identifiers.json_web_tokens.JWKS_BYTES_MAX",
        "bytes",
        "serve/identifiers/test_json_web_tokens.py::test_keys_of_another_form_prove_nothing",
    ),
    InputLimit(
        "number of keys of an identity provider",
        "serve.identifiers.json_web_tokens.JWKS_KEYS_MAX",
        "keys",
        "serve/identifiers/test_json_web_tokens.py::test_keys_of_another_form_prove_nothing",
    ),
    InputLimit(
        "time for which keys count that cannot be read again",
        "serve.identifiers.json_web_tokens.KEYS_SECONDS_MAX",
        "seconds",
        "serve/identifiers/test_json_web_tokens.py::test_keys_that_cannot_be_read_again_count_for_a_limited_time",
    ),
    InputLimit(
        "token of a request, checked against a token file",
        "serve.identifiers.token_file.TOKEN_CHARACTERS_MAX",
        "characters",
        "serve/identifiers/test_token_file.py::test_other_tokens_prove_nothing",
    ),
    InputLimit(
        "header of a trusted proxy",
        "serve.identifiers.trusted_proxy.HEADER_CHARACTERS_MAX",
        "characters",
        "serve/identifiers/test_trusted_proxy.py::test_missing_and_repeated_headers_prove_nothing",
    ),
    InputLimit(
        "messages of a decoded conversation", "serve.wires.conversation.MESSAGES_MAX", "messages", BEYOND
    ),
    InputLimit("compressed request to the simulator", "sim.app.DECOMPRESSED_BYTES_MAX", "bytes", BEYOND),
    InputLimit("pages of a list of an MCP server", "tools.mcp.contents.PAGES_MAX", "pages", BEYOND),
    InputLimit(
        "description of an MCP tool",
        "tools.mcp.definitions.DESCRIPTION_CHARACTERS_MAX",
        "characters",
        "tools/mcp/test_mcp_connection.py::test_definitions_are_cleaned_and_what_was_changed_is_noted",
    ),
    InputLimit(
        "question of an MCP server to a person",
        "tools.mcp.requests.MESSAGE_CHARACTERS_MAX",
        "characters",
        BEYOND,
    ),
    InputLimit(
        "address that an MCP server asks a person to open",
        "tools.mcp.requests.URL_CHARACTERS_MAX",
        "characters",
        BEYOND,
    ),
    InputLimit("error output of an MCP server", "tools.mcp.stdio.STDERR_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "time of a page that `fetch_page` reads",
        "toolkit.fetch_tool.SECONDS_MAX",
        "seconds",
        "toolkit/test_fetch.py::test_endless_and_slow_pages_end",
    ),
    InputLimit(
        "head of a request of a sandboxed program",
        "sandbox.launcher.proxy.HEAD_BYTES_MAX",
        "bytes",
        "sandbox/test_proxy.py::test_long_heads_end_and_refusals_are_listed_once",
    ),
    InputLimit(
        "settings file of a workspace that is parsed",
        "sandbox.launcher.settings_guard.PARSED_BYTES_MAX",
        "bytes",
        "sandbox/test_settings_guard.py::test_a_project_file_that_takes_long_to_parse_is_not_parsed",
    ),
    InputLimit(
        "settings file of a workspace that is read",
        "sandbox.launcher.settings_scan.PROJECT_BYTES_MAX",
        "bytes",
        "sandbox/test_settings_guard.py::test_a_settings_file_that_is_too_large_is_not_read",
    ),
    InputLimit(
        "settings files of a workspace, together",
        "sandbox.launcher.settings_scan.ALL_FILES_BYTES_MAX",
        "bytes",
        "sandbox/test_settings_guard.py::test_every_limit_is_named",
    ),
    InputLimit(
        "path of a settings file of a workspace",
        "sandbox.launcher.settings_scan.PATH_CHARACTERS_MAX",
        "characters",
        "sandbox/test_settings_guard.py::test_every_limit_is_named",
    ),
    InputLimit(
        "files of one folder of settings",
        "sandbox.launcher.settings_scan.PARTS_MAX",
        "files",
        "sandbox/test_settings_guard.py::test_of_a_folder_of_settings_the_first_files_are_listed",
    ),
    InputLimit(
        "time of the search for settings in a workspace",
        "sandbox.launcher.settings_scan.SECONDS_MAX",
        "seconds",
        "sandbox/test_settings_guard.py::test_every_limit_is_named",
    ),
    InputLimit(
        "name of a skill",
        "toolkit.skill_tool.NAME_CHARACTERS_MAX",
        "characters",
        "toolkit/test_skills.py::test_wrong_files_are_refused_with_their_line",
    ),
    InputLimit(
        "description of a skill",
        "toolkit.skill_tool.DESCRIPTION_CHARACTERS_MAX",
        "characters",
        "toolkit/test_skills.py::test_wrong_files_are_refused_with_their_line",
    ),
    InputLimit(
        "catalogue of skills",
        "toolkit.skill_tool.CATALOGUE_CHARACTERS_MAX",
        "characters",
        "toolkit/test_skills.py::test_sizes_are_bounded",
    ),
    InputLimit(
        "files of a skill, together",
        "toolkit.skill_tool.SKILL_BYTES_MAX",
        "bytes",
        "toolkit/test_skills.py::test_sizes_are_bounded",
    ),
    InputLimit("file of MCP servers (mcp.json)", "tools.mcp.config_file.FILE_BYTES_MAX", "bytes", BEYOND),
    InputLimit("lock file", "cli.commands.lock.LOCK_BYTES_MAX", "bytes", BEYOND),
    InputLimit("baseline of evaluations", "evals.baseline.BASELINE_BYTES_MAX", "bytes", BEYOND),
    InputLimit("file with a policy", "run.agent_settings.POLICY_BYTES_MAX", "bytes", BEYOND),
    InputLimit(
        "file with a prompt template", "run.context.prompt_template.TEMPLATE_BYTES_MAX", "bytes", BEYOND
    ),
    InputLimit(
        "file with the token of a server", "cli.commands.serving.serve.TOKEN_BYTES_MAX", "bytes", BEYOND
    ),
    InputLimit("records of a replay test", "testing.replay_tests.FIXTURE_BYTES_MAX", "bytes", BEYOND),
)
