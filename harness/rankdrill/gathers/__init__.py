"""Gathers of Python objects that fail together; needs torch and numpy, and of rankdrill only its errors."""

from rankdrill.gathers.auto import gather
from rankdrill.gathers.channel import DEFAULT_TIMEOUT_S
from rankdrill.gathers.checkpoint import Checkpoint, gather_and_save_checkpoint, load_checkpoint
from rankdrill.gathers.filesys import all_gather_via_filesys
from rankdrill.gathers.fixed_buffer import all_gather_list
from rankdrill.gathers.in_memory import all_gather_shm
from rankdrill.gathers.objects import all_gather_object
from rankdrill.gathers.padded import all_gather
from rankdrill.gathers.parallel import get_configs_parallel, get_tensors_parallel
from rankdrill.gathers.to_one import gather_object
from rankdrill.gathers.workspace import NFSWorkspace

__all__ = [
    "DEFAULT_TIMEOUT_S",
    "Checkpoint",
    "NFSWorkspace",
    "all_gather",
    "all_gather_list",
    "all_gather_object",
    "all_gather_shm",
    "all_gather_via_filesys",
    "gather",
    "gather_and_save_checkpoint",
    "gather_object",
    "get_configs_parallel",
    "get_tensors_parallel",
    "load_checkpoint",
]
