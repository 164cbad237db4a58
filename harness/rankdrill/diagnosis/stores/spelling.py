"""Whether a key was meant for another one and is written in another way: a slip, or a number in another form."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "a_word_apart",
    "in_other_letters",
    "of_the_same_parts",
    "same_but_for_separators",
    "same_but_for_spelling",
    "same_form",
    "says_twice",
    "separators_of",
    "words_of",
]

_NUMBER = re.compile(r"\d+")
_SEPARATORS = re.compile(r"[-_./: ]+")
LONG, SHORT = 6, 4  # letters of a text in which two, and one, may be wrong


def same_but_for_spelling(key: str, other: str) -> bool:
    """Whether the two differ in zeros before numbers, in case, in separators, or in one letter or two, and in no more.

    Of letters those are counted that are added, left out, changed, or swapped with the next.
    """
    if key == other or _numbers(key) != _numbers(other):
        return False
    one, two = (_letters("/".join(parts)) for parts in _differing(key.split("/"), other.split("/")))
    shorter = min(len(one), len(two))
    return _slips(one, two) <= (2 if shorter >= LONG else 1 if shorter >= SHORT else 0)


def same_but_for_separators(key: str, other: str) -> bool:
    return key != other and _SEPARATORS.sub("/", key) == _SEPARATORS.sub("/", other)


def in_other_letters(key: str, other: str) -> bool:
    """Whether the two differ in zeros before numbers, in case, in separators, or in one letter that one of them lacks.

    What differs in a letter that is another one may well be another name: ``a.done`` and ``b.done``.
    """
    if key == other or _numbers(key) != _numbers(other):
        return False
    one, two = (_letters("/".join(parts)) for parts in _differing(key.split("/"), other.split("/")))
    return one == two or (abs(len(one) - len(two)) == 1 and min(len(one), len(two)) >= SHORT and _slips(one, two) <= 1)


def of_the_same_parts(key: str, other: str) -> bool:
    """Whether the two differ in the order of what stands between slashes, and in no more."""
    return key != other and sorted(key.split("/")) == sorted(other.split("/"))


def a_word_apart(key: str, other: str) -> bool:
    """Whether one of the two has one word more than the other, and is the same without it: ``grad_clip``, ``clip``."""
    shorter, longer = sorted((_SEPARATORS.split(key), _SEPARATORS.split(other)), key=len)
    dropped = (longer[:at] + longer[at + 1 :] for at in range(len(longer)))
    return len(longer) == len(shorter) + 1 and shorter in dropped


def says_twice(key: str, other: str) -> bool:
    """Whether `key` is `other` with some of its parts, between slashes, once more behind themselves: ``a/a/1``."""
    parts, meant = key.split("/"), other.split("/")
    more = len(parts) - len(meant)
    return more > 0 and any(
        parts[at : at + more] == parts[at + more : at + 2 * more]
        and parts[:at] + parts[at + more :] == meant
        and not all(part.isdigit() for part in parts[at : at + more])
        for at in range(len(parts) - 2 * more + 1)
    )


def separators_of(key: str) -> tuple[str, ...]:
    """What is between its words and numbers."""
    return tuple(_SEPARATORS.findall(key))


@lru_cache(maxsize=1 << 14)  # asked for each two of many keys
def cases_of(key: str) -> frozenset[str]:
    """How its words are written: in small letters, in capitals, with a capital at the beginning, or otherwise."""
    words = re.findall(r"[^\W\d_]+", key)
    return frozenset(
        "small" if word.islower() else "capitals" if word.isupper() else "title" if word.istitle() else "mixed"
        for word in words
    )


def words_of(key: str) -> tuple[str, ...]:
    """What is between the numbers of a key."""
    return tuple(_NUMBER.split(key))


def same_form(key: str, other: str) -> bool:
    """Whether the two differ in one number alone, and write it in one form: padded to one width, or not padded."""
    mine, theirs = _NUMBER.findall(key), _NUMBER.findall(other)
    differing = [(one, two) for one, two in zip(mine, theirs, strict=False) if one != two]
    if _NUMBER.split(key) != _NUMBER.split(other) or len(differing) != 1:
        return False
    one, two = differing[0]
    return len(one) == len(two) or not (_padded(one) or _padded(two))


def _differing(one: list[str], two: list[str]) -> tuple[list[str], list[str]]:
    """Without the parts that both begin with: those say nothing."""
    while one and two and one[0] == two[0]:
        one, two = one[1:], two[1:]
    return one, two


def _numbers(key: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(key)]


def _letters(key: str) -> str:
    """Without separators; a number is one letter, so that it stays between what it is between."""
    return _SEPARATORS.sub("", _NUMBER.sub("0", key)).casefold()


def _padded(number: str) -> bool:
    return len(number) > 1 and number.startswith("0")


def _slips(one: str, two: str) -> int:
    """How many letters are added, left out, changed, or swapped with the next."""
    before: list[int] = []
    last = list(range(len(two) + 1))
    for row, mine in enumerate(one, 1):
        line = [row]
        for column, theirs in enumerate(two, 1):
            cost = min(last[column] + 1, line[-1] + 1, last[column - 1] + (mine != theirs))
            if before and column > 1 and mine == two[column - 2] and one[row - 2] == theirs:
                cost = min(cost, before[column - 2] + 1)
            line.append(cost)
        before, last = last, line
    return last[-1]
