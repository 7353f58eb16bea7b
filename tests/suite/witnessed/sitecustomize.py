"""Observes programs that a test starts: Python runs this file before them."""

import os
import sys
from pathlib import Path

if os.environ.get("BRIDLE_WITNESS"):
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.suite import listening

    del sys.path[0]
    listening.listen(listening.Scribe(os.environ[listening.FILE]).write)
