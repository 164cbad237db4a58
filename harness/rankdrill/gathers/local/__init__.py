"""Ranks of one machine: sockets under names in shared memory, and segments that payloads lie in."""
