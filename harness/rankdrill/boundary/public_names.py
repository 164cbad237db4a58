"""What torch's own frames between the user's line and a collective are called, in the words of torch's documentation;
and those of the gathers, which call collectives as torch does.

The outermost public function says what the user called. FSDP, DTensor and checkpoints have internals of their own in
between, which are told by what they do.
"""

from __future__ import annotations

import os
from types import CodeType

from rankdrill.whose import OUR_FOLDER, torch_folder

__all__ = ["how_telling", "spoken"]

_PLUMBING = frozenset({"wrapper", "_fn", "decorate_context", "inner", "_wrapped_call_impl", "_call_impl", "__call__"})


def _folder(*parts: str) -> str:
    return os.path.join(torch_folder(), *parts, "")


_PARALLEL = (_folder("distributed"), _folder("nn", "parallel"))
_FSDP, _CHECKPOINT, _TENSOR = (_folder("distributed", part) for part in ("fsdp", "checkpoint", "tensor"))
_OURS, _GATHERS = str(OUR_FOLDER), str(OUR_FOLDER / "gathers")
_CALLED_BY = {"save_wrapper": "async_save"}
"""What of checkpoints a thread begins with, of torch's own, and what the user called."""
_PHASES = ("backward", "forward")
_INSIDE_FSDP = ("FSDPParamGroup.", "FSDPState.", "RegisterPostBackwardFunction.")
_INSIDE_TENSOR = ("OpDispatcher.", "redistribute_local_tensor")


def how_telling(code: CodeType) -> int:
    """How much a frame of torch's, or ours, says of what the user called: 0 nothing, 2 one of c10d and its users.

    What is above those, such as an optimizer's step, says less than they do.
    """
    if code.co_filename.startswith(_OURS):
        return 2 if _is_gather(code) and _is_public(code) else 0
    return (2 if _is_distributed(code) else 1) if _is_public(code) else 0


def spoken(code: CodeType | None) -> str:
    """Its name: ``all_gather_object``, ``FSDP backward``, ``checkpoint.save``; nothing where there is none."""
    if code is None:
        return ""
    name = code.co_qualname.removeprefix("_").removesuffix(".__init__")
    if _in_fsdp(code):
        phase = next((phase for phase in _PHASES if phase in code.co_name), "")
        return f"FSDP {phase}".rstrip()
    if code.co_filename.startswith(_TENSOR) and name.startswith(_INSIDE_TENSOR):
        return "DTensor operator"
    if code.co_filename.startswith(_CHECKPOINT) and "." not in name:
        return f"checkpoint.{_CALLED_BY.get(name, name)}"
    return name


def _is_public(code: CodeType) -> bool:
    name = code.co_name
    if _in_fsdp(code):
        return True
    if name == "__init__":  # who makes a DistributedDataParallel calls it by its class
        return (_is_distributed(code) or _is_gather(code)) and not code.co_qualname.startswith("_")
    return name not in _PLUMBING and not name.startswith("_") and "<" not in code.co_qualname


def _in_fsdp(code: CodeType) -> bool:
    """Whether it is a hook of FSDP's at a forward or backward pass, which nobody calls."""
    if not code.co_filename.startswith(_FSDP):
        return False
    hook = code.co_qualname.startswith(_INSIDE_FSDP) or code.co_name.startswith("_")
    return hook and any(phase in code.co_name for phase in _PHASES)


def _is_gather(code: CodeType) -> bool:
    return os.path.dirname(code.co_filename) == _GATHERS


def _is_distributed(code: CodeType) -> bool:
    return code.co_filename.startswith(_PARALLEL)
