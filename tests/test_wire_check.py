"""`bridle wire check` on recordings made here, good and bad."""

import gzip
import json

import pytest

from bridle.cli.main import main

GOOD = {
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
    code = main(["wire", "check", str(path), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_a_good_recording_passes(tmp_path, capsys, suffix):
    code, told = check(tmp_path, capsys, GOOD, suffix=suffix)
    assert (code, told["unexplained"]) == (0, 0)
    assert told["families"]["anthropic"] | {"cut": 0} == {
        "recordings": 1, "replies": 1, "requests": 1, "unchanged": 1, "explained": 0, "losses": 0, "cut": 0,
    }  # fmt: skip
    assert told["hosts"]["anthropic/anthropic"]["recordings"] == 1
    assert told["features"]["text"]["recordings"] == 1


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


@pytest.mark.parametrize("path", ["nowhere", "rubbish.jsonl"])
def test_what_is_not_a_file_of_recordings_is_named(tmp_path, capsys, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rubbish.jsonl").write_text("{]")
    assert main(["wire", "check", path]) == 2
    assert path in capsys.readouterr().err


def test_the_tables_are_printed(tmp_path, capsys):
    (tmp_path / "a.jsonl").write_text(json.dumps(GOOD))
    assert main(["wire", "check", str(tmp_path), "--hosts", "--features"]) == 0
    out = capsys.readouterr().out
    assert "anthropic/anthropic" in out
    assert "100.00 % of 1 requests unchanged" in out
