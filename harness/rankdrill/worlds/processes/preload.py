"""What every rank will need, imported once in the template so that a fork has it already."""

# ruff: noqa: F401
import cloudpickle
import numpy.random
import torch
import torch.distributed
import torch.distributed.distributed_c10d
