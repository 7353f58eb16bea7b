"""A model that says what it is told to.

    agent = Agent(scripted("Let me see.", "It is 42."))
    agent = Agent(scripted(calls(("add", {"a": 1, "b": 2})), "3"))

Which reply comes next is read off the request (how often the model has spoken in it),
so the same script serves a run that is cut, resumed or replayed: there is no position
to lose.  A reply may also be a `Failure`; failures are used up in order, once each.
"""

from collections.abc import Sequence

import msgspec

from ..ports.codec import HttpReply, HttpRequest
from ..ports.tool import Json
from ..ports.transport import Outgoing
from ..providers import load
from ..run.line import Line
from ..transports.inprocess import InProcessTransport
from ..values.errors import Failure, MisuseError
from ..values.message import Reply, Stop
from ..values.model import Abilities, Endpoint, Model, Origin
from ..values.parts import Part, Text, ToolCall
from ..values.request import Request
from ..values.usage import Usage

FAMILY = "scripted"
USAGE = Usage(input=10, output=5)


class Script:
    """The other side of a scripted line; `requests` holds what it was asked."""

    def __init__(self, replies: Sequence[str | Reply | Failure], family: str = FAMILY) -> None:
        self._codec = load(family)
        self._replies = [
            reply if isinstance(reply, Reply) else says(reply)
            for reply in replies
            if not isinstance(reply, Failure)
        ]
        self._failures: dict[int, list[Failure]] = {}
        said = 0
        for reply in replies:
            if isinstance(reply, Failure):
                self._failures.setdefault(said, []).append(reply)
            else:
                said += 1
        self.requests: list[Request] = []

    async def answer(self, outgoing: Outgoing) -> HttpReply:
        request = self._codec.read(
            HttpRequest(path=outgoing.url, body=outgoing.body, headers=outgoing.headers)
        )
        self.requests.append(request)
        turn = sum(message.role == "assistant" for message in request.messages)
        if self._failures.get(turn):
            return self._codec.speak_failure(self._failures[turn].pop(0))
        if turn >= len(self._replies):
            raise MisuseError(f"the script has {len(self._replies)} replies and was asked for one more")
        return self._codec.speak(self._replies[turn], stream=request.stream)


class ScriptedLine(Line):
    """A line with its script in reach."""

    script: Script

    def __init__(self, script: Script, model: Model) -> None:
        super().__init__(
            model=model, codec=load(model.endpoint.family), transport=InProcessTransport(script.answer)
        )
        object.__setattr__(self, "script", script)


def scripted(*replies: str | Reply | Failure, abilities: Abilities | None = None) -> ScriptedLine:
    model = Model(
        id="script",
        endpoint=Endpoint(name=FAMILY, family=FAMILY, app="script", auth="none", simulated=True),
        abilities=abilities or Abilities(),
    )
    return ScriptedLine(Script(replies), model)


def says(text: str, *calls: ToolCall, stop: Stop | None = None) -> Reply:
    words: tuple[Part, ...] = (Text(text=text),) if text else ()
    return Reply(
        parts=(*words, *calls),
        stop=stop or (Stop.TOOLS if calls else Stop.DONE),
        origin=Origin(family=FAMILY, endpoint=FAMILY, model="script"),
        usage=USAGE,
    )


def calls(*wanted: tuple[str, dict[str, Json]], text: str = "") -> Reply:
    """A reply that asks for tools."""
    return says(
        text,
        *(
            ToolCall(id="", name=name, arguments=msgspec.json.encode(arguments).decode(), wire_id=f"w{index}")
            for index, (name, arguments) in enumerate(wanted)
        ),
    )
