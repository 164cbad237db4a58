"""What `torch.distributed.debug` writes and serves (torch 2.10 and later), read and explained."""

from rankdrill.explain.debug_server.directory import explain_debug_directory, is_debug_directory
from rankdrill.explain.debug_server.live import explain_server, is_address

__all__ = ["explain_debug_directory", "explain_server", "is_address", "is_debug_directory"]
