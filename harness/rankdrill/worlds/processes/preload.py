"""What every rank will need, imported once in the template so that a fork has it already."""

# ruff: noqa: F401
import cloudpickle
import hypothesis  # bodies often live in test files, which each rank would import it for, and pytest, by itself
import numpy.random
import pytest
import torch
import torch.distributed
import torch.distributed.distributed_c10d
