"""A server over standard input and output: listed, called, dying, hanging, lying; nothing is left behind."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import bridle
from bridle import MisuseError, OutcomeUnknown
from bridle.errors import BadTool
from bridle.mcp import server
from bridle.tools.mcp.names import make_tool_name
from bridle.tools.mcp.server_settings import ToolRefusal
from bridle.values.message import Media
from tests.tools.mcp.mcp_servers import (
    CONTEXT,
    SCRIPT,
    hostile_server,
    list_pids,
    list_session_members,
    wait_until_gone,
)


def test_a_server_is_listed_and_called():
    async def main():
        source = hostile_server("greeting")
        listing = await source.list_tools()
        assert not listing.error and not listing.notes
        assert [tool.spec.name for tool in listing.tools][:2] == ["mcp__h__echo", "mcp__h__write"]
        (part,) = await listing.tools[0].run({"a": [1, "ü"]}, CONTEXT)
        assert part.text == '{"a": [1, "\\u00fc"]}'

    asyncio.run(main())


def test_nothing_runs_before_it_is_needed(tmp_path):
    hostile_server(f"pid={tmp_path / 'pids'}")
    assert list_pids(tmp_path / "pids") == []


def test_importing_the_package_does_not_import_the_protocol():
    done = subprocess.run(
        [sys.executable, "-c", "import bridle, sys; bridle.mcp.server('x'); print('mcp' in sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"
    assert bridle.mcp.server is server


def test_the_process_tree_ends_with_the_event_loop(tmp_path):
    pids = tmp_path / "pids"

    async def main():
        source = hostile_server(f"pid={pids}", "child")
        await source.list_tools()
        assert len(list_session_members(list_pids(pids))) == 2  # the server, and a child that ignores TERM

    asyncio.run(main())
    assert wait_until_gone(list_pids(pids)) == []


def test_a_service_that_left_the_session_ends_with_its_server(tmp_path):
    """However the server ends: by itself, or with the loop."""
    path = tmp_path / "service"

    async def main():
        source = hostile_server(f"service={path}")
        listing = await source.list_tools()
        first = list_pids(path)
        assert len(list_session_members(first)) == 1
        path.unlink()
        with pytest.raises(OutcomeUnknown):
            await next(tool for tool in listing.tools if tool.spec.name == "mcp__h__die").run({}, CONTEXT)
        await listing.tools[0].run({}, CONTEXT)
        assert wait_until_gone(first) == [] and len(list_session_members(list_pids(path))) == 1

    asyncio.run(main())
    assert wait_until_gone(list_pids(path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_process_tree_ends_with_a_killed_process(tmp_path, how):
    pids, service = tmp_path / "pids", tmp_path / "service"
    program = (
        "import asyncio, sys; from bridle.mcp import server\n"
        "async def main():\n"
        f"    source = server([sys.executable, {str(SCRIPT)!r}, 'child', 'pid={pids}', 'service={service}'], name='h')\n"
        "    await source.list_tools(); print('up', flush=True); await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as running:
        assert running.stdout.readline() == b"up\n"
        running.send_signal(how)
        running.wait()
    assert len(list_pids(pids)) == len(list_pids(service)) == 1
    assert wait_until_gone(list_pids(pids)) == wait_until_gone(list_pids(service)) == []


def test_a_server_that_dies_in_a_call_leaves_it_in_doubt_and_comes_back():
    async def main():
        source = hostile_server(env={"TOKEN": "secret-token-123"})
        with pytest.raises(OutcomeUnknown) as caught:
            await source.call("mcp__h__die", {}, CONTEXT)
        text = str(caught.value)
        assert "exit code 3" in text and "about to die" in text
        assert "secret-token-123" not in text and "\x1b" not in text
        assert (await source.call("mcp__h__echo", {}, CONTEXT))[0].text == "{}"

    asyncio.run(main())


def test_a_death_counts_once_however_many_calls_were_in_progress():
    async def main():
        source = hostile_server()
        await source.list_tools()
        names = ["mcp__h__die", *["mcp__h__slow"] * 8]
        ended = await asyncio.gather(
            *(source.call(name, {}, CONTEXT) for name in names), return_exceptions=True
        )
        assert [type(each) for each in ended] == [OutcomeUnknown] * 9
        assert (await source.call("mcp__h__echo", {}, CONTEXT))[0].text == "{}"

    asyncio.run(main())


def test_a_result_that_came_before_the_server_died_counts():
    async def main():
        source = hostile_server()
        for _ in range(20):
            try:
                (part,) = await source.call("mcp__h__die_done", {}, CONTEXT)
            except OutcomeUnknown:
                continue  # the call went to the server that was about to exit
            assert part.text == "done before it died"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("mode", "options", "words"),
    [
        ("die_at_start", {}, "exit code 7; standard error: cannot start: no licence"),
        ("hang_at_start", {"connect_timeout": 0.5}, "no answer within 0.5 seconds"),
        ("hang_list", {"connect_timeout": 0.5}, "does not list its tools in time"),
    ],
)
def test_a_server_that_cannot_be_used_says_why(tmp_path, mode, options, words):
    pids = tmp_path / "pids"

    async def main():
        source = hostile_server(mode, f"pid={pids}", **options)
        listing = await source.list_tools()
        assert listing.tools == () and words in listing.error
        assert listing.error.startswith("The MCP server 'h' cannot be used: ")
        with pytest.raises(ToolRefusal, match="The call was not run"):
            await source.call("mcp__h__echo", {}, CONTEXT)

    asyncio.run(main())
    assert wait_until_gone(list_pids(pids)) == []


def test_cancelling_while_a_server_does_not_answer_ends_its_process_at_once(tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    monkeypatch.setattr("bridle.tools.mcp.connection.CLOSE_SECONDS", 3600.0)

    async def main():
        source = hostile_server("mute", f"pid={pids}", connect_timeout=3600)
        listing = asyncio.create_task(source.list_tools())
        while not list_pids(pids):
            await asyncio.sleep(0.01)
        listing.cancel()
        done, _ = await asyncio.wait((listing,), timeout=60)
        assert done and listing.cancelled()
        assert wait_until_gone(list_pids(pids)) == []

    asyncio.run(main())


def test_a_program_that_does_not_exist_is_named():
    async def main():
        listing = await server("no-such-program-anywhere --x").list_tools()
        assert "No such file or directory: 'no-such-program-anywhere'" in listing.error

    asyncio.run(main())


def test_calls_share_the_connection_and_a_cancelled_one_harms_no_other():
    async def main():
        source = hostile_server()
        calls = [
            asyncio.create_task(source.call("mcp__h__slow", {"seconds": 0.02}, CONTEXT)) for _ in range(10)
        ]
        await asyncio.sleep(0)
        await source.list_tools()
        calls[3].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in done].count(asyncio.CancelledError) == 1
        assert all(each[0].text == "slow" for place, each in enumerate(done) if place != 3)

    asyncio.run(main())


def test_garbage_and_huge_results_pass():
    async def main():
        source = hostile_server()
        assert (await source.call("mcp__h__noise", {}, CONTEXT))[0].text == "after the noise"
        assert len((await source.call("mcp__h__huge", {"size": 8_000_000}, CONTEXT))[0].text) == 8_000_000

    asyncio.run(main())


def test_a_message_without_end_ends_the_connection_only(monkeypatch):
    async def main():
        source = hostile_server()
        await source.list_tools()
        monkeypatch.setattr("bridle.tools.mcp.stdio.MESSAGE_BYTES_MAX", 1_000_000)
        with pytest.raises(OutcomeUnknown, match="a message of more than 1,000,000 bytes"):
            await source.call("mcp__h__huge", {"size": 8_000_000}, CONTEXT)
        assert (await source.call("mcp__h__echo", {}, CONTEXT))[0].text == "{}"

    asyncio.run(main())


def test_an_error_of_a_tool_is_an_error_with_its_text():
    async def main():
        source = hostile_server()
        with pytest.raises(ToolRefusal, match="it did not work"):
            await source.call("mcp__h__fail", {}, CONTEXT)

    asyncio.run(main())


def test_results_become_parts():
    async def main():
        text, picture, broken, link, inside, binary, structured = await hostile_server().call(
            "mcp__h__rich", {}, CONTEXT
        )
        assert text.text == "hello"
        assert isinstance(picture, Media) and picture.media_type == "image/png"
        assert broken.text.startswith("[image that cannot be shown: ")
        assert link.text == "[resource link] a.txt: file:///a.txt (text/plain)"
        assert inside.text == "[resource x://y]\ninside"
        assert binary.text == "[resource x://z: 3 bytes of application/zip, not shown]"
        assert structured.text == '{"a":1}'

    asyncio.run(main())


def test_definitions_are_cleaned_and_what_was_changed_is_noted():
    async def main():
        listing = await hostile_server("evil", trust=False).list_tools()
        specs = {tool.spec.name: tool.spec for tool in listing.tools}
        lying = specs["mcp__h__safe_looking"]
        assert lying.effect == "write" and lying.on_unknown == "report"
        assert "\\u202e\\u200b\\u001b[2J" in lying.description and len(lying.description) < 4_100
        assert "mcp__h__broken" not in specs
        assert all(len(name) <= 64 for name in specs) and make_tool_name("h", "n" * 100) in specs
        assert "mcp__h__odd" not in specs and "mcp__h__odd_icons" in specs
        left_out, odd, cleaned, doubled = listing.notes
        assert odd == "the tool 'odd' is left out: 'properties' of its schema is invalid"
        assert "written as escapes and was cut from 9,038 to 4,000 characters" in cleaned
        assert left_out == "the tool 'broken' is left out: its schema does not describe an object"
        assert doubled == "the tool 'echo' is listed twice; the first one is used"
        trusted = {
            tool.spec.name: tool.spec
            for tool in (await hostile_server("evil", trust=True).list_tools()).tools
        }
        assert trusted["mcp__h__echo"].effect == "read" and trusted["mcp__h__echo"].on_unknown == "retry"
        assert trusted["mcp__h__write"].effect == "write"

    asyncio.run(main())


def test_tools_can_be_limited():
    async def main():
        listing = await hostile_server(tools=["echo", "die*"]).list_tools()
        assert [tool.spec.name for tool in listing.tools] == [
            "mcp__h__echo",
            "mcp__h__die",
            "mcp__h__die_done",
        ]

    asyncio.run(main())


def test_names_are_valid_everywhere_and_unique():
    assert make_tool_name("s", "get-item_2") == "mcp__s__get-item_2"
    names = [
        make_tool_name("server", tool)
        for tool in ("a b", "a_b", "a/b", "", "x" * 60, "x" * 61, "ü", "\ud800")
    ]
    assert len(set(names)) == len(names) and all(len(name) <= 64 and name.isascii() for name in names)
    assert names == [
        make_tool_name("server", tool)
        for tool in ("a b", "a_b", "a/b", "", "x" * 60, "x" * 61, "ü", "\ud800")
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("npx -y @modelcontextprotocol/server-everything", "everything"),
        ("uvx mcp-server-time --local-timezone UTC", "time"),
        ("python3 tools/my_server.py", "my"),
        ("docker run -i mcp/fetch", "fetch"),
        ("https://mcp.linear.app/mcp", "linear"),
        ("http://127.0.0.1:8000/mcp", "127-0-0-1"),
    ],
)
def test_servers_have_names(target, name):
    assert server(target).name == name


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("",), {}, "a command or an http"),
        (("'open",), {}, "cannot be split into words"),
        (("x",), {"name": "a__b"}, "not a name for an MCP server"),
        (("x",), {"name": "a" * 25}, "not a name for an MCP server"),
        (("x",), {"headers": {"A": "b"}}, "for servers at an address"),
        (("https://x",), {"env": {"A": "b"}}, "started by a command"),
        (("https://x",), {"transport": "stdio"}, "does not fit"),
        (("x",), {"timeout": 0}, "timeout must be"),
        (("x",), {"connect_timeout": -1}, "connect_timeout must be"),
    ],
)
def test_wrong_settings_are_refused_at_once(arguments, options, words):
    with pytest.raises(MisuseError, match=words):
        server(*arguments, **options)


def test_two_servers_of_one_name_are_refused():
    with pytest.raises(BadTool, match="two servers have the name 'h'"):
        bridle.Agent("sim:", tools=[hostile_server(), hostile_server()])


def test_secrets_are_not_shown():
    source = server("https://x.example/mcp", headers={"Authorization": "Bearer abcdefgh"})
    assert "abcdefgh" not in repr(source) + repr(vars(source))
    assert Path(SCRIPT).exists()
