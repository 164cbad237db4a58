"""Where things stand on the board: its parts, in bytes from its beginning, and what is packed how."""

from __future__ import annotations

import struct

__all__ = ["BENT_OFFSET", "CALL", "FIRST", "FIRSTS", "HEADER_BYTES", "LOOK", "LOOK_AT", "START"]

HEADER_BYTES = 4096
BENT_OFFSET = 64
FIRSTS = 1024
FIRST = struct.Struct("<QQII")  # group, call, rank, checksum
START = struct.Struct("<IHHQQ")  # checksum of what is told and of the rest of this, bytes in all, 0, group, call
CALL = struct.Struct("<HHQQ")  # all of it but the checksum
LOOK = struct.Struct("<QQQ")  # group, call and the digest that follows: all that most looks need
LOOK_AT = START.size - 16
