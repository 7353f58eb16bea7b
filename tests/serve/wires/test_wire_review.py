"""Texts that hooks and validators decide about: a client gets only what they accepted, streamed or whole."""

import pytest

from bridle import Agent, ModelRetry, tool
from bridle.hooks import Answer, Change, Refuse
from bridle.serve.wires.client_view import REFUSED
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name

PATH = "/openai/v1/chat/completions"


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


class Hide:
    def after_model(self, run, reply):
        return Change(text=reply.text.replace("42", "[x]")) if "42" in reply.text else None


class Withhold:
    def after_model(self, run, reply):
        return Refuse(reason="leak") if "42" in reply.text else None


class AskAgain:
    def after_model(self, run, reply):
        if "42" in reply.text:
            raise ModelRetry("no numbers\n!say it is fine")  # the simulator plays the line


class Replace:
    def after_model(self, run, reply):
        return Answer(text="I answer myself") if "42" in reply.text else None


class HideAtEnd:
    def on_end(self, run, end):
        return Change(text=end.answer.replace("42", "[x]"))


class WithholdAtEnd:
    def on_end(self, run, end):
        return Refuse(reason="leak") if "42" in end.answer else None


def accept(text: str) -> None:
    if "42" in text:
        raise ModelRetry("no numbers")


def shorten(text: str) -> str:
    return text.replace("42", "[x]")


SECRET = "!say let me look\n!call look {}\n!then\n!say it is 42\n!then\n!say it is fine"
LOOKED = "let me look\n\n"
CASES = {
    "change": ({"hooks": [Hide()]}, SECRET, f"{LOOKED}it is [x]"),
    "change beside a call": (
        {"hooks": [Hide()]},
        "!say 42 first\n!call look {}\n!then\n!say it is 42",
        "[x] first\n\nit is [x]",
    ),
    "refuse": ({"hooks": [Withhold()]}, SECRET, LOOKED + REFUSED),
    "retry": ({"hooks": [AskAgain()]}, SECRET, f"{LOOKED}it is fine"),
    "retry beside a call": (
        {"hooks": [AskAgain()]},
        "!say 42\n!call look {}",
        "it is fine",
    ),
    "answer": ({"hooks": [Replace()]}, SECRET, f"{LOOKED}I answer myself"),
    "change at the end": ({"hooks": [HideAtEnd()]}, SECRET, f"{LOOKED}it is [x]"),
    "refuse at the end": ({"hooks": [WithholdAtEnd()]}, SECRET, LOOKED + REFUSED),
    "validator": ({"validate": accept}, SECRET, f"{LOOKED}it is fine"),
    "validator that changes": ({"validate": shorten}, SECRET, f"{LOOKED}it is [x]"),
    "output type": ({"output": int}, '!say wait\n!call look {}\n!then\n!say {"value": 7}', '{"value": 7}'),
    "handover": (
        {"handover": [Agent("sim:", name="other", tools=[look], hooks=[Hide()])]},
        "!call transfer_to_other {}\n!then\n!say it is 42",
        "it is [x]",
    ),
}


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_client_gets_what_was_accepted_and_its_session_is_found(tmp_path, case, streams):
    """The conversation with that text is found in memory and, after a restart, in the log."""
    options, prompt, expected = CASES[case]
    agents = {"helper": Agent("sim:", name="helper", tools=[look], **options)}  # type: ignore[arg-type]
    said = [{"role": "user", "content": prompt}]

    def chat(served):
        reply = send(served.url + PATH, {"model": "helper", "messages": said, "stream": streams})
        assert reply.status == 200, reply.body
        if not streams:
            return reply.json["choices"][0]["message"], reply.headers["x-bridle-session"]
        deltas = [each["choices"][0]["delta"] for each in reply.events if each["choices"]]
        texts = {
            name: "".join(each.get(name) or "" for each in deltas) or None for name in ("content", "refusal")
        }
        return {"role": "assistant", **texts}, reply.headers["x-bridle-session"]

    with serve_by_name(agents, str(tmp_path / "log.db")) as served:
        message, session = chat(served)
        assert (message.get("content") or "") + (message.get("refusal") or "") == expected
        said += [message, {"role": "user", "content": "!say two"}]
        assert chat(served)[1] == session
    with serve_by_name(agents, str(tmp_path / "log.db")) as served:
        assert chat(served)[1] == session
