"""Arguments of calls, on wires that want an object."""

import pytest

from bridle.providers._arguments import INVALID_JSON, object_of, text_of
from bridle.providers._json import dumps


@pytest.mark.parametrize("arguments", ["{}", '{"n": 1.50, "a":  [null]}', '{"x":"é"}'])
def test_objects_go_out_as_they_are_spelled(arguments):
    assert dumps(object_of(arguments)).decode() == arguments
    assert text_of(arguments) == arguments


@pytest.mark.parametrize("arguments", ["", '{"city": "Tok', "[1]", '"x"', "null", "\ud83d"])
def test_what_is_no_object_travels_in_one_and_comes_out_again(arguments):
    written = dumps(object_of(arguments)).decode()
    assert written.startswith(f'{{"{INVALID_JSON}":')
    assert text_of(written) == arguments.replace("\ud83d", "�")


def test_an_object_that_only_looks_like_it_is_left_alone():
    for written in (
        f'{{"{INVALID_JSON}":1}}',
        f'{{"{INVALID_JSON}":"x","more":1}}',
        f'{{"a":"{INVALID_JSON}"}}',
    ):
        assert text_of(written) == written
