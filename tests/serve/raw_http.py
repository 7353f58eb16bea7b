"""Requests without a client library: the bytes that a wire has, and the reply as it came."""

import json
import urllib.error
import urllib.request

from tests.suite.patience import PATIENCE_SECONDS


class RawReply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """The data of every event of a stream."""
        lines = self.body.decode().splitlines()
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        return [json.loads(each) for each in data if each != "[DONE]"]


def send(url, body=None, headers=(), method=None):
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, {"content-type": "application/json", **dict(headers)}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as reply:
            return RawReply(reply.status, dict(reply.headers), reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return RawReply(error.code, dict(error.headers), error.read())
