"""Replies encoded while they are written: each family's own decoder reads what was written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle.providers import load_codec
from bridle.providers.anthropic.serving import AnthropicReplyWriter
from bridle.providers.gemini.serving import GeminiReplyWriter
from bridle.providers.openai_chat.serving import ChatReplyWriter
from bridle.providers.openai_responses.serving import ResponsesReplyWriter
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Endpoint, Model, Origin
from bridle.values.request import Request
from bridle.values.result import ReasoningDelta, TextDelta
from bridle.values.usage import Usage

SSE = {"alt": "sse"}
WRITERS = {
    "anthropic": AnthropicReplyWriter,
    "gemini": GeminiReplyWriter,
    "openai_chat": ChatReplyWriter,
    "openai_responses": ResponsesReplyWriter,
}
families = pytest.mark.parametrize("family", WRITERS)
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)  # type: ignore[arg-type]
deltas = st.lists(
    st.one_of(texts.map(lambda t: TextDelta(text=t)), texts.map(lambda t: ReasoningDelta(reasoning=t)))
)
calls = st.lists(
    st.builds(
        ToolCall,
        id=st.just(""),
        name=st.sampled_from(["look", "pay_now"]),
        arguments=st.dictionaries(texts, st.one_of(st.integers(-9, 9), texts), max_size=3).map(json.dumps),
    ),
    max_size=3,
)
usages = st.builds(
    Usage,
    input=st.integers(1, 999),
    cache_read=st.integers(0, 99),
    output=st.integers(20, 999),
    reasoning=st.integers(0, 20),
)


def make_request(family):
    return Request(model=Model(id="m", endpoint=Endpoint(name=family, family=family)))


def decode(family, writer, body):
    decoder = load_codec(family).new_decoder(make_request(family), 200, {"content-type": writer.content_type})
    shown = [*decoder.feed(body)]
    return decoder.close(), shown


def write_reply(family, said, called, usage):
    writer = WRITERS[family]("id_1", make_request(family), SSE, {})  # type: ignore[abstract]
    body = writer.open() + b"".join(map(writer.write, said))
    named = tuple(
        ToolCall(id="", name=c.name, arguments=c.arguments, wire_id=f"call_{n}") for n, c in enumerate(called)
    )
    reply = Reply(
        parts=writer.name_parts((*writer.parts, *named)),
        stop=Stop.TOOLS if named else Stop.DONE,
        origin=Origin(family="", endpoint="", model="m"),
        usage=usage,
        id="id_1",
    )
    return writer, body + writer.close(reply), reply


@pytest.mark.slow
@families
@given(said=deltas, called=calls, usage=usages)
def test_decoder_reads_what_was_written(family, said, called, usage):
    writer, body, reply = write_reply(family, said, called, usage)
    read, shown = decode(family, writer, body)
    assert read.text == reply.text
    assert "".join(d.text for d in shown if isinstance(d, TextDelta)) == reply.text
    wanted = "".join(part.text for part in reply.parts if isinstance(part, Reasoning))
    assert "".join(part.text for part in read.parts if isinstance(part, Reasoning)).replace(
        "\n", ""
    ) == wanted.replace("\n", "")
    assert [(c.name, json.loads(c.arguments)) for c in read.calls] == [
        (c.name, json.loads(c.arguments)) for c in reply.calls
    ]
    if family != "gemini":
        assert [c.wire_id for c in read.calls] == [c.wire_id for c in reply.calls]
    assert (read.usage.prompt, read.usage.output, read.usage.cache_read, read.usage.reasoning) == (
        usage.prompt, usage.output, usage.cache_read, usage.reasoning,
    )  # fmt: skip
    assert read.stop is (Stop.TOOLS if called else Stop.DONE)


@families
@pytest.mark.parametrize("kind", ["quota", "rate_limited", "overloaded", "server", "context"])
def test_reply_that_fails_after_its_beginning_is_a_failure(family, kind):
    writer = WRITERS[family]("id_1", make_request(family), SSE, {})  # type: ignore[abstract]
    body = writer.open() + writer.write(TextDelta(text="so far"))
    body += writer.fail(Failure(kind=kind, message="it broke"))
    with pytest.raises(ProviderError) as caught:
        decode(family, writer, body)
    assert "it broke" in caught.value.failure.message


@families
@pytest.mark.parametrize("stop", [Stop.LENGTH, Stop.REFUSED])
def test_stop_reasons_are_kept(family, stop):
    writer = WRITERS[family]("id_1", make_request(family), SSE, {})  # type: ignore[abstract]
    body = writer.open() + writer.write(TextDelta(text="so far"))
    origin = Origin(family="", endpoint="", model="m")
    body += writer.close(
        Reply(parts=(Text(text="so far"),), stop=stop, origin=origin, usage=Usage(input=1, output=1))
    )
    read, _ = decode(family, writer, body)
    if (family, stop) in {("openai_chat", Stop.REFUSED), ("openai_responses", Stop.REFUSED)}:
        assert read.stop is Stop.DONE  # a refusal is a text of its own there
    else:
        assert read.stop is stop


def test_counts_are_sent_only_if_they_are_wanted():
    from bridle.values.request import Extra

    plain = make_request("openai_chat")
    for extras, wanted in ((), True), ((Extra(name="stream_options", json="null"),), False):
        writer = ChatReplyWriter("id_1", Request(model=plain.model, extras=extras), SSE, {})
        reply = Reply(
            parts=(), stop=Stop.DONE, origin=Origin(family="", endpoint="", model="m"), usage=Usage(input=1)
        )
        assert (b'"usage"' in writer.close(reply)) is wanted
