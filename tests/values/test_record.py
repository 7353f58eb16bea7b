"""The hash of a record covers its time with the digits of `repr`, and tags of events are the names of their classes."""

import re
from hashlib import sha256
from typing import get_args

from hypothesis import example, given
from hypothesis import strategies as st

from bridle.values.events import Event, Steered, UnknownEvent
from bridle.values.record import DISTANT_TIME, GENESIS, MODERN_TIME, seal_record

TIMES = st.one_of(
    st.floats(min_value=MODERN_TIME, max_value=DISTANT_TIME),
    st.floats(min_value=1.7e9, max_value=1.9e9),
    st.integers(min_value=0, max_value=10**13).map(float),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(TIMES)
@example(0.0)
@example(MODERN_TIME)
@example(DISTANT_TIME)
@example(1_763_200_000.0)
def test_the_hash_covers_the_time_as_repr_writes_it(at):
    record = seal_record(7, at, Steered(message="on"), GENESIS)
    assert record.hash == sha256(f"{GENESIS} 7 {at!r} ".encode() + record.data).hexdigest()


def test_the_tag_of_every_event_is_the_name_of_its_class():
    """Tags are in every log for good: a tag that kept an earlier name of its class would stay."""
    tags = {kind.__name__: kind.__struct_config__.tag for kind in get_args(Event) if kind is not UnknownEvent}
    assert tags == {name: re.sub("(?<!^)(?=[A-Z])", "_", name).lower() for name in tags}
