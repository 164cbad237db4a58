"""What the gather promises."""

from scoreboard_harness import to_all

from rankdrill.conformance import conformance

TestGatherScores = conformance(to_all, takes="dicts", promises={"right", "repeatable", "groups", "clean"})
