"""One checkpoint per architecture and one server per configuration, each started once."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from serving.checkpoints import Checkpoint
from serving.rig import grid_of_64  # noqa: F401
from serving.server import Service, serving
from sglang_gdn import cpu_engine


@dataclass(frozen=True)
class Configuration:
    """A model, SGLang's flags for it, and what the flags mean for the tests.

    Attributes:
        grid: depth in tokens to which prompts are cached while prefilling; 1 = every prompt end (``no_buffer``).
    """

    checkpoint: str
    grid: int
    flags: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


_EXTRA_BUFFER = ("--mamba-radix-cache-strategy", "extra_buffer", "--mamba-track-interval", "64")
_NO_BUFFER = ("--mamba-radix-cache-strategy", "no_buffer", "--disable-overlap-schedule")
_CHUNKED = ("--chunked-prefill-size", "64")

CONFIGURATIONS = {
    "qwen3_5-extra_buffer": Configuration("qwen3_5", 64, (*_EXTRA_BUFFER, "--enable-metrics")),
    "qwen3_next_moe-no_buffer-chunked": Configuration("qwen3_next_moe", 1, (*_NO_BUFFER, *_CHUNKED)),
    "qwen3_5_moe-extra_buffer-chunked-mixed-retract": Configuration(
        "qwen3_5_moe",
        64,
        (*_EXTRA_BUFFER, *_CHUNKED, "--enable-mixed-chunk"),
        # Throws a running request out of every batch of two or more at each seventh step.
        {
            "SGLANG_TEST_RETRACT": "1",
            "SGLANG_TEST_RETRACT_INTERVAL": "7",
            "SGLANG_GDN_DEBUG": "1",
            "SGLANG_GDN_DEBUG_STEPS": "1",
        },
    ),
}


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Checkpoint]:
    made: dict[str, Checkpoint] = {}

    def get(name: str) -> Checkpoint:
        if name not in made:
            made[name] = Checkpoint(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


@pytest.fixture(scope="session", params=CONFIGURATIONS)
def service(
    request: pytest.FixtureRequest,
    checkpoint_of: Callable[[str], Checkpoint],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    configuration = CONFIGURATIONS[request.param]
    checkpoint = checkpoint_of(configuration.checkpoint)
    log = tmp_path_factory.mktemp("server") / "log"
    with serving(
        checkpoint, log, *configuration.flags, grid=configuration.grid, **configuration.environment
    ) as service:
        yield service


@pytest.fixture
def cold(service: Service) -> Service:
    """The service with nothing cached."""
    service.server.flush()
    return service


@pytest.fixture(scope="session")
def sglang_on_cpu() -> None:
    """Imports SGLang into this process as on a machine without a GPU, and leaves the environment as it was."""
    before = dict(os.environ)
    cpu_engine.enable()
    try:
        importlib.import_module("sglang_gdn.serving.backend")
    finally:
        os.environ.clear()
        os.environ.update(before)
