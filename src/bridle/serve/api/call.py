"""One request to the API, with its path decoded."""

from typing import NamedTuple

from starlette.requests import Request

from bridle.serve.errors import ServeError
from bridle.serve.host import AgentHost
from bridle.serve.identity import Access
from bridle.serve.session_list import SessionList


class ApiCall(NamedTuple):
    host: AgentHost
    sessions: SessionList
    path: dict[str, str]
    request: Request
    access: Access

    @property
    def session(self) -> str:
        return self.path["session"]

    @property
    def number(self) -> int:
        """The number in the path, which may be negative to count from the end."""
        text = self.path["number"]
        if not text.removeprefix("-").isdecimal() or len(text) > 9:
            raise ServeError(400, "invalid_request", f"{text!r} is not a number")
        return int(text)
