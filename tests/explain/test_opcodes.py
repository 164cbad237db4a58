"""No pickle runs anything, reserves what is not there, or takes for ever: hostile opcodes, one by one."""

from __future__ import annotations

import pickle
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from rankdrill.errors import DumpError
from rankdrill.explain.flight.load import load
from rankdrill.explain.flight.opcodes import vet
from tests.explain.flights import torch_pickle

DUMP = {"version": "2.10", "pg_config": {}, "entries": []}
START = b"\x80\x02"
AT = len(START)
BOUND_S = 20.0

HOSTILE = {
    "GLOBAL": b"cos\nsystem\n.",
    "STACK_GLOBAL": b"\x93.",
    "INST": b"(S'id'\nios\nsystem\n.",
    "OBJ": b"o.",
    "NEWOBJ": b"\x81.",
    "NEWOBJ_EX": b"\x92.",
    "REDUCE": b"R.",
    "BUILD": b"b.",
    "EXT1": b"\x82\x01.",
    "EXT2": b"\x83\x01\x00.",
    "EXT4": b"\x84\x01\x00\x00\x00.",
    "PERSID": b"Pid\n.",
    "BINPERSID": b"Q.",
    "BYTEARRAY8": b"\x96" + struct.pack("<Q", 1 << 40) + b".",
    "NEXT_BUFFER": b"\x97.",
    "READONLY_BUFFER": b"\x98.",
    "LONG4": b"\x8b" + struct.pack("<i", 1 << 30) + b".",
}


@pytest.mark.parametrize("opcode", HOSTILE)
def test_what_imports_calls_or_reserves_is_refused_by_name_and_place(opcode: str) -> None:
    name = opcode if opcode != "INST" else "0x53"  # the text before it is one of protocol 0
    at = AT + (opcode == "INST")
    with pytest.raises(DumpError, match=f"at byte {at} the opcode {name}"):
        load(START + HOSTILE[opcode])


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("inside", [False, True])
def test_nothing_is_run(protocol: int, inside: bool, tmp_path: Path) -> None:
    target = tmp_path / "was-here"

    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (target,)

    data = {**DUMP, "entries": [{"frames": Evil()}]} if inside else Evil()
    raw = pickle.dumps(data, protocol)
    with pytest.raises(DumpError, match="which imports"):
        load(raw)
    assert not target.exists()
    pickle.loads(raw)
    assert target.exists(), "it would have been run"


@pytest.mark.parametrize("opcode", [b"r", b"j"])
def test_an_index_without_bounds_is_refused(opcode: bytes) -> None:
    raw = START + b"}" + opcode + struct.pack("<I", 1 << 30) + b"."
    with pytest.raises(DumpError, match="an index of 1073741824, beyond all bounds"):
        load(raw)


@pytest.mark.parametrize("opcode", [b"X", b"B"])
def test_a_text_that_is_longer_than_the_file_is_cut_off(opcode: bytes) -> None:
    with pytest.raises(DumpError, match="is cut off"):
        load(START + opcode + struct.pack("<I", 1 << 31) + b"abc")


def test_a_long_number_is_refused() -> None:
    with pytest.raises(DumpError, match="a number of 255 bytes"):
        load(START + b"\x8a\xff" + bytes(255) + b".")


def doubled(times: int, *, keep: bytes) -> bytes:
    """A tuple of twice the former tuple, again and again, as the key of a dict: to hash it takes 2**times steps."""
    raw = b"K\x01K\x02\x86" + keep % 0
    for number in range(times):
        raw += b"h%ch%c\x86" % (number, number) + keep % (number + 1)
    return START + b"}(" + raw + b"Nu."


@pytest.mark.parametrize("keep", [b"q%c", b"r%c\x00\x00\x00"])
def test_keys_that_take_for_ever_are_refused(keep: bytes) -> None:
    began = time.monotonic()
    with pytest.raises(DumpError, match="is damaged"):
        load(doubled(60, keep=keep))
    assert time.monotonic() - began < BOUND_S


@pytest.mark.parametrize("step", [b"K\x01\x86", b"h\x00\x86", b"(u" + b"h\x00\x86", b"\x95" + bytes(8) + b"h\x00\x86"])
def test_keys_that_are_nested_without_end_are_refused(step: bytes) -> None:
    raw = START + b"X\x01\x00\x00\x00aq\x00}(h\x00h\x00\x86" + step * 50_000 + b"Nu."
    with pytest.raises(DumpError, match="is damaged"):
        load(raw)


@pytest.mark.parametrize("opened", [b"]", b"(", b"}"])
def test_what_is_nested_without_end_is_no_dump(opened: bytes) -> None:
    with pytest.raises(DumpError):
        load(START + opened * 200_000 + b".")


def test_plain_pickles_of_all_protocols_are_read() -> None:
    data = {**DUMP, "entries": [{"process_group": ("0", "default_pg"), "duration_ms": 0.5, "n": -(1 << 40)}] * 2}
    assert vet(torch_pickle(data))
    for raw in (torch_pickle(data), *(pickle.dumps(data, protocol) for protocol in range(2, 6))):
        assert load(raw) == data


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\x80\x02", b"\x80\x07.", b"PK\x03\x04", b"[1]", b"[" * 100_000, b"nothing"]
)
def test_what_is_no_dump_is_one_error(raw: bytes) -> None:
    with pytest.raises(DumpError):
        load(raw)


@pytest.mark.parametrize(
    "raw", [b"{}", b'{"a": ' * 100_000, b'{"entries": 1e999', b'{"entries": ' + b"9" * 10_000 + b"}", b'{"x":"\xff"}']
)
def test_bad_json_is_one_error(raw: bytes) -> None:
    with pytest.raises(DumpError):
        load(raw)
