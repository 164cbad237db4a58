"""Gathers of Python objects that fail together; needs torch and numpy, and of rankdrill only its errors."""

from rankdrill.gathers.all_gather import all_gather
from rankdrill.gathers.all_gather_list import all_gather_list
from rankdrill.gathers.all_gather_object import all_gather_object
from rankdrill.gathers.all_gather_shm import all_gather_shm
from rankdrill.gathers.all_gather_via_filesys import all_gather_via_filesys
from rankdrill.gathers.gather import gather
from rankdrill.gathers.gather_and_save_checkpoint import gather_and_save_checkpoint
from rankdrill.gathers.gather_object import gather_object
from rankdrill.gathers.get_configs_parallel import get_configs_parallel
from rankdrill.gathers.get_tensors_parallel import get_tensors_parallel
from rankdrill.gathers.load_checkpoint import Checkpoint, load_checkpoint
from rankdrill.gathers.nfs_workspace import NFSWorkspace

__all__ = [
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
