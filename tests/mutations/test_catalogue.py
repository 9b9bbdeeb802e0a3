"""The catalogue of faults fits the sources, so that a renamed line is noticed without building a single mutant."""

from __future__ import annotations

from collections import Counter

import pytest

from mutations.catalogue import MUTATIONS
from mutations.mutants import ROOT, check_snippet


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_fault_applies_and_names_tests_that_exist(mutation):
    check_snippet(mutation)
    assert mutation.snippet != mutation.replacement
    for test in mutation.tests:
        file, function = test.split("::")
        assert f"def {function}(" in (ROOT / "tests" / "contract" / file).read_text(), test


def test_names_are_unique():
    assert max(Counter(mutation.name for mutation in MUTATIONS).values()) == 1
