"""Results as a drill gives them, made up."""

from __future__ import annotations

from rankdrill.conformance.case import Case, CaseResult, Judgement

__all__ = ["FAILED", "PASSED", "RESULTS"]

PASSED = CaseResult(
    Case("all_gather", 2, "small"), Judgement.RIGHT, "every rank received the right result", elapsed=0.25
)
RAISED = CaseResult(
    Case("all_gather", 2, "small", "oom", "rank 1: oom", 1), Judgement.TOGETHER, "every rank raised EncodeError"
)
FAILED = CaseResult(
    Case("get_configs_parallel/files", 4, "8mib", "kill", "rank 2: kill", 2),
    Judgement.HANG,
    "rank 0 waits in collective.barrier for rank 2",
    ("rank 0 waits in collective.barrier for rank 2", "rank 2 was killed \x1b[31m"),
    ("File 'broken.py', line 3",),
    1.5,
    0.5,
)
SAME_AGAIN = CaseResult(
    Case("get_configs_parallel/files", 5, "small", "kill", "rank 0: kill", 0), Judgement.HANG, "same"
)
RESULTS = (PASSED, RAISED, FAILED, SAME_AGAIN)
