"""Checks that every decoder must pass, whatever its wire family."""

from functools import cache

from growth import assert_cost_per_item

SLICE_BYTES = 4_096


def slice_body(body: bytes, size: int = SLICE_BYTES) -> list[bytes]:
    """Cut a body into pieces of `size` bytes, as a connection delivers it."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def assert_deltas_cost_the_same(new_decoder, make_slices, text="") -> None:
    """Fail if a delta costs more CPU time the more deltas came before it.

    `make_slices(count)` returns the slices of a stream of `count` deltas; its reply reads `text` for each of them.
    """
    slices_of = cache(make_slices)

    def prepare(count):
        slices, decoder = slices_of(count), new_decoder()

        def work():
            for each in slices:
                decoder.feed(each)
            assert decoder.close().text == text * count

        return work

    assert_cost_per_item(prepare)
