"""What the suites of `make release-check` have in common: how many cases, from which seed, and their row of figures.

A small part of everything can be tried: ESCOUNTS_RELEASE_SHARE=0.02 takes a fiftieth of the cases (and of the
seconds); ESCOUNTS_RELEASE_SEED=7 takes other cases than the last release did.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

SHARE = float(os.environ.get("ESCOUNTS_RELEASE_SHARE", "1"))
SEED = int(os.environ.get("ESCOUNTS_RELEASE_SEED", "0"))
KEEP = os.environ.get("ESCOUNTS_RELEASE_KEEP")
"""A folder for inputs that failed: pytest's own are gone a few runs later."""
FAULTS = ("lost", "hang", "crash", "traceback")


def share_of(cases: int) -> int:
    """As many of these cases (or seconds) as this run takes, at least one."""
    return max(1, round(cases * SHARE))


@dataclass
class Tally:
    """What became of some cases. failures: (which of FAULTS, what happened); a case fails once at most.

    lost: something finished was lost or changed, something half-written passed for whole, litter stayed, or the
    second run did not complete. hang: not over within its limit. crash: the process died by itself.
    """

    cases: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)

    def note(self, what: str, number: int = 1) -> None:
        """Something worth telling beside the figures: how many kills hit, how many files were refused."""
        self.notes[what] = self.notes.get(what, 0) + number

    def row(self) -> dict[str, int]:
        """Cases, survived, and how many of each fault."""
        faults = {fault: sum(kind == fault for kind, _ in self.failures) for fault in FAULTS}
        return {"cases": self.cases, "survived": self.cases - sum(faults.values()), **faults}

    def publish(self, name: str) -> None:
        """Print the row for release_check.py; rows of one name are added up there."""
        publish(name, self.row(), self.notes)


def publish(name: str, row: Mapping[str, int], notes: Mapping[str, int] | None = None) -> None:
    """Print a line that release_check.py reads."""
    print(f"\nRELEASE-ROW {json.dumps({'name': name, **row, 'notes': dict(notes or {})})}")
