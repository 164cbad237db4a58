"""Messages in words: what one rank does at its end of one."""

from __future__ import annotations

from rankdrill.diagnosis.calls.naming import named
from rankdrill.ledger import LedgerView, Record
from rankdrill.step import ANY_TAG, ANYBODY, DEFAULT_GROUP, NO_SEQUENCE, SEND, Kind, Site

__all__ = ["expects", "last_call", "leaves_out", "message", "sends", "tagged", "waits", "without"]

_PLAIN = frozenset({"", "send", "recv", "isend", "irecv"})


def message(source: int, target: int, tag: int, number: int, group: str) -> str:
    """``message #3 from rank 0 to rank 1 (tag 0) on 'default'``: what a finding is about."""
    told = "" if tag == ANY_TAG else f" (tag {tag})"
    return f"message #{number} from rank {source} to rank {target}{told} on {group!r}"


def sends(shown: str, target: int, tag: int, group: str, site: Site | None) -> str:
    """``sends int64[3] to rank 1 (tag 0)``."""
    return f"sends {shown or 'nothing'} to rank {target} {tagged(tag, group, site)}"


def expects(shown: str, source: int, tag: int, group: str, site: Site | None) -> str:
    """``expects float32[4] from rank 0 (tag 0)``."""
    return f"expects {shown or 'nothing'} from rank {source} {tagged(tag, group, site)}"


def tagged(tag: int, group: str, site: Site | None = None) -> str:
    """``(tag 0)``, if it is known, and whose message it is where the user called something else than send or recv."""
    via = site.via if site is not None else ""
    by = "" if via in _PLAIN else f", by {via}"
    on = "" if group == DEFAULT_GROUP else f"on {group!r}"
    return " ".join(filter(None, ("" if tag == ANY_TAG else f"(tag {tag}{by})", on)))


def waits(record: Record) -> str:
    """``waits for a message from rank 0 (tag 0)``, ``waits in all_reduce #3 on 'default'``."""
    step = record.step
    if step.message is None:
        return f"waits in {_named(record)}"
    told = tagged(step.message.tag, step.target, step.site)
    peer = "anybody" if step.message.peer == ANYBODY else f"rank {step.message.peer}"
    if step.op == SEND:
        return f"waits for {peer} to receive {step.fingerprint.partition(' ')[0]} {told}"
    return f"waits for a message from {peer} {told}"


def without(*, sending: bool, peer: int, tag: int, number: int, group: str) -> str:
    """``without sending to rank 1 (tag 0)``; which message it is, where it is not the first."""
    what = f" message #{number}" if number else ""
    half = f"sending{what} to" if sending else f"receiving{what} from"
    return f"without {half} rank {peer} {tagged(tag, group)}"


def leaves_out(*, sending: bool, peer: int, tag: int, group: str) -> str:
    """``leaves out a send to rank 1 (tag 0)``."""
    return f"leaves out a {'send to' if sending else 'receive from'} rank {peer} {tagged(tag, group)}"


def last_call(view: LedgerView) -> tuple[str, Site | None]:
    """`` after all_reduce #3 on 'default'`` and its line: what a rank that returned did last; nothing, if nothing."""
    last = next(view.where(lambda kind, state: kind is Kind.COLLECTIVE, newest_first=True), None)
    return (f" after {_named(last)}", last.step.site) if last is not None else ("", None)


def _named(record: Record) -> str:
    step = record.step
    if step.message is not None:
        way = "to" if step.op == SEND else "from"
        peer = "anybody" if step.message.peer == ANYBODY else f"rank {step.message.peer}"
        return f"{step.op} {way} {peer} {tagged(step.message.tag, step.target, step.site)}"
    return named(step) if step.sequence != NO_SEQUENCE else f"{step.op} on {step.target!r}"
