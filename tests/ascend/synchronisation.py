"""The synchronisations of a lowered source, as the groups of lines that a mutation leaves out together."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

FLAG = re.compile(r"AscendC::(Set|Wait)Flag<AscendC::HardEvent::(\w+)>\((.+)\);")
BARRIER = re.compile(r"AscendC::PipeBarrier<PIPE_(\w+)>\(\)")
CROSS = re.compile(r"AscendC::CrossCore(Set|Wait)Flag(?:<[^>]*>)?\((\w+)\)")


class Synchronisation(NamedTuple):
    name: str
    lines: tuple[int, ...]


def synchronisations(source: Path) -> list[Synchronisation]:
    """Every barrier; every set flag that is waited for at once; of every other event, all its sets and waits."""
    lines = source.read_text().splitlines()
    found: list[Synchronisation] = []
    loose: dict[str, list[int]] = {}
    paired: set[int] = set()
    for (number, line), (_, following) in pairwise(enumerate([*lines, ""], start=1)):
        if barrier := BARRIER.search(line):
            found.append(Synchronisation(f"barrier of {barrier[1]} at {number}", (number,)))
        first, second = FLAG.search(line), FLAG.search(following)
        if first and second and (first[1], second[1]) == ("Set", "Wait") and first.groups()[1:] == second.groups()[1:]:
            found.append(Synchronisation(f"{first[2]} {first[3]} at {number}", (number, number + 1)))
            paired |= {number, number + 1}
    for number, line in enumerate(lines, start=1):
        if number not in paired and (flag := FLAG.search(line)):
            loose.setdefault(f"{flag[2]} {flag[3]}", []).append(number)
        if cross := CROSS.search(line):
            loose.setdefault(f"cross-core flag {cross[2]}", []).append(number)
    return [*found, *(Synchronisation(name, tuple(numbers)) for name, numbers in loose.items())]
