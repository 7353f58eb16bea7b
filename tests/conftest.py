"""Properties are tried on the same examples every time, so that a red build means a change, not a die.

BRIDLE_CAMPAIGN above 1 throws the dice anew: that is where surprises are looked for.
"""

import os

from hypothesis import settings

settings.register_profile(
    "bridle", derandomize=os.environ.get("BRIDLE_CAMPAIGN", "1") == "1", deadline=None, database=None
)
settings.load_profile("bridle")
