"""For testing what is built on Bridle: a check for every port, a scripted model, a clock that obeys.

check_codec, check_store, check_tool    write an edge, run its check, and it fits
scripted(reply, reply, …)               a model that says what it is told to
FakeClock                               time that moves only when told to
"""

from .clock import FakeClock as FakeClock
from .codecs import check_codec as check_codec
from .script import scripted as scripted
from .stores import check_store as check_store
from .tools import check_tool as check_tool
