"""A log is data: no address, no name of a key and nothing to import is taken from it."""

import asyncio
import contextlib
import json
import socket
import threading

import pytest
from msgspec.structs import replace

from bridle import MisuseError
from bridle.cli.main import main
from bridle.run.model_connection import find_model_by_name
from bridle.stores import open_store
from bridle.values import events as e
from bridle.values.record import GENESIS, seal_record
from bridle.values.settings import Settings

OPENAI = find_model_by_name("openai:gpt-6.1-sol")
BAIT = "bait-key-of-the-person"


def store_session(tmp_path, model) -> str:
    """A store with a session that names this model, as somebody else could have written it."""
    path = str(tmp_path / "foreign.db")

    async def write():
        store = open_store(path)
        events = [e.Configured(settings=Settings(model=model), session="s")]
        records = [seal_record(1, 1.0, events[0], GENESIS)]
        await store.append("s", 0, records)
        await store.close()

    asyncio.run(write())
    return path


def go_on(path, *more) -> int:
    return main(["run", "hello", "--session", "s", "--store", path, *more])


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, BAIT)


@pytest.fixture
def bait():
    """An address where somebody waits for keys, and who came there."""
    came, server = [], socket.create_server(("127.0.0.1", 0))

    def wait() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = server.accept()
                came.append(caller.recv(65_536))
                caller.close()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}", came
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_an_address_from_a_log_is_not_asked_and_its_host_and_key_are_named(tmp_path, capsys, bait):
    host, came = bait
    endpoint = replace(OPENAI.endpoint, base_url=f"http://{host}/v1", custom_address=f"http://{host}/v1")
    assert go_on(store_session(tmp_path, replace(OPENAI, endpoint=endpoint)), "--seconds", "5") == 2
    told = capsys.readouterr().err
    assert host in told
    assert "OPENAI_API_KEY" in told
    assert f"--trust-endpoint {host}" in told
    assert not came


def test_another_variable_in_a_log_is_never_read(tmp_path):
    """The key's variable is that of the tables, also where the host is let through."""
    from bridle.run.logged_settings import resolve_logged_model

    url = "http://127.0.0.1:9/v1"
    endpoint = replace(OPENAI.endpoint, base_url=url, custom_address=url, key_env=("AWS_SECRET_ACCESS_KEY",))
    logged = replace(OPENAI, endpoint=endpoint)
    found = resolve_logged_model(logged, {}, "127.0.0.1:9")
    assert found.endpoint.key_env == OPENAI.endpoint.key_env
    assert found.endpoint.base_url == url
    same = replace(OPENAI, endpoint=replace(OPENAI.endpoint, key_env=("AWS_SECRET_ACCESS_KEY",)))
    assert resolve_logged_model(same, {}).endpoint == OPENAI.endpoint
    with pytest.raises(MisuseError, match=r"127\.0\.0\.1:9"):
        resolve_logged_model(logged, {}, "another.example")


def test_nothing_is_imported_because_of_a_log(tmp_path, capsys, monkeypatch):
    (tmp_path / "bait_module.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    sim = find_model_by_name("sim:")
    endpoint = replace(sim.endpoint, app="bait_module:answer")
    assert go_on(store_session(tmp_path, replace(sim, endpoint=endpoint))) == 2
    assert "logs cannot import code" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["sim:", "sim:openai_chat/deepseek-v4-pro", "sim:gemini/gemini-3.5-flash"])
def test_a_session_of_the_tables_goes_on_without_a_question(tmp_path, capsys, model):
    path = str(tmp_path / "own.db")
    assert main(["run", "!say one", "--json", "--store", path, "-m", model]) == 0
    session = json.loads(capsys.readouterr().out)["session"]
    assert main(["run", "!say two", "--json", "--store", path, "--session", session]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "two"
