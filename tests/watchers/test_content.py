"""Text of a run leaves it by no sink unless asked for, and then redacted: marked secrets at every place where text enters."""

import asyncio
import base64
import io
import json
import logging
import re

import pytest

from bridle import Agent, Media, MisuseError, Telemetry, Text, flush_telemetry, tool
from bridle.core.recovery.breaker import FAILURES_MAX
from bridle.hooks import before_model, redact_pii
from bridle.run.recovery.breakers import CircuitBreakers
from bridle.testing.scripted_model import call_reply, scripted
from bridle.values import events as e
from bridle.values.errors import Failure
from bridle.values.request import Extra
from bridle.watchers import JsonLines, LogLines, PrometheusMetrics, RedactingWatcher
from bridle.watchers.console import Console
from bridle.watchers.content_filter import filter_value, list_content_fields
from tests.watchers.otel_receiver import Receiver

MARK = "canary"
PLACES = (
    "prompt", "instructions", "argument", "result", "exception", "url", "header", "imagename", "toolname", "caller",
    "reply", "extra",
)  # fmt: skip
SECRETS = {place: f"{MARK}-{place}-7f3e" for place in PLACES}
RULE = rf"{MARK}-\w+-7f3e"
EXTRAS = [Extra(name="metadata", json=json.dumps({"authorization": SECRETS["extra"]}))]
URL = f"https://example.com/{SECRETS['url']}.png"


@tool(effect="read")
def look(at: str) -> list[Text | Media]:
    """Look."""
    return [Text(text=SECRETS["result"]), Media.from_url(URL, kind="image", media_type="image/png")]


@tool
def fail(at: str) -> str:
    """Fail."""
    raise RuntimeError(SECRETS["exception"])


@tool
def other(at: str) -> str:
    """Do other things."""
    return at


PIXEL = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89"
    b"\x00\x00\x00\rIDATx\xdac\xfc\xcf\xf0\xbf\x1e\x00\x06\x83\x02\x7f\x94\xad\xd0\xeb\x00\x00\x00\x00IEND\xaeB`\x82"
)

PIXEL_MARK = b"".join((b"\0" * (-len(PIXEL) % 3), b"canary-pixels-7f3e"))
"""Bytes of an image that have an encoding of their own in Base64."""
ENCODED_MARK = base64.b64encode(PIXEL_MARK.lstrip(b"\0")).decode()


def run_with(**options):
    model = scripted(
        call_reply(
            ("look", {"at": SECRETS["argument"]}),
            ("fail", {"at": SECRETS["argument"]}),
            (SECRETS["toolname"], {}),
        ),
        SECRETS["reply"],
    )
    agent = Agent(
        model, tools=[look, fail], name="a", instructions=SECRETS["instructions"], extras=EXTRAS, **options
    )
    image = Media.from_bytes(PIXEL + PIXEL_MARK, name=f"{SECRETS['imagename']}.png")
    result = asyncio.run(agent.run([Text(text=SECRETS["prompt"]), image], caller=SECRETS["caller"]))
    assert result.done
    return result


def watch_console(content, redact):
    out = io.StringIO()
    run_with(watchers=[RedactingWatcher(Console(out, out, reasoning=True), content=content, redact=redact)])
    return out.getvalue()


def watch_jsonl(content, redact):
    out = io.StringIO()
    run_with(watchers=[RedactingWatcher(JsonLines(out), content=content, redact=redact)])
    return out.getvalue()


def watch_log(content, redact, *, as_json=False):
    out = io.StringIO()
    logger = logging.Logger("test", logging.DEBUG)
    logger.addHandler(logging.StreamHandler(out))
    run_with(watchers=[LogLines(logger, json=as_json, content=content, redact=redact)])
    return out.getvalue()


def watch_otel(content, redact):
    with Receiver() as receiver:
        headers = {"x-key": SECRETS["header"]}
        settings = Telemetry(
            endpoint=receiver.url, headers=headers, content=content, redact=redact, metrics=False
        )
        run_with(telemetry=settings)
        assert flush_telemetry()
        return b"".join(receiver.bodies).decode("utf-8", "replace")


def watch_prometheus(content, redact):
    metrics = PrometheusMetrics()
    run_with(telemetry=Telemetry(exporter=metrics, content=content, redact=redact))
    return metrics.render()


SINKS = {
    "console": watch_console,
    "jsonl": watch_jsonl,
    "log": watch_log,
    "json log": lambda content, redact: watch_log(content, redact, as_json=True),
    "otel": watch_otel,
    "prometheus": watch_prometheus,
}


@pytest.mark.parametrize("sink", SINKS)
def test_no_secret_leaves_at_metadata(sink, caplog):
    shown = SINKS[sink]("off", None)
    assert "look" in shown or sink == "console", "the sink shows something"
    assert MARK not in shown and ENCODED_MARK not in shown
    # The exception itself is attached to the line about a bug in a tool, for handlers that write tracebacks.
    assert MARK not in "".join(each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("sink", SINKS)
def test_secrets_are_redacted(sink):
    shown = SINKS[sink]("redacted", RULE)
    assert MARK not in shown and ENCODED_MARK not in shown
    assert "[redacted]" in shown or sink == "prometheus"


@pytest.mark.parametrize("sink", [sink for sink in SINKS if sink != "prometheus"])
def test_the_canaries_reach_every_sink_in_full(sink):
    """Otherwise the tests above could not fail."""
    assert MARK in SINKS[sink]("full", None)


def test_every_place_is_in_the_log():
    shown = watch_jsonl("full", None)
    missing = [place for place in PLACES if SECRETS[place] not in shown]
    assert missing == ["header", "extra"], "the key of a receiver and the fields of extras are in no log"
    assert ENCODED_MARK in shown


def test_rules_are_functions_and_patterns_in_their_order():
    rules = [redact_pii, r"canary-\w+-7f3e", re.compile("Ada"), str.upper]
    shown = watch_jsonl("redacted", rules)
    assert "[REDACTED]" in shown and MARK.upper() not in shown


def test_every_event_keeps_its_type_and_numbers_at_metadata():
    started = e.ToolStarted(call_id="c1", name="pay", key="k", attempt=2, arguments='{"to": "Ada"}')
    filtered = filter_value(started, None)
    assert filtered == e.ToolStarted(call_id="c1", name="pay", key="", attempt=2)
    assert "name" in list_content_fields(e.ToolFinished), (
        "a model can invent the name of a call that never ran"
    )


def test_log_lines_have_levels_and_fields(caplog):
    caplog.set_level(logging.DEBUG, "bridle.runs")
    result = run_with(watchers=[LogLines(json=True)])
    lines = {}
    for record in caplog.records:
        if record.name == "bridle.runs":
            lines.setdefault(json.loads(record.getMessage())["event"], []).append(record)
    assert {record.levelname for record in lines["tool_finished"]} == {"INFO", "WARNING"}
    assert lines["configured"][0].levelname == "DEBUG"
    end = lines["run_ended"][0]
    assert (end.levelname, end.bridle["stop"], end.bridle["session"]) == ("INFO", "done", result.session)
    tools = [record.bridle.get("tool") for record in lines["tool_finished"]]
    assert sorted(map(str, tools)) == ["None", "fail", "look"]


def test_prometheus_metrics_are_the_sums_of_the_calls():
    metrics = PrometheusMetrics()
    results = [run_with(telemetry=Telemetry(exporter=metrics)) for _ in range(2)]
    lines = metrics.render().splitlines()
    assert "# TYPE gen_ai_client_token_usage histogram" in lines
    inputs = [
        line for line in lines if line.startswith("gen_ai_client_token_usage_sum") and 'type="input"' in line
    ]
    assert len(inputs) == 1
    assert float(inputs[0].rsplit(" ", 1)[1]) == sum(result.usage.prompt for result in results)
    runs = next(line for line in lines if "_duration_seconds_count" in line and "invoke_agent" in line)
    assert runs.endswith(" 2")
    for line in lines:
        assert line.startswith("# ") or re.fullmatch(r'[a-z_]+(\{([a-z_]+="[^"\n]*",?)*\})? \S+', line), line


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogLines(content="redacted"), "add redact=redact_pii"),
        (lambda: LogLines(content="metadata"), "choose one of: off, redacted, full"),  # type: ignore[arg-type]
        (lambda: RedactingWatcher(LogLines(), content="redacted", redact="("), "no regular expression"),
        (lambda: Telemetry(content="redacted", redact=[3]), "functions and regular expressions"),  # type: ignore[list-item]
    ],
)
def test_bad_rules_are_refused_in_one_line(make, message):
    with pytest.raises(MisuseError, match=re.escape(message)) as refused:
        make()
    assert "\n" not in str(refused.value)


def test_warnings_have_no_text_of_exceptions_and_providers(caplog):
    def break_down(*given):
        raise LookupError(SECRETS["exception"])

    class Failing:
        on_event = export = break_down

        async def find(self, query, tools, limit):
            break_down()

    hook = before_model(name="check")(lambda run, request: break_down())
    for options in ({"hooks": [hook]}, {"instructions": [break_down]}):
        result = Agent(scripted("never"), **options).run_sync("Go.")
        assert result.stop == "failed" and SECRETS["exception"] in result.reason, "the log has the message"
    broken = Failing()
    for options in (  # type: ignore[assignment]
        {"watchers": [broken]},
        {"telemetry": Telemetry(exporter=broken)},  # type: ignore[arg-type]
        {"tool_index": broken},
    ):
        assert (
            Agent(scripted("ok"), tools=[look, fail, other], tools_shown_max=2, **options)
            .run_sync("Go.")
            .done
        )
    breakers, model = CircuitBreakers(), Agent(scripted("ok")).settings.model
    for _ in range(FAILURES_MAX):
        admitted = breakers.admit_request(model, 0.0)
        admitted.record_failure(Failure(kind="overloaded", message=SECRETS["exception"]), 0.0)
    with Receiver(refusal=SECRETS["exception"]) as receiver:
        run_with(telemetry=Telemetry(endpoint=receiver.url, metrics=False))
        assert flush_telemetry()
    warnings = [each.getMessage() for each in caplog.records if each.name == "bridle"]
    assert len(warnings) == 7
    assert sum("LookupError at test_content.py:" in each for each in warnings) == 5
    assert MARK not in "".join(warnings)


def test_an_endpoint_with_a_password_is_refused_and_not_shown():
    with pytest.raises(MisuseError, match="holds a user or password") as refused:
        Agent(
            scripted("ok"), telemetry=Telemetry(endpoint=f"http://ada:{SECRETS['url']}@localhost:4318")
        ).run_sync("Go.")
    assert MARK not in str(refused.value)
