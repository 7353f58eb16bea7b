"""Sign-in to a server that the `mcp` package protects with OAuth, and what must not leak on the way."""

import asyncio
import json
import logging
import stat

import pytest

from bridle import Agent
from bridle.mcp import OAuth, server
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.errors import MisuseError
from tests.tools.mcp.protected_server import Browser, read_secrets, start_protected_server


def call_secret(url, auth, store=None):
    """The text of a call of the tool, and the error of the listing."""

    async def main():
        source = server(url, name="p", auth=auth)
        agent = Agent(scripted(call_reply(("mcp__p__secret", {})), "done"), tools=[source], store=store)
        result = await agent.run("go", "s")
        listing = await source.list_tools()
        await source.close()
        (text,) = [each.text for message in result.messages for each in message.results]
        return text, listing.error

    return asyncio.run(main())


def test_a_person_signs_in_once_and_the_tokens_are_kept_in_a_private_file(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    tokens, store, browser = tmp_path / "deep" / "tokens.json", tmp_path / "log.db", Browser()
    with start_protected_server() as url:
        text, error = call_secret(url, OAuth(tokens=tokens, open_url=browser.open), store)
        assert (text, error) == ("the treasure", "")
        assert browser.pages == ["You are signed in. You can close this page."]
        assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
        text, _ = call_secret(url, OAuth(tokens=tokens, open_url=browser.open))
        assert text == "the treasure" and len(browser.visits) == 1
    found = read_secrets(tokens)
    assert all(found) and not any(each in caplog.text for each in found)
    recorded = b"".join(file.read_bytes() for file in tmp_path.glob("log.db*"))
    assert not any(each.encode() in recorded for each in found)


def test_tokens_go_to_a_storage_of_the_user():
    class Storage:
        def __init__(self):
            self.texts = {}

        async def read(self, server):
            return self.texts.get(server)

        async def write(self, server, text):
            self.texts[server] = text

    storage = Storage()
    with start_protected_server() as url:
        assert call_secret(url, OAuth(tokens=storage, open_url=Browser().open))[0] == "the treasure"
    (record,) = map(json.loads, storage.texts.values())
    assert record["tokens"]["access_token"].startswith("access-") and record["client"]["client_id"]


def test_an_expired_token_is_refreshed_without_a_person(tmp_path):
    tokens, browser = tmp_path / "tokens.json", Browser()
    with start_protected_server("short") as url:
        assert call_secret(url, OAuth(tokens=tokens, open_url=browser.open))[0] == "the treasure"
        assert call_secret(url, OAuth(tokens=tokens, open_url=browser.open))[0] == "the treasure"
    assert len(browser.visits) <= 2


def test_a_refused_sign_in_and_one_that_never_comes_are_errors_in_time(tmp_path):
    with start_protected_server("refuse") as url:
        _, error = call_secret(url, OAuth(tokens=tmp_path / "a.json", open_url=Browser().open))
        assert "access_denied" in error

    async def look_away(url):
        pass

    with start_protected_server() as url:
        _, error = call_secret(url, OAuth(tokens=tmp_path / "b.json", open_url=look_away, timeout=0.5))
        assert "no sign-in within 0.5 seconds" in error


def test_a_token_in_a_bad_answer_reaches_neither_the_error_nor_the_log(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    with start_protected_server("leak") as url:
        _, error = call_secret(url, OAuth(tokens=tmp_path / "a.json", open_url=Browser().open))
    assert "the sign-in failed (OAuthTokenError)" in error
    assert "leaked" not in error and "leaked" not in caplog.text


def test_a_token_file_that_others_can_read_is_refused(tmp_path):
    tokens = tmp_path / "tokens.json"
    tokens.write_text("{}")
    tokens.chmod(0o644)
    with start_protected_server() as url:
        _, error = call_secret(url, OAuth(tokens=tokens, open_url=Browser().open))
    assert "other users can access" in error


def test_wrong_settings_are_refused_at_construction():
    for wrong in (
        lambda: OAuth(port=-1),
        lambda: OAuth(timeout=0),
        lambda: server("https://a.example", auth="token"),
    ):
        with pytest.raises(MisuseError):
            wrong()
    assert "abc" not in repr(server("https://a.example", headers={"Authorization": "abc"}))
    assert repr(OAuth(tokens="/x/abc")) == repr(OAuth())
