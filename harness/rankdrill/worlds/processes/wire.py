"""Frames over a socket: what a controller and its ranks say to each other.

Only the two ends of one private socket pair speak, so what arrives was written by this run's own processes.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

__all__ = ["MessageReader", "recv_frame", "send_frame"]

_LENGTH = struct.Struct("<Q")
CHUNK = 1 << 20


def send_frame(sock: socket.socket, payload: bytes, *, bound: float | None = None) -> None:
    """Send one frame, waiting until the other end has taken it; raises `TimeoutError` after `bound` seconds."""
    frame = _LENGTH.pack(len(payload)) + payload
    try:
        sent = sock.send(frame, socket.MSG_DONTWAIT)
    except BlockingIOError:
        sent = 0
    if sent < len(frame):  # a timeout costs system calls, and most frames fit at once
        sock.settimeout(bound)
        try:
            sock.sendall(memoryview(frame)[sent:])
        finally:
            sock.settimeout(None)


def recv_frame(sock: socket.socket) -> bytes:
    """Receive one frame, waiting for it; raises `EOFError` when the other end is gone."""
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return _exactly(sock, length)


def _exactly(sock: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    view, got = memoryview(buffer), 0
    while got < count:
        chunk = sock.recv_into(view[got:])
        if not chunk:
            raise EOFError("the other end closed")
        got += chunk
    return bytes(buffer)


class MessageReader:
    """Takes messages from a socket without ever waiting: a rank may be stopped in the middle of sending one."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()
        self.closed = False

    def messages(self) -> list[Any]:
        """Read what is there now; returns the messages whose frames are complete."""
        while not self.closed:
            try:
                chunk = self._sock.recv(CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionError:
                chunk = b""
            if not chunk:
                self.closed = True
            self._buffer += chunk
            if len(chunk) < CHUNK:
                break
        whole = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            frame = bytes(memoryview(self._buffer)[_LENGTH.size : end])
            del self._buffer[:end]
            whole.append(pickle.loads(frame))
        return whole
