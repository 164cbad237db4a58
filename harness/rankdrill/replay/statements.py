"""One call as the line of Python that makes it."""

from __future__ import annotations

import re
import textwrap
from ast import literal_eval
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from rankdrill.diagnosis import FindingKind
from rankdrill.replay.findings import NOT_COME_TO
from rankdrill.replay.merging import NOT_WAITING, Line
from rankdrill.replay.score import Call, Score, Tensor
from rankdrill.replay.staging import ADDED_TO, COUNTED_ON, DESTROY, IF_NOT_THERE, LATE, OWN, WHAT_CAME
from rankdrill.replay.ways import among
from rankdrill.step import ANYBODY, DEFAULT_GROUP, FILE_LOCKS, NEW_GROUP, NOBODY

__all__ = ["Groups", "statement"]

MOST_ELEMENTS = 1 << 20  # of one tensor: larger ones are played smaller, equal ones equal
LEAST_RECKONED = 3  # ranks of which one says where it lies from each
_SPREAD = 9973  # how many sizes stay apart there
_REDUCING = frozenset({"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"})
_REDUCE_OPS = frozenset({"avg", "product", "min", "max", "band", "bor", "bxor"})  # and "sum", which is the default
_TO_ROOT = frozenset({"reduce", "gather", "gather_object"})
_AT_ONCE = frozenset({"all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"})
_MESSAGES = frozenset({"send", "recv", "isend", "irecv"})
_DEFAULTS = frozenset({"op=dist.ReduceOp.SUM", "tag=0", "group=None", "src=None", "async_op=False"})
_NAMED = re.compile(r"[a-z_]+=")
_PLAIN = {  # which gloo makes one after another
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
}
UNLOCKED = "LOCK_UN"
_WORTH = {OWN: " * rank.index", WHAT_CAME: " * rows[0].sum()"}
_ISSUED = {"send": "isend", "recv": "irecv"}


class Groups:
    """The groups of a score: how each is called in the file, who is in it, and what its members bring to a call."""

    def __init__(self, score: Score) -> None:
        self._size, self._kind = score.world_size, score.kind
        self.members = dict(score.groups)
        made = [
            tuple((call.group, call.members) for call in part.calls if call.op == NEW_GROUP) for part in score.parts
        ]
        self.at_once = len(set(made)) == 1 and self._kind != FindingKind.LEAKED_GROUP
        """Whether all ranks make the same groups: then they are made first."""
        self._names = {name: f"group_{number}" for number, name in enumerate(self.members, start=1)}
        self._brought = {
            (call.group, call.op, call.number): call.tensors
            for part in score.parts
            for call in part.calls
            if call.tensors and call.number != NOBODY
        }

    def keepers(self, line: Line) -> tuple[int, ...]:
        """Who keeps the handle of an issued message: all, where nobody is told to have dropped it."""
        if self._kind != FindingKind.REQUEST_LEAK:
            return line.ranks
        return tuple(rank for rank, call in line.calls if call.waits)

    def size(self, group: str) -> int:
        return self._size if group == DEFAULT_GROUP else len(self.members.get(group, ())) or self._size

    def is_of_all(self, group: str) -> bool:
        """Whether all ranks are in `group`."""
        return self.size(group) == self._size

    def variable(self, group: str) -> str | None:
        """What the file calls `group`; None for the default one."""
        return None if group == DEFAULT_GROUP else self._names.setdefault(group, f"group_{len(self._names) + 1}")

    def variables_of(self, line: Line) -> list[str]:
        """What the file calls the groups that `line` makes, if anything was called on them."""
        made = {call.members for _, call in line.calls}
        return [self._names[name] for name, members in self.members.items() if members in made]

    def brought(self, call: Call) -> tuple[Tensor, ...]:
        """The tensors of `call`, or those that another rank brought to the same."""
        return call.tensors or self._brought.get((call.group, call.op, call.number), ())

    def made(self) -> list[str]:
        """The lines that make all groups."""
        return [f"{self._names[name]} = dist.new_group({list(members)})" for name, members in self.members.items()]


def statement(line: Line, groups: Groups) -> str:
    """The statement that makes the calls of `line`; empty where the file does that elsewhere.

    Where ranks give other arguments, each is chosen by the rank.
    """
    if line.touched:
        line = replace(line, calls=tuple((rank, replace(call, waits=False)) for rank, call in line.calls))
    if any(call.then for _, call in line.calls):
        return "\n".join(_in_orders(line, groups))
    told = {rank: _said(call, groups, is_root=rank == call.root) for rank, call in line.calls}
    known = {rank: (name, given) for rank, (name, given) in told.items() if name and not name.startswith("#")}
    if not known:
        return next(iter(told.values()))[0]
    if len({(name, len(given)) for name, given in known.values()}) > 1:
        return _by_rank({rank: f"{name}({', '.join(given)})" for rank, (name, given) in known.items()})
    name, first = next(iter(known.values()))
    places = ({rank: given[at] for rank, (_, given) in known.items()} for at in range(len(first)))
    arguments = [each for each in map(_chosen, places) if each not in _DEFAULTS]
    if line.touched:
        return "\n".join(_touching(line, name, arguments))
    said = f"{name}({', '.join(arguments)})"
    values = {call.value for _, call in line.calls}
    if {COUNTED_ON, ADDED_TO} & values:
        return f"got = {said}" if name.endswith("get") else said
    if name == "fcntl.flock" and UNLOCKED not in values:
        return f"locked.append(open(__file__))\n{said}"
    if IF_NOT_THERE in values:
        return f"if not rank.store.check([{arguments[0]}]):\n    {said}"
    if name == "dist.recv" and (many := max(int(each) if each.isdecimal() else 0 for each in values)):
        call = next(call for _, call in line.calls if call.value)
        row = groups.brought(call)[0] if groups.brought(call) else Tensor("float32", (1,))
        rows = _made(replace(row, shape=(many, *row.shape)), groups.size(call.group))
        return f"rows = {rows}\nfor row in rows:\n    {name}({', '.join(['row', *arguments[1:]])})"
    if any(call.op == "set" and not call.waits for _, call in line.calls):
        return f"published = False\nif published:  # it was not\n    {said}"
    if name == "dist.new_group":
        return " = ".join([*groups.variables_of(line), said])
    if not line.issued or not (kept := groups.keepers(line)):
        return said
    if kept == line.ranks:
        return f"works.append({said})"
    return f"work = {said}\nif {among(kept)}:\n    works.append(work)"


def _in_orders(line: Line, groups: Groups) -> Iterator[str]:
    """The same call on several groups, by some ranks in another order than by others."""
    ranks: dict[tuple[str, ...], list[int]] = {}
    for rank, call in line.calls:
        ranks.setdefault((call.group, *call.then), []).append(rank)
    ordered = sorted(ranks.items(), key=lambda each: len(each[1]))
    for at, (order, those) in enumerate(ordered):
        if len(ordered) > 1:
            yield "else:" if at + 1 == len(ordered) else f"{'el' * (at > 0)}if {among(those)}:"
        here = [(rank, call) for rank, call in line.calls if rank in those]
        for group in order:
            alike = tuple((rank, replace(call, group=group, then=())) for rank, call in here)
            said = statement(replace(line, calls=alike), groups) + f"  # {NOT_COME_TO}" * (group != order[0])
            yield textwrap.indent(said, "    " * (len(ordered) > 1))


def _touching(line: Line, name: str, given: Sequence[str]) -> Iterator[str]:
    """Its memory is touched between the call and the wait."""
    first, *others = given
    yield f"held = {first}"
    yield f"work = {name}({', '.join(['held', *others])})"
    one = "held[0]" if first.startswith("[") else "held"
    for how, done in (("wrote", "add_(1)"), ("read", "sum()")):
        ranks = [rank for rank, call in line.calls if call.touched == how]
        if ranks:
            yield f"if {among(ranks)}:"
            yield f"    {one}.{done}"
    yield "work.wait()"


def _chosen(by_rank: dict[int, str]) -> str:
    """An argument of a call; where ranks give others, with its name in front once."""
    values = set(by_rank.values())
    if len(values) == 1:
        return values.pop()
    heads = {value.partition("=")[0] if _NAMED.match(value) else "" for value in values}
    if len(heads) == 1 and (head := heads.pop()):
        return f"{head}={_by_rank({rank: value.partition('=')[2] for rank, value in by_rank.items()})}"
    return _by_rank(by_rank)


def _by_rank(by_rank: dict[int, str]) -> str:
    """An expression that is another one on other ranks: that of most of them last."""
    if reckoned := _reckoned(by_rank):
        return reckoned
    ranks: dict[str, list[int]] = {}
    for rank, value in by_rank.items():
        ranks.setdefault(value, []).append(rank)
    ordered = sorted(ranks.items(), key=lambda each: len(each[1]))
    *others, (usual, _) = ordered
    return "".join(f"{value} if {among(those)} else " for value, those in others) + usual


def _reckoned(by_rank: dict[int, str]) -> str:
    """What is so far from each rank's own number, or from it in a ring of all of them; empty where it is not."""
    if len(by_rank) < LEAST_RECKONED or not all(value.isdecimal() for value in by_rank.values()):
        return ""
    away = {int(value) - rank for rank, value in by_rank.items()}
    size = len(by_rank)
    if len(away) == 1:
        return _from_here(away.pop())
    if set(by_rank) == set(range(size)) and len(round_it := {each % size for each in away}) == 1:
        step = round_it.pop()
        return f"({_from_here(step if 2 * step <= size else step - size)}) % {size}"
    return ""


def _from_here(away: int) -> str:
    return f"rank.index {'-' if away < 0 else '+'} {abs(away)}" if away else "rank.index"


def _said(call: Call, groups: Groups, *, is_root: bool) -> tuple[str, list[str]]:
    """The function that `call` calls, and its arguments; the name is a comment where nobody knows how to call it."""
    if call.op == NEW_GROUP:
        if groups.at_once:
            return "", []
        return "dist.new_group", [str(list(call.members))]
    if call.op in FILE_LOCKS:
        return "fcntl.flock", ["locked.pop()" if call.value == UNLOCKED else "locked[-1]", f"fcntl.{call.value}"]
    if call.key:
        return _of_store(call)
    if call.op == LATE:
        return "time.sleep", ["0.5"]
    if call.op == DESTROY:
        return "dist.destroy_process_group", [f"{groups.variable(call.group)}"]
    arguments = _arguments(call, groups, is_root=is_root)
    if arguments is None:
        return f"# {call.op} is not played", []
    return _call(call, groups, *arguments)


def _arguments(call: Call, groups: Groups, *, is_root: bool) -> list[str] | None:
    """What `call` is given, in order; None for a call that nobody here knows how to make."""
    size = groups.size(call.group)
    brought = groups.brought(call) or (Tensor("float32", (1,)),)
    tensors = [_made(each, size) for each in brought]
    first, shape = tensors[0], brought[0]
    each = f"[{', '.join(tensors)}]" if len(tensors) == size else f"[{first} for _ in range({size})]"
    match call.op:
        case "barrier" | "monitored_barrier":
            return []
        case "all_reduce" | "reduce" | "broadcast" | "send" | "isend" | "recv" | "irecv":
            return [first + _WORTH.get(call.value, "")]
        case "all_reduce_coalesced":
            return [f"[{', '.join(tensors)}]"]
        case "all_gather":
            return [f"[{first} for _ in range({size})]", first]
        case "all_gather_into_tensor" | "all_gather_into_tensor_coalesced":
            return [_made(_times(shape, size), 1), first]
        case "gather" | "scatter":
            return [first, each if is_root else "None"]
        case "reduce_scatter":
            return [first, each]
        case "reduce_scatter_tensor" | "reduce_scatter_tensor_coalesced":
            return [_made(_part_of(shape, size), 1), first]
        case "all_to_all":
            return [each, each]
        case "all_to_all_single":
            return _of_all_to_all(call, shape, size)
        case "all_gather_object":
            return [f"[None] * {size}", "None"]
        case "gather_object":
            return ["None", f"[None] * {size}" if is_root else "None"]
        case "broadcast_object_list":
            return [f"[None] * {many}" if (many := prod(brought[0].shape)) > 1 else "[None]"]
        case "scatter_object_list":
            return ["[None]", f"[None] * {size}" if is_root else "None"]
    return None


def _call(call: Call, groups: Groups, *arguments: str) -> tuple[str, list[str]]:
    named = list(arguments)
    if call.op in _REDUCING and call.reduce_op in {*_REDUCE_OPS, "sum"}:
        named.append(f"op=dist.ReduceOp.{call.reduce_op.upper()}")
    if call.root != NOBODY:
        named.append(f"{'dst' if call.op in _TO_ROOT else 'src'}={call.root}")
    if call.op in ("send", "isend"):
        named.append(f"dst={call.peer}")
    if call.op in ("recv", "irecv"):
        named.append(f"src={call.peer if call.peer != ANYBODY else None}")
    if call.tag or call.op in _MESSAGES:
        named.append(f"tag={call.tag}")
    named.append(f"group={groups.variable(call.group)}")
    if call.op in _AT_ONCE or call.op == "monitored_barrier":
        return f"dist.{call.op}", named
    if call.op in _MESSAGES:
        return f"dist.{_issued(call)}", named
    named.append(f"async_op={not call.waits}")
    return f"dist.{_PLAIN.get(call.op, call.op)}", named


def _issued(call: Call) -> str:
    """A message's call by the name that does not wait, where it was issued so."""
    at_once = call.waits and call.via not in NOT_WAITING
    return call.op if at_once else _ISSUED.get(call.op, call.op)


def _of_all_to_all(call: Call, shape: Tensor, size: int) -> list[str]:
    if not call.receives and not call.sends:
        return [_made(shape, size)] * 2
    received = Tensor(shape.dtype, (sum(call.receives), *shape.shape[1:])) if call.receives else shape
    return [_made(received, size), _made(shape, size), str(list(call.receives) or None), str(list(call.sends) or None)]


def _of_store(call: Call) -> tuple[str, list[str]]:
    key = repr(call.key)
    match call.op:
        case "set" if call.value == COUNTED_ON:
            return "rank.store.set", [key, "str(float(got) + 1)"]
        case "set" if call.value == IF_NOT_THERE:
            return "rank.store.set", [key, "str(rank.index)"]
        case "set" if call.value == ADDED_TO:
            return "rank.store.set", [key, "got.decode() + ' and more'"]
        case "set":
            return "rank.store.set", [key, repr(_literal(call.value))]
        case "add":
            amount = call.value.removeprefix("+")
            return "rank.store.add", [key, amount if amount.lstrip("-").isdecimal() else "1"]
        case "get":
            return "rank.store.get", [key]
        case "wait":
            return "rank.store.wait", [f"[{key}]"]
        case "delete_key":
            return "rank.store.delete_key", [key]
    return f"# {call.op} of the store is not played", []


def _literal(shown: str) -> str:
    """The text that is `shown` as Python does; empty where it is none, of a long value say."""
    try:
        value = literal_eval(shown)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ""
    return value if isinstance(value, str) else ""


def _made(tensor: Tensor, size: int) -> str:
    shape = _small(tensor.shape, size)
    dtype = "" if tensor.dtype == "float32" else f", dtype=torch.{tensor.dtype}"
    if tensor.strides and shape == tensor.shape:
        return f"torch.empty_strided({shape}, {tensor.strides}{dtype})"
    lengths = ", ".join(map(str, shape)) if shape else "()"
    return f"torch.ones({lengths}{dtype})"


def _small(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    many = prod(shape)
    if many <= MOST_ELEMENTS:
        return shape
    short = MOST_ELEMENTS // size + many % _SPREAD
    return (short * size if many % size == 0 else short * size + 1,)


def _times(tensor: Tensor, size: int) -> Tensor:
    return Tensor(tensor.dtype, (tensor.shape[0] * size, *tensor.shape[1:]) if tensor.shape else (size,))


def _part_of(tensor: Tensor, size: int) -> Tensor:
    return Tensor(tensor.dtype, (tensor.shape[0] // size, *tensor.shape[1:]) if tensor.shape else ())
