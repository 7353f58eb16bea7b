"""Bearer tokens of a file: only those of the file, only until they expire or their lines are removed."""

import asyncio
import json
import os
import time
import tomllib

import pytest
from starlette.requests import Request

from bridle import MisuseError
from bridle.serve import TokenFile
from bridle.serve.identifiers.token_file import make_token
from tests.suite.command import bridle

HEADERS = "authorization", "x-api-key", "x-goog-api-key", "api-key"


def make_request(token, header="authorization"):
    value = f"Bearer {token}" if header == "authorization" else token
    return Request({"type": "http", "headers": [(header.encode(), value.encode("latin-1"))]})


def write(path, **entries):
    lines = []
    for name, (entry, more) in entries.items():
        lines += [f"[tokens.{name}]", f'id = "{entry.id}"', f'hash = "{entry.hash}"']
        lines += [
            f'tenant = "{entry.tenant}"',
            f"rights = {json.dumps(entry.rights)}",
            f'sessions = "{entry.sessions}"',
        ]
        lines += [more]
    path.write_text("\n".join(lines))


def find(identify, token, header="authorization"):
    return asyncio.run(identify(make_request(token, header)))


@pytest.fixture
def place(tmp_path):
    return tmp_path / "tokens.toml"


def test_a_token_gives_the_identity_of_its_line(place):
    token, entry = make_token("acme", ("approve", "read"), "tenant")
    other, second = make_token()
    write(place, alice=(entry, ""), robot=(second, 'caller = "nightly batch"'))
    identify = TokenFile(place)
    for header in HEADERS:
        found = find(identify, token, header)
        assert (found.caller, found.tenant, found.sessions) == ("alice", "acme", "tenant")
        assert found.rights == {"read", "approve"}
    assert find(identify, other).caller == "nightly batch"
    assert find(identify, other).rights == {"read", "prompt"}


def test_other_tokens_prove_nothing(place):
    token, entry = make_token()
    stranger, _ = make_token()
    write(place, alice=(entry, ""))
    identify = TokenFile(place)
    assert find(identify, token) is not None
    body = token.removeprefix("bridle_")
    wrong = [
        "", "bridle_", stranger, token[:-1], token + "x", token.upper(), body, f"bridle_{entry.id}_", entry.hash,
        f"bridle_{entry.id}_{entry.hash}", f"bridle_{entry.id}_{stranger.rpartition('_')[2]}", token + "y" * 1000,
        "bridle_\xe9_\xe9",
    ]  # fmt: skip
    for each in wrong:
        assert find(identify, each) is None, each


def test_the_file_holds_no_token(place):
    token, entry = make_token()
    write(place, alice=(entry, ""))
    secret = token.removeprefix("bridle_").partition("_")[2]
    assert secret not in place.read_text() and len(secret) >= 43


def test_a_token_ends_when_it_expires(place, monkeypatch):
    token, entry = make_token()
    write(place, alice=(entry, "expires = 2040-01-01T00:00:00Z"))
    identify = TokenFile(place)
    assert find(identify, token) is not None
    monkeypatch.setattr(time, "time", lambda: 2_208_988_800.0)
    assert find(identify, token) is None


def test_a_removed_line_takes_its_token_out_of_use_at_once(place):
    (first, one), (second, two) = make_token(), make_token()
    write(place, alice=(one, ""), bob=(two, ""))
    identify = TokenFile(place)
    assert find(identify, first) and find(identify, second)
    write(place, bob=(two, ""))
    assert find(identify, first) is None and find(identify, second) is not None


@pytest.mark.parametrize("broken", ["", "[tokens", "[tokens.x]\nid = 1", None])
def test_a_file_that_cannot_be_read_lets_nobody_in(place, broken):
    token, entry = make_token()
    write(place, alice=(entry, ""))
    identify = TokenFile(place)
    assert find(identify, token)
    if broken is None:
        place.unlink()
    else:
        place.write_text(broken)
    for _ in range(2):
        with pytest.raises(MisuseError):
            find(identify, token)
    write(place, alice=(entry, ""))
    assert find(identify, token)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('rights = ["everything"]', "rights"),
        ('hash = "00"', "id and hash"),
        ("expires = 2040-01-01T00:00:00", "time zone"),
        ('caller = "wire client"', "cannot be the name"),
        ('sessions = "any"', "sessions"),
        ("admin = true", "admin"),
    ],
)
def test_a_mistake_in_the_file_is_named(place, line, problem):
    _, entry = make_token()
    given = {"id": f'id = "{entry.id}"', "hash": f'hash = "{entry.hash}"', line.split()[0]: line}
    place.write_text("[tokens.alice]\n" + "\n".join(given.values()))
    with pytest.raises(MisuseError, match=problem):
        TokenFile(place)


def test_two_lines_with_one_id_are_refused(place):
    _, entry = make_token()
    write(place, alice=(entry, ""), bob=(entry, ""))
    with pytest.raises(MisuseError, match="make a token for each"):
        TokenFile(place)


@pytest.mark.skipif(os.name != "posix", reason="rights of files are those of POSIX")
def test_a_file_that_everyone_can_write_is_refused(place):
    token, entry = make_token()
    write(place, alice=(entry, ""))
    identify = TokenFile(place)
    place.chmod(0o646)
    with pytest.raises(MisuseError, match="chmod o-w"):
        TokenFile(place)
    with pytest.raises(MisuseError, match="chmod o-w"):
        find(identify, token)


def test_the_command_makes_a_line_that_works(place):
    words = ("--tenant", "acme", "--rights", "read,approve", "--sessions", "tenant")
    shown = bridle("serve", "--new-token", "alice b", *words).out
    token = shown.splitlines()[0].rpartition(" ")[2]
    place.write_text(shown[shown.index("[tokens") :])
    assert list(tomllib.loads(place.read_text())["tokens"]) == ["alice b"]
    found = find(TokenFile(place), token)
    assert (found.caller, found.tenant, found.sessions) == ("alice b", "acme", "tenant")
    made = json.loads(bridle("serve", "--new-token", "bob", "--json").out)
    assert made["token"].startswith("bridle_") and made["entry"]["id"] in made["token"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--new-token", "a", "--rights", "all"), "there is no right 'all'"),
        (("--tokens", "none.toml"), "none.toml"),
        (("--tokens", "none.toml", "--token", "t" * 20), "not both"),
        (("--tokens", "none.toml", "--mcp"), "--mcp"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path, words, problem):
    done = bridle("serve", *words, cwd=tmp_path)
    assert done.code == 2 and problem in done.err and done.err.count("\n") == 1, done.err
