"""What workers share is built once; if building fails, the next one that needs it tries again."""

import pytest

pytest_plugins = ["pytester"]
SHARING = """
import os, pathlib, pytest
from tests.suite.shared_builds import build_once

def build(folder):
    with pathlib.Path(os.environ["BUILDS"]).open("a") as file:
        file.write("built ")
    folder.mkdir()
    (folder / "page").write_text("text")

@pytest.mark.parametrize("number", range(8))
def test_it_is_there(tmp_path_factory, number):
    assert (build_once(tmp_path_factory, "site", build) / "page").read_text() == "text"
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_build_is_made_once_for_all_workers(pytester, monkeypatch, workers):
    monkeypatch.setenv("BUILDS", str(pytester.path / "builds"))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makepyfile(SHARING)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", *workers).assert_outcomes(passed=8)
    assert (pytester.path / "builds").read_text() == "built "


def test_a_build_that_failed_is_tried_again(pytester, tmp_path_factory):
    def fail(folder):
        raise OSError("no space")

    from tests.suite.shared_builds import build_once

    name = pytester.path.name
    with pytest.raises(OSError, match="no space"):
        build_once(tmp_path_factory, name, fail)
    assert build_once(tmp_path_factory, name, lambda folder: folder.mkdir()).is_dir()
