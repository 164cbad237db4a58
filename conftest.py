"""For the whole suite: pytester, and a Hypothesis profile that does not measure time on a shared machine."""

from __future__ import annotations

import hypothesis

pytest_plugins = ["pytester"]

# Examples run on real processes, next to other tests: how long one takes says nothing.
hypothesis.settings.register_profile("rankdrill", deadline=None)
hypothesis.settings.load_profile("rankdrill")
