"""Every fault in the catalogue is noticed by the contract suite."""

from __future__ import annotations

import pytest

from mutations.catalogue import MUTATIONS
from mutations.mutants import MutantBuild, named_tests

pytestmark = pytest.mark.mutation


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return MutantBuild(tmp_path_factory.mktemp("mutants"), MUTATIONS)


def test_the_sound_build_passes(build):
    done = build.run_tests(build.sound, named_tests(MUTATIONS))
    assert done.exit_status == 0, done.output


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_mutant_is_killed(build, mutation):
    done = build.with_mutation(mutation)
    assert done.killed, f"{mutation} survived:\n{done.output}"
