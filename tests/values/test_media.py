"""Media: validated at construction, read from old logs, left out where a model takes none."""

import asyncio
import base64
import json

import msgspec
import pytest

from bridle import Agent, Media, Text, tool
from bridle.core.context.media import find_unsupported_media
from bridle.run.model_connection import find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.testing import simulator
from bridle.values.errors import MisuseError
from bridle.values.events import ViewChanged
from bridle.values.media import recognize_bytes
from bridle.values.message import Message
from bridle.values.request import Request
from tests.sim.sim_families import send_request

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg=="
)
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01"
MP4 = b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00"
HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00"
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt "
PICTURE = base64.b64encode(PNG).decode()

# ── made safely ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "image", "media_type": "image/png", "data": PNG}, "for bytes use Media.from_bytes"),
        ({"kind": "image"}, "needs exactly one"),
        (
            {"kind": "image", "data": PICTURE, "url": "https://x/a.png"},
            "needs exactly one",
        ),
        ({"kind": "image", "media_type": "image/png", "data": "not base64!"}, "not base64"),
        (
            {"kind": "image", "media_type": "image/png", "data": f"data:image/png;base64,{PICTURE}"},
            "data: URL",
        ),
        ({"kind": "image", "media_type": "image/jpeg", "data": PICTURE}, "is image/png, not image/jpeg"),
        ({"kind": "document", "media_type": "text/plain", "data": PICTURE}, "is image/png, not text/plain"),
        ({"kind": "image", "media_type": "text/plain", "data": "AAAA"}, "not the type of an image"),
        ({"kind": "video", "media_type": "png", "data": "AAAA"}, "not the type of a video"),
        ({"kind": "picture", "data": PICTURE}, "kind must be one of image, document, audio, video"),
        ({"kind": "image", "url": 5}, "url must be a string, not int"),
        ({"kind": "image", "data": base64.b64encode(WAV).decode()}, "audio/wav, which is no image"),
    ],
)
def test_what_no_provider_could_take_is_refused_in_one_line(fields, words):
    with pytest.raises(MisuseError, match="Media") as refusal:
        Media(**fields)
    said = str(refusal.value)
    assert words in said and "\n" not in said and len(said) < 200


def test_bytes_are_recognized():
    made = Media.from_bytes(PNG, name="pixel")
    assert (made.kind, made.media_type, made.data, made.name) == ("image", "image/png", PICTURE, "pixel")
    assert Media.from_bytes(JPEG).media_type == "image/jpeg"
    assert (Media.from_bytes(MP4).kind, Media.from_bytes(WAV).kind) == ("video", "audio")
    assert Media.from_bytes(b"%PDF-1.7 \xff").media_type == "application/pdf"
    assert (Media.from_bytes(HEIC).kind, Media.from_bytes(HEIC).media_type) == ("image", "image/heic")
    assert Media.from_bytes(HEIC, media_type="image/heif").kind == "image"
    assert (Media.from_bytes("Grüße".encode()).kind, Media.from_bytes(b"hi").media_type) == (
        "document",
        "text/plain",
    )
    assert Media.from_bytes(b"\x00\x01", media_type="application/x-thing").kind == "document"
    with pytest.raises(MisuseError, match="cannot be recognized; give media_type"):
        Media.from_bytes(b"\x00\x01")
    for wrong in (PICTURE, b"", None):
        with pytest.raises(MisuseError, match="takes bytes"):
            Media.from_bytes(wrong)  # type: ignore[arg-type]


def test_paths_are_read(tmp_path):
    picture = tmp_path / "pixel.dat"
    picture.write_bytes(PNG)
    assert Media.from_path(picture) == Media.from_bytes(PNG, name="pixel.dat")
    assert Media.from_path(str(picture), name="").name == ""
    table = tmp_path / "numbers.csv"
    table.write_text("a,b\n1,2\n")
    assert (Media.from_path(table).kind, Media.from_path(table).media_type) == ("document", "text/csv")
    film = tmp_path / "film.mov"
    film.write_bytes(MP4)
    assert Media.from_path(film).media_type == "video/quicktime"
    (tmp_path / "empty.png").touch()
    for path, words in (("gone.png", "cannot be read"), ("empty.png", "is empty")):
        with pytest.raises(MisuseError, match=words):
            Media.from_path(tmp_path / path)


def test_addresses_show_their_kind():
    made = Media.from_url("https://host/a/b.JPG?size=1#x")
    assert (made.kind, made.media_type, made.url) == ("image", "image/jpeg", "https://host/a/b.JPG?size=1#x")
    assert Media.from_url("https://host/report.pdf").kind == "document"
    assert Media.from_url("https://host/picture", kind="image").media_type == ""
    with pytest.raises(MisuseError, match="set kind="):
        Media.from_url("https://host/picture")
    with pytest.raises(MisuseError, match="takes a URL"):
        Media.from_url("pixel.png")


def test_a_missing_media_type_is_read_from_the_data():
    assert Media(kind="image", data=PICTURE).media_type == "image/png"


# ── read from old logs ──────────────────────────────────────────────────────

ODD = (
    Media.from_wire(kind="image", media_type="image/png", data="b'\\x89PNG'"),
    Media.from_wire(kind="image"),
    Media.from_wire(kind="image", media_type="image/jpeg", data=PICTURE),
)


@pytest.mark.parametrize("odd", ODD, ids=["repr", "nothing", "label"])
def test_odd_media_of_an_old_log_is_read_and_left_out_of_the_view(odd):
    assert msgspec.json.decode(msgspec.json.encode(odd), type=Media) == odd
    message = Message(id="m1", role="user", parts=(odd, Text(text="look")))
    (unfit,) = find_unsupported_media(message, find_model_by_name("sim:openai/gpt-6-sol"))
    assert unfit.change.text.startswith(
        "[picture left out: its data" if odd.data else "[picture left out: it has"
    )


@pytest.mark.parametrize("odd", ODD, ids=["repr", "nothing", "label"])
@pytest.mark.parametrize(
    "model", ["sim:openai/gpt-6-sol", "sim:openai-chat/gpt-5.4", "sim:anthropic/claude-sonnet-5-5"]
)
def test_a_session_with_odd_media_goes_on(odd, model):
    result = Agent(model).run_sync([odd, Text(text="!say Fine.")])
    assert (result.stop, result.text) == ("done", "Fine.")


# ── left out where a model takes none ───────────────────────────────────────

FILM, SOUND = Media.from_bytes(MP4), Media.from_bytes(WAV)


@pytest.mark.parametrize(
    "model",
    [
        "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
        "sim:anthropic/claude-sonnet-5-5",
        "sim:openai/gpt-6-sol",
        "sim:openai-chat/gpt-5.4",
    ],
)
@pytest.mark.parametrize(("media", "words"), [(FILM, "takes no videos"), (SOUND, "takes no audio")])
def test_a_session_with_a_film_or_a_sound_goes_on_with_a_model_that_takes_none(media, words, model, tmp_path):
    async def story():
        store = str(tmp_path / "log.db")
        first = Agent("sim:gemini/gemini-3.5-flash", store=store)
        seen = await first.run([media, Text(text="!say I see.")])
        assert (seen.stop, seen.text) == ("done", "I see.")
        second = Agent(model, store=store)
        result = await second.run("!say Then I go on.", seen.session)
        assert (result.stop, result.text) == ("done", "Then I go on."), result.reason
        third = await second.run("!say And on.", seen.session)
        assert third.text == "And on."
        records = await second.store.read(seen.session)
        changed = [record.event for record in records if isinstance(record.event, ViewChanged)]
        assert [words in change.text for event in changed for change in event.changes] == [True]

    asyncio.run(story())


def test_abilities_for_films_and_sounds_are_facts_of_the_table():
    takes = {
        name: find_model_by_name(name).abilities
        for name in ("gemini:gemini-3.5-flash", "openai:gpt-6-sol", "kimi:kimi-k3")
    }
    assert (takes["gemini:gemini-3.5-flash"].videos, takes["gemini:gemini-3.5-flash"].audio) == (True, True)
    assert (takes["openai:gpt-6-sol"].videos, takes["openai:gpt-6-sol"].audio) == (False, False)


# ── the simulator refuses what the providers refuse ─────────────────────────


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("model", "media", "words"),
    [
        (
            "anthropic/claude-sonnet-5-5",
            ODD[0],
            "messages.0.content.0.image.source.base64: invalid base64 data",
        ),
        ("anthropic/claude-sonnet-5-5", ODD[2], "Image does not match the provided media type image/jpeg"),
        ("bedrock_converse/global.anthropic.claude-sonnet-4-6", ODD[0], "not valid base64"),
        (
            "bedrock_converse/global.anthropic.claude-sonnet-4-6",
            FILM,
            "doesn't support the video content block",
        ),
        (
            "bedrock_converse/global.anthropic.claude-sonnet-4-6",
            SOUND,
            "doesn't support the audio content block",
        ),
        (
            "openai/gpt-6-sol",
            ODD[0],
            "Invalid 'input[0].content[0].image_url'. Expected a base64-encoded data URL",
        ),
        ("openai-chat/gpt-5.4", ODD[0], "Invalid image URL: 'messages[0].content[0].image_url.url'."),
        ("openai-chat/gpt-5.4", SOUND, "Content blocks are expected to be either text or image_url type"),
        ("gemini/gemini-3.5-flash", ODD[0], "(TYPE_BYTES), Base64 decoding failed"),
    ],
)
def test_the_simulator_refuses_media_in_the_familys_words(model, media, words):
    sent = find_model_by_name(f"sim:{model}")
    message = Message(id="m1", role="user", parts=(media, Text(text="Hello")))
    timeline = send_request(Simulator(), Request(model=sent, messages=(message,), stream=False))
    assert timeline.status == 400
    assert words in json.dumps(json.loads(timeline.body), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize(
    "address", ["ftp://example.com/a.png", " https://example.com/a.png", "file:///a.png", 5]
)
def test_an_address_that_nobody_fetches_is_refused(address):
    with pytest.raises(MisuseError, match=r"Media\.from_url takes a URL"):
        Media.from_url(address)


# ── data and label agree ────────────────────────────────────────────────────

MP3 = b"\xff\xfb\x90\x64" + b"\0" * 40
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"


@pytest.mark.parametrize(
    ("data", "media_type", "words"),
    [
        (PNG, "application/pdf", "its data is image/png, not application/pdf"),
        (PNG, "audio/wav", "its data is image/png, not audio/wav"),
        (WAV, "audio/mpeg", "its data is audio/wav, not audio/mpeg"),
        (PDF, "image/png", "its data is application/pdf"),
        (b"<!doctype html><title>404</title>", "image/png", "its data is not image/png; it begins with"),
        (b"<!doctype html><title>404</title>", "application/pdf", "its data is not application/pdf"),
        (b"\0\0\0\0", "audio/wav", "its data is not audio/wav"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_data_that_is_not_what_its_label_or_name_says_is_refused(data, media_type, words, named, tmp_path):
    ending = media_type.rpartition("/")[2].replace("mpeg", "mp3")
    path = tmp_path / f"file.{ending}"
    path.write_bytes(data)
    if named and "begins" not in words and not words.startswith("its data is not"):
        assert Media.from_path(path).media_type == recognize_bytes(data)  # the content decides, not the name
        return
    with pytest.raises(MisuseError, match="its data is") as refusal:
        Media.from_path(path) if named else Media.from_bytes(data, media_type=media_type)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_containers_and_plain_text_keep_their_labels():
    assert Media.from_bytes(MP4, media_type="audio/mp4").kind == "audio"
    assert Media.from_bytes(MP4, media_type="video/quicktime").kind == "video"
    assert Media.from_bytes(MP3).media_type == "audio/mpeg"
    assert Media.from_bytes(b"ID3 tags are older than ID3v2.").media_type == "text/plain"
    assert Media.from_bytes(b"%PDF- is how a PDF begins", media_type="text/plain").kind == "document"


@pytest.mark.parametrize(
    "address", ["ftp://host/a.png", "file:///a.png", "https:///a.png", "a.png", "https://[x/a.png"]
)
@pytest.mark.parametrize("made", ["from_url", "Media"])
def test_an_address_without_a_provider_that_fetches_it_is_refused(address, made):
    with pytest.raises(MisuseError, match=r"https://…"):
        Media.from_url(address) if made == "from_url" else Media(kind="image", url=address)


@pytest.mark.parametrize(
    "address", ["https://ann:pw-7f3e@host/a.png", "https://pw-7f3e@host", "s3://a:pw-7f3e@b/c.png"]
)
def test_a_password_in_an_address_is_refused_and_not_repeated(address):
    with pytest.raises(MisuseError, match="has a user or password") as refused:
        Media.from_url(address, kind="image")
    assert "7f3e" not in str(refused.value)
    assert Media.from_url("https://host/@me/a.png?to=b@c").url.endswith("b@c")


def test_schemes_are_read_in_any_case():
    assert Media.from_url("HTTPS://host/a.png").kind == "image"


@pytest.mark.parametrize("wrong", [None, 5, b"a.png"])
def test_what_is_no_path_is_one_line(wrong):
    with pytest.raises(MisuseError, match=r"Media\.from_path takes a path, not"):
        Media.from_path(wrong)


@pytest.mark.parametrize("fields", [{"media_type": 5}, {"name": 5}, {"kind": "document"}, {"kind": "audio"}])
def test_labels_that_cannot_be_are_one_line(fields):
    with pytest.raises(MisuseError, match="Media"):
        Media.from_bytes(PNG, **fields)


# ── on every wire, in prompts and in results ────────────────────────────────

WIRES = {
    "anthropic": "sim:anthropic/claude-sonnet-5-5",
    "openai": "sim:openai/gpt-6.1-sol",
    "openai-chat": "sim:openai-chat/gpt-6.1-sol",
    "gemini": "sim:gemini/gemini-3.8-flash",
    "bedrock": "sim:bedrock/global.anthropic.claude-sonnet-5-5",
}
SENT = {
    "picture": Media.from_bytes(PNG, name="pixel.png"),
    "document": Media.from_bytes(PDF, name="paper.pdf"),
    "audio": Media.from_bytes(WAV + b"\0" * 32, name="sound.wav"),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("place", ["prompt", "result"])
@pytest.mark.parametrize("what", SENT)
@pytest.mark.parametrize("wire", WIRES)
def test_media_reaches_the_model_or_its_absence_is_said(wire, what, place, stream):
    media = SENT[what]

    @tool(effect="read")
    def draw() -> list[object]:
        """Draw."""
        return ["Here:", media]

    async def story():
        script = ("!call draw {}", "Seen.") if place == "result" else ("Seen.",)
        async with simulator(*script) as provider:
            agent = Agent(provider.model(WIRES[wire]), tools=[draw])
            prompt = "Draw." if place == "result" else [media, "Look."]
            async for event in agent.stream(prompt, deltas=stream):  # type: ignore[arg-type]
                last = event
            assert not provider.refusals
            records = await agent.store.read(last.result.session)
            changed = [r.event for r in records if isinstance(r.event, ViewChanged)]
            return last.result, provider.exchanges[-1].body.decode(), changed

    result, body, changed = asyncio.run(story())
    assert (result.stop, result.text) == ("done", "Seen.")
    taken = what != "audio" or wire == "gemini"
    assert (media.data in body) is taken
    assert (f"[audio {media.name} left out: this model takes no audio]" in body) is not taken
    assert len(changed) == (0 if taken else 1)
