"""What `make release` refuses: versions that disagree, an undated changelog, files that the wheel lacks or should not have."""

import importlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.suite.paths import load_program
from tests.suite.shared_builds import build_once

TAR_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11 before 3.11.4 has none."""
ROOT = Path(__file__).parents[2]
release = load_program("bench/release.py")
VERSION = release.check_version(
    f"## Unreleased ({importlib.import_module('bridle').__version__})", draft=True
)


def test_a_draft_may_be_undated_and_a_release_may_not():
    dated = f"# Changelog\n\n## {VERSION} (2026-11-17)\n"
    assert release.check_version(dated, draft=False) == release.check_version(dated, draft=True) == VERSION
    for heading in (f"Unreleased ({VERSION})", "9.9.9 (2026-11-17)", f"{VERSION} (soon)"):
        with pytest.raises(release.Unfit, match="the first section of CHANGELOG"):
            release.check_version(f"# Changelog\n\n## {heading}\n", draft=False)


def test_placeholder_addresses_are_refused():
    project = '[project.urls]\nSource = "https://{}/bridle"\nIssues = "https://real.test/issues"\n'
    release.check_addresses(project.format("code.test"))
    with pytest.raises(release.Unfit, match=r"placeholders: Source; put in"):
        release.check_addresses(project.format("bridle.example.com"))


def test_package_and_metadata_have_one_version(monkeypatch, tmp_path):
    (tmp_path / "src" / "bridle").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "src" / "bridle" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(release.Unfit, match=f"says {VERSION}, bridle.__version__ 0"):
        release.check_version("", draft=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = build_once(tmp_path_factory, "dist", lambda folder: release.build(ROOT, folder))
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


@pytest.mark.slow
def test_the_files_of_this_checkout_pass(built):
    wheel, archive = built
    release.check_wheel(wheel, VERSION)
    release.check_archive(archive, wheel, release.list_tracked(ROOT))


@pytest.mark.full
@pytest.mark.slow
def test_the_tests_run_from_the_archive(built, tmp_path):
    """Whoever packages the project has no repository, and no recorded traffic beside it."""
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, **TAR_FILTER)
    (root,) = tmp_path.iterdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(root / "src")))}

    def run(*words):
        command = [sys.executable, *words]
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
        return done.stdout

    assert Path(run("-c", "import bridle; print(bridle.__file__)").strip()).is_relative_to(root)
    collected = run("-m", "pytest", "-p", "no:cacheprovider", "--collect-only")
    assert "tests/tidy/test_release.py" in collected
    run("-m", "pytest", "-p", "no:cacheprovider", "tests/values")


def test_an_archive_that_lacks_a_file_of_the_repository_is_refused(built):
    wheel, archive = built
    with pytest.raises(release.Unfit, match=r"lacks evals/suite\.toml; see pyproject"):
        release.check_archive(archive, wheel, ["README.md", "evals/suite.toml"])


@pytest.mark.parametrize(
    ("left_out", "added", "said"),
    [
        ("bridle/py.typed", None, "differ: bridle/py.typed"),
        (None, "bridle/secret.py", "differ: bridle/secret.py"),
        ("bridle/providers/models.toml", None, "differ: bridle/providers/models.toml"),
    ],
)
def test_a_wheel_with_other_files_is_refused(built, tmp_path, left_out, added, said):
    changed = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as source, zipfile.ZipFile(changed, "w") as target:
        assert left_out is None or left_out in source.namelist()
        for name in source.namelist():
            if name != left_out:
                target.writestr(name, source.read(name))
        if added:
            target.writestr(added, "")
    with pytest.raises(release.Unfit, match=said):
        release.check_wheel(changed, VERSION)
