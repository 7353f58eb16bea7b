"""The garbage collector does not visit values: they cannot be part of a cycle."""

import gc

from bridle.values.events import ModelReplied
from bridle.values.message import Message, Reply, Stop, Text
from bridle.values.model import Origin
from bridle.values.usage import Usage


def test_the_collector_does_not_know_values():
    origin = Origin(family="f", endpoint="e", model="m")
    reply = Reply(parts=(Text(text="a"),), stop=Stop.DONE, usage=Usage(), origin=origin)
    for value in (reply, ModelReplied(reply=reply), Message(role="user", parts=reply.parts, at=0.0)):
        assert not gc.is_tracked(value)
