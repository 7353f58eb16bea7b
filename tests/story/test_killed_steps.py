"""kill -9 after every record of a run with five payments, and again while it is resumed: on both stores.

BRIDLE_CAMPAIGN above 1 tries every policy on every store, and kills the resumed run at more of its records.
"""

import asyncio
import os
from pathlib import Path

import pytest
from crashes import kill_after_every_record, kill_after_record
from kill_agent import main
from test_kill import _check_all, start

CAMPAIGN = int(os.environ.get("BRIDLE_CAMPAIGN", "1"))
AMOUNTS = [1, 2, 3, 4, 5]
EVERY = [(store, policy) for store in ("sqlite", "postgres") for policy in ("retry", "probe", "report")]
AGAIN = () if CAMPAIGN == 1 else (1, 2, 4)
"""Records of the resumed run after which it is killed too."""


def run_and_kill(folder, count, policy, url):
    """Run or resume in this process, which is killed after its `count`th record."""
    if url:
        Path(folder, "store").write_text(url.replace("SCHEMA", Path(folder).name))
    kill_after_record(count)
    asyncio.run(main(Path(folder), policy, "never", AMOUNTS))


@pytest.mark.slow
@pytest.mark.parametrize(("store", "policy"), EVERY if CAMPAIGN > 1 else [("postgres", "probe")])
def test_killed_after_every_record(request, tmp_path, store, policy):
    url = ""
    if store == "postgres":
        url = request.getfixturevalue("postgres").new_url() + "_SCHEMA"
    points = 0
    for _, folder in kill_after_every_record(tmp_path, __file__, policy, url):
        points += 1
        for again in AGAIN:
            for _ in resume_and_kill(folder, again, policy):
                points += 1
        _check_all(folder, policy, AMOUNTS)
    print(f"\n{store} {policy}: {points} kills")
    assert points >= 15


def resume_and_kill(folder, count, policy):
    """Resume the run in a process that is killed after its `count`th record; yields if it was."""
    with start(folder, policy, "never", *AMOUNTS, KILL_AFTER=str(count)) as child:
        child.communicate()
        if child.returncode:
            assert child.returncode == -9
            yield count
