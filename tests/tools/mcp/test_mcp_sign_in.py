"""Tokens stay with their server, and a sign-in works in the middle of a call, after a restart and beside others."""

import asyncio
import json
import socket
from typing import Any

import httpx2
import pytest

from bridle import Agent
from bridle.mcp import OAuth, server
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools.mcp.server_settings import SignInFailed
from bridle.tools.mcp.sign_in_hosts import SignInHosts
from bridle.values.errors import MisuseError
from tests.tools.mcp.protected_server import Browser, control, read_secrets, start_protected_server


async def call(source):
    """The results of a run that calls the tool once."""
    agent = Agent(scripted(call_reply((f"{source.prefix}secret", {})), "done"), tools=[source])
    result = await agent.run("go")
    return [each for message in result.messages for each in message.results]


def use(url, oauth, name="p"):
    async def main():
        source = server(url, name=name, auth=oauth)
        try:
            (result,) = await call(source)
            return result.text
        finally:
            await source.close()

    return asyncio.run(main())


class Storage:
    """A storage of a user for many servers."""

    def __init__(self):
        self.texts = {}

    async def read(self, server):
        return self.texts.get(server)

    async def write(self, server, text):
        self.texts[server] = text


@pytest.mark.parametrize("kind", ["file", "storage"])
def test_a_token_is_sent_only_to_the_server_that_it_is_kept_for(tmp_path, kind):
    shared = tmp_path / "tokens.json" if kind == "file" else Storage()
    with start_protected_server() as one, start_protected_server() as other:
        for url in (one, other, one, other):
            browser = Browser()
            assert use(url, OAuth(tokens=shared, open_url=browser.open)) == "the treasure"
        assert browser.visits == []
        seen = [{each for each in control(url, "seen") if "Bearer" in each} for url in (one, other)]
    assert seen[0] and seen[1] and not seen[0] & seen[1]


def test_a_storage_that_mixes_servers_up_is_noticed(tmp_path):
    class Mixed(Storage):
        async def read(self, server):
            return next(iter(self.texts.values()), None)

    storage = Mixed()
    with start_protected_server() as one, start_protected_server() as other:
        use(one, OAuth(tokens=storage, open_url=Browser().open))

        async def main():
            return await server(other, name="q", auth=OAuth(tokens=storage)).list_tools()

        assert "belong to another server" in asyncio.run(main()).error
        assert not control(other, "seen")


def test_a_file_that_names_no_server_is_refused(tmp_path):
    tokens: Any = tmp_path / "tokens.json"
    tokens.write_text('{"tokens": {"access_token": "access-of-somebody"}}')
    tokens.chmod(0o600)
    with start_protected_server() as url:

        async def main():
            return await server(url, name="p", auth=OAuth(tokens=tokens)).list_tools()

        assert "it is no list of servers" in asyncio.run(main()).error
        assert not control(url, "seen")
    with pytest.raises(MisuseError, match="must be a path"):
        OAuth(tokens=object())  # type: ignore[arg-type]


@pytest.mark.parametrize("is_said", [True, False], ids=["expiry said", "expiry not said"])
def test_a_token_that_ended_is_renewed_after_a_restart(tmp_path, is_said):
    tokens, browser = tmp_path / "tokens.json", Browser()
    with start_protected_server() as url:
        assert use(url, OAuth(tokens=tokens, open_url=browser.open)) == "the treasure"
        first = read_secrets(tokens)
        kept = json.loads(tokens.read_text())
        record = json.loads(kept["servers"][url])
        assert record["expires_at"] is not None
        record["expires_at"] = 1.0 if is_said else None  # as it is after an hour
        tokens.write_text(json.dumps({"servers": {url: json.dumps(record)}}))
        control(url, "revoke_access")
        assert use(url, OAuth(tokens=tokens, open_url=browser.open)) == "the treasure"
        second = read_secrets(tokens)
    assert len(browser.visits) == 1 and not set(first) & set(second)


def run_with_revoked_tokens(url, oauth, *steps):
    """Connect, then before each call do a step; the results."""

    async def main():
        source = server(url, name="p", auth=oauth, connect_timeout=5)
        assert not (await source.list_tools()).error
        results = []
        for step in steps:
            for name in step:
                await asyncio.to_thread(control, url, name)
            results += await call(source)
        await source.close()
        return results

    return asyncio.run(main())


def test_a_person_signs_in_in_the_middle_of_a_call(tmp_path):
    browser = Browser()
    with start_protected_server() as url:
        oauth = OAuth(tokens=tmp_path / "tokens.json", open_url=browser.open)
        results = run_with_revoked_tokens(url, oauth, ["revoke_all"], [], ["revoke_access"])
    assert [(each.outcome, each.text) for each in results] == [("ok", "the treasure")] * 3
    assert len(browser.visits) == 2


def test_a_call_whose_sign_in_fails_was_not_run_and_the_connection_lives(tmp_path):
    browser = Browser()
    with start_protected_server() as url:
        oauth = OAuth(tokens=tmp_path / "tokens.json", open_url=browser.open)
        results = run_with_revoked_tokens(url, oauth, ["revoke_all", "refuse"], ["accept"])
    assert [each.outcome for each in results] == ["error", "ok"]
    assert "access_denied" in results[0].text and "The call was not run" in results[0].text


def test_a_callback_with_another_state_changes_nothing(tmp_path):
    browser, answers = Browser(), []

    async def open_url(url):
        wanted = httpx2.URL(url).params
        callback, state = wanted["redirect_uri"], wanted["state"]
        async with httpx2.AsyncClient() as client:
            for query in ("", "?code=evil", "?code=evil&state=", f"?code=evil&state={state}x", "?error=access_denied",
                          "?error=access_denied&state=wrong", "?code=evil&state=%C3%A9"):  # fmt: skip
                answers.append((await client.get(f"{callback}{query}")).status_code)
        await browser.open(url)

    with start_protected_server() as url:
        assert use(url, OAuth(tokens=tmp_path / "t.json", open_url=open_url)) == "the treasure"
    assert answers == [400] * 7 and browser.pages == ["You are signed in. You can close this page."]


def find_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("port", ["fixed", "free"])
def test_sign_ins_at_the_same_time_do_not_disturb_one_another(tmp_path, port):
    given = find_port() if port == "fixed" else 0
    shared = tmp_path / "tokens.json"

    async def main(urls):
        sources = [
            server(url, name=f"p{at}", auth=OAuth(tokens=shared, port=given, open_url=Browser().open))
            for at, url in enumerate(urls)
        ]
        found = await asyncio.gather(*(source.list_tools() for source in sources))
        for source in sources:
            await source.close()
        return [each.error for each in found]

    with start_protected_server() as one, start_protected_server() as two, start_protected_server() as three:
        assert asyncio.run(main((one, two, three))) == ["", "", ""]
    assert len(json.loads(shared.read_text())["servers"]) == 3


def test_a_registered_port_that_is_in_use_is_replaced(tmp_path):
    tokens, browser = tmp_path / "tokens.json", Browser()
    with start_protected_server() as url:
        use(url, OAuth(tokens=tokens, open_url=browser.open))
        record = json.loads(json.loads(tokens.read_text())["servers"][url])
        port = httpx2.URL(record["client"]["redirect_uris"][0]).port
        control(url, "revoke_all")
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
            assert use(url, OAuth(tokens=tokens, open_url=browser.open)) == "the treasure"


PUBLIC, OTHER = "https://93.184.216.34/mcp", "https://93.184.215.14/x"
SPELLINGS = ("0.0.0.0", "[::]", "127.1", "[fe80::1]", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16")
"""This machine and places of credentials, beside a server in a private network."""
PREFIXES = ("::ffff:", "64:ff9b::", "::", "::ffff:0:")
INNER = ("169.254.169.254", "127.0.0.1", "0.0.0.0", "100.100.100.200")
"""The same inside of other addresses."""
HOSTS = [
    (PUBLIC, OTHER, True),
    (PUBLIC, "https://93.184.216.34/anything", True),
    (PUBLIC, "http://93.184.215.14/x", False),
    (PUBLIC, "https://user@93.184.215.14/x", False),
    (PUBLIC, "https://127.0.0.1/x", False),
    (PUBLIC, "https://localhost/x", False),
    (PUBLIC, "https://[::1]/x", False),
    (PUBLIC, "https://10.0.0.1/x", False),
    (PUBLIC, "https://[::ffff:10.0.0.1]/x", False),
    (PUBLIC, "https://[64:ff9b::a00:1]/x", False),
    (PUBLIC, "https://169.254.169.254/latest", False),
    (PUBLIC, "https://0.0.0.0/x", False),
    (PUBLIC, "https://absent.invalid/x", False),
    ("http://127.0.0.1:1/mcp", "http://127.0.0.1:2/x", True),
    ("http://127.0.0.1:1/mcp", "https://10.0.0.1/x", True),
    ("http://127.0.0.1:1/mcp", "http://169.254.169.254/latest", False),
    ("http://127.0.0.1:1/mcp", "http://93.184.215.14/x", False),
    ("https://10.0.0.1/mcp", "https://10.0.0.2/x", True),
    ("https://10.0.0.1/mcp", "http://10.0.0.2/x", False),
    ("https://10.0.0.1/mcp", "https://127.0.0.1/x", False),
    ("https://10.0.0.1/mcp", "https://169.254.169.254/x", False),
    ("http://169.254.1.1/mcp", "http://169.254.1.1:8080/x", True),
    ("https://10.0.0.1/mcp", "https://[::ffff:10.0.0.2]/x", True),
    ("http://127.0.0.1:1/mcp", "http://0.0.0.0:2/x", True),
    *(("https://10.0.0.1/mcp", f"https://{host}/x", False) for host in SPELLINGS),
    *(
        ("https://10.0.0.1/mcp", f"https://[{prefix}{inner}]/x", False)
        for prefix in PREFIXES
        for inner in INNER
    ),
    ("https://10.0.0.1/mcp", "https://[2002:a9fe:a9fe::1]/x", False),
    ("https://10.0.0.1/mcp", "https://[2002:7f00:1::1]/x", False),
]


@pytest.mark.parametrize(("at", "to", "is_allowed"), HOSTS)
def test_a_sign_in_reaches_no_host_that_the_server_must_not_name(at, to, is_allowed):
    async def main():
        hosts = SignInHosts(at)
        return await hosts.pin(httpx2.Request("GET", to))

    if is_allowed:
        asyncio.run(main())
    else:
        with pytest.raises(SignInFailed):
            asyncio.run(main())


def test_the_address_that_was_checked_is_the_one_that_is_used(monkeypatch):
    answers = [("93.184.215.14", 443), ("93.184.216.34", 443), ("127.0.0.1", 443)]

    async def main():
        async def look_up(host, port, **_):
            return [(0, 0, 0, "", answers.pop(0))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        return await SignInHosts("https://mcp.example/mcp").pin(
            httpx2.Request("GET", "https://auth.example:8443/x")
        )

    made = asyncio.run(main())
    assert (made.url.host, made.url.port) == ("93.184.215.14", 8443)
    assert made.headers["Host"] == "auth.example:8443" and made.extensions["sni_hostname"] == "auth.example"


def test_discovery_that_leads_elsewhere_is_refused(tmp_path):
    with start_protected_server("lead") as url:

        async def main():
            oauth = OAuth(tokens=tmp_path / "t.json", open_url=Browser().open)
            return await server(url, name="p", auth=oauth).list_tools()

        assert "'169.254.169.254', which is refused" in asyncio.run(main()).error
