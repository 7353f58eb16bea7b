"""`bridle check wire` on recordings made here, good and bad."""

import gzip
import json
from typing import Any

import pytest

from bridle.cli.main import main
from bridle.testing.wire.call_pairing import renumber_calls

GOOD: dict[str, Any] = {
    "id": "made-1",
    "provider": "anthropic",
    "endpoint_host_kind": "anthropic",
    "model": "m",
    "fidelity": "raw",
    "provenance": "recorded",
    "features": ["text"],
    "stop": "end_turn",
    "request": {
        "method": "POST",
        "path": "/v1/messages",
        "headers": {},
        "json": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    },
    "response": {
        "status": 200,
        "headers": {"content-type": "application/json"},
        "json": {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "text", "text": "hello"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
}  # fmt: skip


def check(tmp_path, capsys, *records, suffix=".jsonl"):
    path = tmp_path / f"some{suffix}"
    data = "\n".join(json.dumps(record) for record in records).encode()
    path.write_bytes(gzip.compress(data) if suffix.endswith(".gz") else data)
    code = main(["check", "wire", str(path), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_good_recording_passes(tmp_path, capsys, suffix):
    code, told = check(tmp_path, capsys, GOOD, suffix=suffix)
    assert (code, told["exit"], told["unexplained"]) == (0, 0, 0)
    assert told["families"]["anthropic"] == told["total"] == {
        "recordings": 1, "replies": 1, "compared": 1, "failures": 0, "cut": 0, "other": 0, "unread": 0,
        "requests": 1, "unchanged": 1, "explained": 0, "losses": 0,
    }  # fmt: skip
    assert told["hosts"]["anthropic/anthropic"]["recordings"] == 1
    assert told["features"]["text"]["recordings"] == 1
    assert set(told) == {
        "seed", "exit", "total", "families", "hosts", "features", "losses", "unread", "others", "unexplained",
    }  # fmt: skip


def with_reply(**changes):
    return {**GOOD, "response": {**GOOD["response"], **changes}}


def test_a_reply_that_does_not_decode_is_a_loss(tmp_path, capsys):
    code, told = check(tmp_path, capsys, GOOD, with_reply(json={"type": "message", "content": 5}))
    assert (code, told["unexplained"]) == (1, 1)
    assert told["losses"][0]["recording"] == "made-1"


def test_what_is_no_real_exchange_is_not_judged(tmp_path, capsys):
    odd = {**with_reply(json={"hello": 1}), "fidelity": "sdk_object"}
    code, told = check(tmp_path, capsys, odd)
    assert code == 0
    assert told["losses"][0]["judged"] is False


def test_a_change_on_purpose_has_its_reason(tmp_path, capsys):
    body = {**GOOD["request"]["json"]}
    body["messages"] = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": " "}]}
    ]
    code, told = check(tmp_path, capsys, {**GOOD, "request": {**GOOD["request"], "json": body}})
    assert code == 0
    assert "blank text" in told["losses"][0]["reason"]


# What is wrong with the recordings themselves


def test_a_path_that_is_not_there_is_named_before_anything_is_read(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.jsonl").write_text(json.dumps(GOOD))
    (tmp_path / "empty").mkdir()
    for wrong in ("nowhere", "empty"):
        assert main(["check", "wire", "good.jsonl", wrong]) == 2
        shown = capsys.readouterr()
        assert wrong in shown.err
        assert shown.err.count("\n") == 1
        assert shown.out == ""


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{]", "not JSON"),
        ("5", "must be an object, not int"),
        ("{}", "'response'"),
        ('{"id": "x", "response": {"status": 200, "json": {}}}', "'provider'"),
        ('{"id": "x", "provider": "anthropic", "response": null}', "does not follow the format"),
        ('{"id": "x", "provider": "anthropic", "response": {"headers": {}, "json": {}}}', "'status'"),
        ('{"id": "x", "provider": "anthropic", "response": {"status": 200, "headers": {}}}', "'json'"),
        ('{"id": "x", "provider": 7, "response": {"status": 200, "json": {}}}', "provider is 7"),
        ('{"id": "x", "provider": "a", "request": {"json": {}}, "response": {"status": 200}}', "'path'"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_broken_line_is_told_and_hides_nothing(tmp_path, capsys, line, what):
    (tmp_path / "a.jsonl").write_text(f"{line}\n\n{json.dumps(GOOD)}\n")
    assert main(["check", "wire", str(tmp_path), "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    (unread,) = told["unread"]
    assert what in unread["what"]
    assert unread["recording"] in ("a.jsonl:1", "x")
    assert (told["total"]["recordings"], told["total"]["unread"], told["total"]["replies"]) == (2, 1, 1)


def test_a_file_that_ends_in_the_middle_gives_what_it_has(tmp_path, capsys):
    lines = b"".join(json.dumps({**GOOD, "id": f"made-{n}"}).encode() + b"\n" for n in range(400))
    packed = gzip.compress(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(packed[: len(packed) * 2 // 3])
    (tmp_path / "b.jsonl.gz").write_bytes(b"not gzip at all")
    (tmp_path / "c.jsonl").write_bytes(b"")
    assert main(["check", "wire", str(tmp_path)]) == 2
    out = capsys.readouterr().out
    assert "a.jsonl.gz:" in out
    assert "cannot be read further" in out
    assert "b.jsonl.gz" in out
    assert "c.jsonl  the file contains no recording" in out


def test_nothing_at_all_proves_nothing(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text("\n")
    assert main(["check", "wire", str(tmp_path), "--json"]) == 2
    assert "contains no recording" in json.loads(capsys.readouterr().out)["unread"][0]["what"]


def test_an_unknown_family_is_counted_and_not_judged(tmp_path, capsys):
    strange = {**GOOD, "id": "made-2", "provider": "smoke-signals"}
    strange["request"] = {**GOOD["request"], "path": "/v9/puffs"}
    code, told = check(tmp_path, capsys, GOOD, strange)
    assert code == 0
    assert told["families"]["smoke_signals"]["unread"] == 1
    assert "smoke_signals" in told["unread"][0]["what"]
    assert told["unread"][0]["broken"] is False


def test_events_that_cannot_be_framed_again_are_not_judged(tmp_path, capsys):
    odd = {
        **GOOD, "provider": "bedrock-converse", "request": None,
        "response": {"status": 200, "headers": {}, "eventstream": [{"event_type": None, "payload": None}]},
    }  # fmt: skip
    code, told = check(tmp_path, capsys, odd)
    assert code == 0
    assert "cannot be encoded again" in told["losses"][0]["tolerated"]


def test_ctrl_c_tells_what_was_counted(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(GOOD)] * 3))
    counted = []

    def interrupted(tally, *, done=False):
        counted.append(done)
        if len(counted) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("bridle.cli.commands.wire._show_progress", interrupted)
    assert main(["check", "wire", str(tmp_path), "--json"]) == 130
    shown = capsys.readouterr()
    assert json.loads(shown.out)["total"]["recordings"] == 2
    assert "stopped" in shown.err


def test_no_progress_is_shown_to_a_file(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(GOOD)] * 60))
    assert main(["check", "wire", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""


# Paths


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("anthropic", "/api/v1/messages"),
        ("anthropic", "/v1/messages?beta=true"),
        ("anthropic", "/anthropic/v1/messages/"),
        ("anthropic", "/model/us.x.y-v1%3A0/invoke"),
        ("anthropic", "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aprofile%2Fx/invoke-with-response-stream"),
        ("anthropic", "/v1/projects/p/locations/us-east5/publishers/a/models/m@20250101:rawPredict"),
        ("anthropic", "/v1/projects/p/locations/global/publishers/a/models/m:streamRawPredict"),
        ("openai-chat", "/v1beta/openai/chat/completions"),
        ("openai-chat", "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"),
        ("openai-chat", "/v1/projects/p/locations/l/endpoints/openapi/chat/completions"),
        ("openai-chat", "/models/chat/completions"),
        ("openai-responses", "/openai/deployments/d/responses?api-version=1"),
        ("openai-responses", "/backend-api/codex/responses"),
        ("gemini", "/v1beta/models/m:generateContent?key=k"),
        ("gemini", "/v1beta/tunedModels/mine:generateContent"),
        ("gemini", "/v1/projects/p/locations/l/endpoints/123:streamGenerateContent"),
        ("gemini", "/google-vertex/v1beta1/publishers/google/models/m:streamGenerateContent?alt=sse"),
        ("bedrock-converse", "/bedrock/model/m/converse"),
        ("bedrock-converse", "/model/arn%3Aaws%3Ax%2Fy/converse-stream"),
    ],
)
def test_an_endpoint_is_known_under_any_prefix(tmp_path, capsys, provider, path):
    bodies = {
        "anthropic": {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
        "openai-chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
        "openai-responses": {"model": "m", "input": "hi"},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
        "bedrock-converse": {"messages": [{"role": "user", "content": [{"text": "hi"}]}]},
    }
    failed = {"status": 500, "headers": {}, "text": "no"}
    asked = {"method": "POST", "path": path, "headers": {}, "json": bodies[provider]}
    for said in (provider, "something-else"):
        code, told = check(tmp_path, capsys, {**GOOD, "provider": said, "request": asked, "response": failed})
        assert (code, told["losses"], told["others"]) == (0, [], [])
        assert told["families"][provider.replace("-", "_")]["unchanged"] == 1


def test_paths_no_codec_takes_are_listed(tmp_path, capsys):
    records = []
    for name in ("one", "two"):
        asked = {**GOOD["request"], "path": f"/v1beta/models/{name}:countTokens?x=1"}
        records.append({**GOOD, "provider": "gemini", "endpoint_host_kind": "vertex", "request": asked})
    code, told = check(tmp_path, capsys, *records)
    assert code == 0
    assert told["others"] == [
        {
            "family": "gemini",
            "host": "vertex",
            "method": "POST",
            "path": "/v1beta/models/*:countTokens",
            "count": 2,
        }
    ]


def test_the_tables_are_printed(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(json.dumps(GOOD))
    assert main(["check", "wire", str(tmp_path), "--hosts", "--features"]) == 0
    out = capsys.readouterr().out
    assert "anthropic/anthropic" in out
    assert "100.00 % of 1 requests unchanged" in out


# Requests unlike any that was seen here


def check_request(tmp_path, capsys, provider, body, path, status=200):
    """What is said of a request's changes, whatever came of it."""
    request = {"method": "POST", "path": path, "headers": {}, "json": body}
    response = {"status": status, "headers": {}, "json": {"error": {"message": "no"}}}
    odd = {**GOOD, "provider": provider, "request": request, "response": response, "features": [], "stop": ""}
    _, told = check(tmp_path, capsys, odd)
    return [loss["reason"] or loss["what"] for loss in told["losses"] if loss["about"] == "request"]


def chat(*messages):
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}, *messages]}


def call_message(*ids):
    made = [{"id": known, "type": "function", "function": {"name": "f", "arguments": "{}"}} for known in ids]
    return {"role": "assistant", "tool_calls": made}


def result_message(known, content="ok"):
    return {"role": "tool", "tool_call_id": known, "content": content}


@pytest.mark.parametrize(
    ("provider", "path", "body", "reason"),
    [
        ("openai-chat", "/chat/completions", chat(call_message(""), result_message("")), "an id of its own"),
        (
            "openai-chat",
            "/chat/completions",
            chat(call_message("a"), result_message("a"), call_message("a"), result_message("a")),
            "an id of its own",
        ),
        (
            "openai-chat",
            "/chat/completions",
            chat(call_message("a"), result_message("a", "")),
            "without a word",
        ),
        (
            "bedrock-converse",
            "/model/m/converse",
            {
                "messages": [
                    {"role": "assistant", "content": [{"text": "hi"}]},
                    {"role": "user", "content": [{"text": "ho"}]},
                ]
            },
            "begins with its user",
        ),
        (
            "bedrock-converse",
            "/model/m/converse",
            {
                "messages": [
                    {"role": "user", "content": [{"text": "hi"}]},
                    {
                        "role": "assistant",
                        "content": [{"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}],
                    },
                    {
                        "role": "user",
                        "content": [
                            {"text": "so"},
                            {"toolResult": {"toolUseId": "t", "content": [{"text": "x"}]}},
                        ],
                    },
                ]
            },
            "results come before words",
        ),
    ],
)
def test_what_is_changed_on_purpose_has_its_reason_on_every_wire(
    tmp_path, capsys, provider, path, body, reason
):
    said = check_request(tmp_path, capsys, provider, body, path)
    assert said
    assert all(reason in each for each in said)


def test_odd_ids_do_not_excuse_a_result_that_went_to_another_call():
    theirs = chat(call_message("a", "a"), result_message("a", "1"), result_message("a", "2"))
    well = chat(call_message("c0", "c1"), result_message("c0", "1"), result_message("c1", "2"))
    mixed = chat(call_message("c0", "c1"), result_message("c1", "1"), result_message("c0", "2"))
    assert len({json.dumps(body) for body in renumber_calls(theirs, well)}) == 1
    assert len({json.dumps(body) for body in renumber_calls(theirs, mixed)}) == 2


def test_what_the_provider_refused_may_be_written_better(tmp_path, capsys):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    assert check_request(tmp_path, capsys, "anthropic", body, "/v1/messages", 400) == [
        "the provider refused it as it was"
    ]
    assert "max_tokens" in check_request(tmp_path, capsys, "anthropic", body, "/v1/messages")[0]


def test_a_body_without_a_known_meaning_is_compared_literally(tmp_path, capsys):
    body = {"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": 7}
    said = check_request(tmp_path, capsys, "gemini", body, "/v1beta/models/g:generateContent")
    assert said
    assert not any("raised" in each for each in said)
