"""Every fault in the catalogue is noticed by the contract suite."""

from __future__ import annotations

import pytest

from mutations.catalogue import MUTATIONS
from mutations.mutants import MutantBuild, killed

pytestmark = pytest.mark.mutation


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return MutantBuild(tmp_path_factory.mktemp("mutants"))


def test_the_sound_build_passes(build):
    done = build.run_tests(tuple(dict.fromkeys(test for mutation in MUTATIONS for test in mutation.tests)))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_mutant_is_killed(build, mutation):
    done = build.with_mutation(mutation)
    assert killed(done), f"{mutation} survived:\n{done.stdout}{done.stderr}"
