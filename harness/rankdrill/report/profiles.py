"""What a gather promises, and what came of it: a line for each promise, then what is wrong, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from rankdrill.conformance.kit.answers import Answer
from rankdrill.conformance.promises import Promise

__all__ = ["print_profiles"]


def print_profiles(answers: Sequence[Answer], console: Console) -> None:
    """Print, for each gather, a verdict on each promise; then each promise that is broken, and how to ask again."""
    for path in dict.fromkeys(answer.path for answer in answers):
        its = [answer for answer in answers if answer.path == path]
        console.print(Text(path, "bold"), soft_wrap=True)
        for promise in Promise:
            of_it = [answer for answer in its if answer.question.promise is promise]
            if of_it:
                console.print(_profile(promise, of_it), soft_wrap=True)
    failed = [answer for answer in answers if answer.failed]
    for number, answer in enumerate(failed, 1):
        console.print()
        for line in _in_full(number, answer):
            console.print(line, soft_wrap=True)


def _profile(promise: Promise, answers: Sequence[Answer]) -> Text:
    wrong = [answer for answer in answers if answer.complaint]
    asked = f"{len(answers)} question{'s' if len(answers) != 1 else ''}"
    text = Text.assemble(f"  {promise:<12}")
    if not wrong:
        return text.append(f"{'kept':<9}", "green").append(asked, "dim")
    if answers[0].promised:
        return text.append(f"{'BROKEN':<9}", "bold red").append(f"{len(wrong)} of {asked}", "dim")
    said = f"{len(wrong)} of {asked} would fail: {wrong[0].question.id}, {wrong[0].complaint.splitlines()[0]}"
    return text.append(f"{'not promised; ':<9}", "yellow").append(said, "dim")


def _in_full(number: int, answer: Answer) -> Iterator[Text]:
    head = (f"{number}. not {answer.question.promise}", "bold red")
    yield Text.assemble(head, (f"  {answer.path}", "bold"), f" · {answer.question.id}")
    for line in answer.complaint.splitlines():
        yield Text(line)
    yield Text.assemble(("again: ", "dim"), (answer.repeat, "yellow"))
