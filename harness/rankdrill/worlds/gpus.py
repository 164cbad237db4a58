"""How many GPUs there are, asked without making a CUDA context in this process."""

from __future__ import annotations

__all__ = ["count_gpus"]


def count_gpus() -> int:
    """GPUs that torch can use here; 0 for a CPU build of torch."""
    import torch

    # Counts by NVML where it can, and initialises nothing: ranks are forked later and must find CUDA untouched.
    return int(torch.cuda.device_count())
