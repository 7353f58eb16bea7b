"""The rules against recorded traffic: what a provider took we take, what it refused we refuse in its words.

Every recording that is faithful, of a server whose manners we claim to know, is put to that server's rules.
A request that was answered must pass.  A request that was refused with words that one of the rules has must
be refused with that status and exactly those words.  Words that no rule has are no failure: they are counted.
Each exception is listed here with its reason.

Models that are no longer in the tables are judged by what they could do then.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from bridle.providers.catalogue import find_model, known_models
from bridle.sim.families import lay_out_for_family, list_families, list_rules
from bridle.sim.rules.engine import ProviderRule, RawRequest, find_violation
from bridle.sim.rules.profiles import ALTERNATION, COMPATIBLE, FIRST_PARTY, LOCAL, MUST_ECHO, SHORT_IDS, STRIP
from bridle.testing.wire.check_recording import TrafficRecord
from bridle.values.errors import UnknownModel
from bridle.values.model import Abilities
from tests.sim.rules.rule_examples import find_examples
from tests.wire.wire import corpus, needs_recordings

pytestmark = needs_recordings

ACCEPTED_SHARE_MIN = 0.99

SERVERS: dict[str, dict[str, str]] = {
    "anthropic": {"anthropic": FIRST_PARTY},
    "bedrock_converse": {"bedrock": FIRST_PARTY},
    "gemini": {"gemini": FIRST_PARTY},
    "openai_chat": {
        "openai": FIRST_PARTY,
        "azure": FIRST_PARTY,
        "deepseek": MUST_ECHO,
        "moonshot": MUST_ECHO,
        "mistral": SHORT_IDS,
        "groq": STRIP,
        "llamacpp": LOCAL,
        "ollama": LOCAL,
        "vllm": LOCAL,
        "mistralrs": LOCAL,
        "xai": COMPATIBLE,
        "openrouter": COMPATIBLE,
        "zai": COMPATIBLE,
        "minimax": COMPATIBLE,
        "fireworks": COMPATIBLE,
        "together": COMPATIBLE,
        "cerebras": COMPATIBLE,
        "venice": COMPATIBLE,
    },
    "openai_responses": {"openai": FIRST_PARTY, "azure": FIRST_PARTY},
}
"""Whose manners each recorded server has, by family; others are not judged."""

MAIN = re.compile(
    r"(?:/messages|/responses|/chat/completions|enerateContent|/converse(?:-stream)?)(?:\?.*)?$"
)
"""Where models are asked; what else providers offer has rules of its own."""

ASSUMED_HEADERS = {
    "anthropic": {"anthropic-version": "2023-06-01", "anthropic-beta": "compact-2026-01-12"},
}
"""What every request has, for recordings whose headers were not kept; and what some of them had to have."""

_ANYTHING = Abilities(
    context_tokens=10**9,
    output_tokens=10**9,
    thinking=("adaptive", "enabled", "disabled", "between_tools"),
    efforts=("none", "minimal", "low", "medium", "high", "xhigh", "max"),
    structured_output="native",
)
_PLAIN = Abilities(output_tokens=10**9, structured_output="native")
_REASONS = Abilities(
    output_tokens=10**9,
    thinking=("standard",),
    efforts=("minimal", "low", "medium", "high"),
    structured_output="native",
)
_OLD = Abilities(output_tokens=10**9, thinking=("enabled", "disabled"))
_BY_ALLOWANCE = Abilities(output_tokens=10**9, thinking=_ANYTHING.thinking, structured_output="native")
"""They think by an allowance of tokens, and know of no effort."""
_WHEN_TOLD = Abilities(output_tokens=10**9, efforts=_ANYTHING.efforts, structured_output="native")
"""They reason only when an effort is asked for, which no table says."""
THEN: tuple[tuple[str, str, Abilities], ...] = (
    ("anthropic", r"claude-3-(?!sonnet-2024)", _OLD),
    ("bedrock_converse", r".*amazon\.", _PLAIN),
    ("gemini", r"gemini-(1|2\.0|2\.5-flash-lite)", _BY_ALLOWANCE),
    ("openai_", r"o4-mini$", Abilities(thinking=("standard",), efforts=("low", "medium", "high"))),
    ("openai_", r"voxtral", Abilities(images=False)),
    ("openai_", r"(?i)deepseek-(chat|v3|r1)", _PLAIN),
    ("openai_", r"gpt-5\.[1-4]", _WHEN_TOLD),
    ("openai_", r"o\d", _REASONS),
    ("openai_", r"gpt-5-chat", _PLAIN),
    ("openai_", r"gpt-5(-mini|-nano)?(-20.*)?$", _REASONS),
    ("openai_", r"(gpt-(3|4)|gpt-audio|chatgpt).*", _PLAIN),
)
"""What models could do that the tables have forgotten: family, model, facts.  The first fit is taken."""

EXPLAINED: dict[str, str] = {
    "ant-dd-trace-py-2fb18a38d1-00": "a result for another call, of 2024: every later one was refused",
    "ant-dd-trace-py-3bac6c693f-00": "a result for another call, of 2024: every later one was refused",
    "ant-mirascope-f40abc7f78-00": "both ways of sampling at once, which the models before 4.1 still took",
    "ant-otel-genai-302d1bf024-00": "both ways of sampling at once, which the models before 4.1 still took",
    "ant-otel-genai-dbc62870ef-00": "both ways of sampling at once, which the models before 4.1 still took",
    "bed-dd-trace-py-39f5822b85-00": "a cassette written by hand: its request id is `test-request-id-002`",
    "bed-dd-trace-py-97393ff88b-00": "a cassette written by hand: its request id is `test-request-id-003`",
    "bed-ollmtry-a434e39c5e-00": "two turns of one side, taken by another maker's oldest model",
    "gem-bt-js-308b2ef3e4-03": "results in the old role, which this model still took and others refused",
    "resp-otel-js-ee5495de71-00": "strict and open at once, answered this one time: others were refused",
}
"""Requests that were answered and that we refuse, by the recording's id, with the reason."""

OTHERWISE: dict[str, str] = {
    "chat-ruby_llm-c98811ca43-00": "of a router, whose models no table knows, nor their windows",
    "chat-rig-282b6b4210-00": "a window of 512 tokens, which whoever started the server had chosen",
}
"""Requests that were refused in words of a rule and that we take or refuse otherwise, with the reason."""


_REDACTED = re.compile(r"call_REDACTED_(\d+)")
_LEFT_OUT, _MASSIVE = "<MASSIVE_TEXT>", "long " * 250_000
"""What a recorder put in place of a text that was too long for the model, and such a text."""


def _like_its_own(redacted: re.Match[str]) -> str:
    """An id that a recorder hid: nine letters and digits, which every server takes."""
    return f"r{int(redacted[1]):08}"


class Judged(NamedTuple):
    recording: TrafficRecord
    rules: tuple[ProviderRule, ...]
    asked: RawRequest


@cache
def list_judged(family: str) -> tuple[Judged, ...]:
    return tuple(_judge_recordings(family))


def _judge_recordings(family: str) -> Iterator[Judged]:
    servers = SERVERS.get(family, {})
    recorded = [each for each in corpus(family.replace("_", "-")) if each.is_judged and each.host in servers]
    answered = {each.model for each in recorded if each.status < 300}
    for recording in recorded:
        request = recording.request
        if request is None or not MAIN.search(request.path):
            continue
        headers = {name.lower(): value for name, value in request.headers}
        sent = request.body.decode().replace(_LEFT_OUT, _MASSIVE)
        body = json.loads(_REDACTED.sub(_like_its_own, sent))
        abilities = _abilities(family, recording.model, existed=recording.model in answered)
        prompt = lay_out_for_family(family, body, abilities)
        yield Judged(
            recording,
            list_rules(family, servers[recording.host]),
            RawRequest(
                path=request.path,
                headers={**ASSUMED_HEADERS.get(family, {}), **headers},
                body=body,
                size=len(request.body),
                abilities=abilities,
                prompt_tokens=prompt.tokens if prompt else 0,
            ),
        )


@cache
def _abilities(family: str, model: str, *, existed: bool) -> Abilities | None:
    for prefix, pattern, abilities in THEN:
        if family.startswith(prefix) and re.match(pattern, model):
            return abilities
    try:
        found = find_model(f"sim:={family}/{model}", environ={})
    except UnknownModel:
        found = None
    if found and (found.price or any(model == each.id for each in known_models())):
        return found.abilities
    return _ANYTHING if existed or not model else None


def _error_text(recording: TrafficRecord) -> str:
    """The provider's sentence, wherever it put it."""
    try:
        body = json.loads(recording.body)
    except ValueError:
        return ""
    body = body[0] if isinstance(body, list) and body else body
    error = body.get("error", body) if isinstance(body, dict) else {}
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _uncounted(rule: ProviderRule, message: str) -> str:
    """How many tokens a prompt has, only the provider can say exactly."""
    return re.sub(r"\d+", "N", message) if rule.kind == "context" else message


def _blamed(recording: TrafficRecord) -> str:
    """The field that the provider names beside its sentence, if it does."""
    error = json.loads(recording.body)
    error = error.get("error") if isinstance(error, dict) else None
    return str(error.get("param") or "") if isinstance(error, dict) else ""


def _has(family: str, rule: ProviderRule, status: int, message: str) -> bool:
    blanks = re.split(r"\{\w+\}", rule.wording)
    if not any(blanks):  # nothing but a blank: its words are those of its example
        return (rule.status, find_examples(family, rule).message) == (status, message)
    words = ".*".join(re.escape(part.replace("{{", "{").replace("}}", "}")) for part in blanks)
    return rule.status == status and re.fullmatch(words, message, re.DOTALL) is not None


@pytest.mark.slow
@pytest.mark.parametrize("family", list_families())
def test_what_was_answered_passes(family):
    accepted = [each for each in list_judged(family) if each.recording.status < 300]
    refused = {}
    for recording, rules, asked in accepted:
        violation = find_violation(rules, asked)
        if violation:
            refused[recording.id] = f"{violation.rule.id}: {violation.message[:120]}"
    share = 1 - len(refused) / len(accepted)
    print(f"{family}: {len(accepted)} answered requests, {share:.2%} pass, {len(refused)} explained")
    assert {id_: why for id_, why in refused.items() if id_ not in EXPLAINED} == {}
    assert share >= ACCEPTED_SHARE_MIN


@pytest.mark.parametrize("family", list_families())
def test_what_was_refused_for_a_rule_of_ours_is_refused_in_the_same_words(family):
    modelled, wrong, servers = [], {}, SERVERS[family]
    refused = [each for each in list_judged(family) if 400 <= each.recording.status < 500]
    for recording, rules, asked in refused:
        told = _error_text(recording)
        if not any(_has(family, rule, recording.status, told) for rule in rules):
            continue
        modelled.append(recording.id)
        violation = find_violation(rules, asked)
        ours = violation and (violation.rule.status, _uncounted(violation.rule, violation.message))
        theirs = (recording.status, _uncounted(violation.rule, told) if violation else told)
        if ours != theirs and recording.id not in OTHERWISE:
            wrong[recording.id] = f"{told[:120]!r} became {violation and violation.message[:120]!r}"
        blamed = _blamed(recording)
        if (
            ours == theirs
            and violation
            and violation.param != blamed
            and servers[recording.host] == FIRST_PARTY
        ):
            wrong[recording.id] = f"{told[:120]!r} blames {blamed!r}, and we {violation.param!r}"
    print(f"{family}: {len(refused)} refusals recorded, {len(modelled)} for a rule of ours")
    assert wrong == {}
    assert modelled or not refused


def test_exceptions_are_about_recordings_there_are():
    recorded = {each.recording.id for family in list_families() for each in list_judged(family)}
    judged_kinds = {id_.partition("-")[0] for id_ in recorded}
    explained = {id_ for id_ in {*EXPLAINED, *OTHERWISE} if id_.partition("-")[0] in judged_kinds}
    assert explained <= recorded
    assert ALTERNATION not in {profile for servers in SERVERS.values() for profile in servers.values()}
