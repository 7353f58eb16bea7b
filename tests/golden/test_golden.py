"""Behaviour equals the golden files. Every tenth seeded run is compared, all with BRIDLE_CAMPAIGN above 1."""

import sys

import pytest

from tests.golden import freeze
from tests.suite.campaign import SCALE
from tests.wire.wire import needs_recordings

STEP = 1 if SCALE > 1 else 10


@pytest.mark.refusals(*freeze.REFUSED)
@pytest.mark.parametrize("seed", freeze.SEEDS[::STEP])
def test_a_seeded_run_is_the_same(seed):
    assert freeze.freeze_run(seed) == freeze.read_record("runs")[seed - freeze.SEEDS[0]]


@pytest.mark.slow
@needs_recordings
def test_recorded_requests_are_sent_as_before():
    assert list(freeze.freeze_requests()) == freeze.read_record("requests")


def test_commands_print_the_same_json(tmp_path, monkeypatch):
    for name in ("BRIDLE_STORE", *freeze.SETTINGS):
        monkeypatch.setenv(name, "")  # restored after the test
    assert list(freeze.freeze_commands(tmp_path)) == freeze.read_record("commands")


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="signatures are spelled otherwise by other Pythons"
)
def test_public_signatures_are_the_same():
    assert list(freeze.freeze_names()) == freeze.read_record("names")
