"""What `torch.distributed.debug` writes and serves (torch 2.10 and later), read and explained."""

from rankdrill.explain.debug_server.asking import read_served
from rankdrill.explain.debug_server.directory import explain_debug_directory, is_debug_directory
from rankdrill.explain.debug_server.live import explain_server, is_address
from rankdrill.explain.debug_server.served import Served

__all__ = ["Served", "explain_debug_directory", "explain_server", "is_address", "is_debug_directory", "read_served"]
