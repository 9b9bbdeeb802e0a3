"""Random prefills, beside a copy on another stream, until a time is up; a call that hangs ends the process.

    python tests/gpu/soak.py --minutes 5

Each problem is called many times: the calls agree to the bit, rows without a slot are zero, and problems small enough
for it are compared with the float64 oracle.
"""

from __future__ import annotations

import argparse
import faulthandler
import random
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

import tolerances
from cases import BF16, F16, F32, SLOTS, Heads
from compare import assert_bit_equal, assert_zero
from problems import DeltaRule, Run, delta_rule, token_rows
from sglang_gdn import context_parallel
from sglang_gdn.context_parallel import Settings

HEADS = [Heads(*pair) for pair in ((1, 1), (1, 3), (2, 4), (2, 8), (8, 24), (16, 32), (16, 64))]
HANGS_AFTER = 60  # seconds
REPEATS = 20
ORACLE_TOKENS = 8000  # times value heads


def random_lengths(rng: random.Random) -> list[int]:
    longest = rng.choice([1, 5, 64, 65, 130, 600, 5000])
    rows = rng.choice([1, 1, 2, 3, 7, 20, 60])
    others = [rng.choice([0, 1, longest, rng.randint(0, longest)]) for _ in range(min(rows, 12000 // longest) - 1)]
    return rng.sample([longest, *others], 1 + len(others))


def random_problem(rng: random.Random) -> DeltaRule:
    lens = random_lengths(rng)
    slots = max(SLOTS, len(lens) + 1)
    ids = [slot if rng.random() < 0.9 else -1 for slot in rng.sample(range(slots), len(lens))]
    return delta_rule(
        "cuda", rng.choice(HEADS), lens, ids=ids, slots=slots, initial=[rng.random() < 0.7 for _ in lens],
        act=rng.choice([BF16, F16]), state=rng.choice([F32, F32, BF16]), gates=rng.choice(["model", "half-none"]),
        norm=rng.random() < 0.5, pad_tokens=rng.choice([0, 3, 70]), seed=rng.randrange(2**31),
        index_dtype=rng.choice([torch.int32, torch.int64]),
    )  # fmt: skip


def check_zeros(problem: DeltaRule, run: Run) -> None:
    others = torch.ones(len(run.o), dtype=torch.bool)
    others[token_rows(problem.args["cu_seqlens"], problem.args["cache_indices"])] = False
    assert_zero(run.o[others.to(run.o.device)], "o of padding")


def soak(seconds: float, seed: int) -> None:
    rng = random.Random(seed)
    side, blob = torch.cuda.Stream(), torch.zeros(16 << 20, device="cuda")
    end, problems, compared, shown = time.monotonic() + seconds, 0, 0, time.monotonic()
    while time.monotonic() < end:
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        problem = random_problem(rng)
        context_parallel.settings = Settings(rng.choice(["never", "auto", "always"]), 512)
        first = problem.run()
        check_zeros(problem, first)
        for _ in range(REPEATS):
            with torch.cuda.stream(side):
                blob.copy_(blob.flip(0))
            again = problem.run()
            assert_bit_equal(again.o, first.o, "o")
            assert_bit_equal(again.ssm.tensor, first.ssm.tensor, "ssm_pool")
        if problem.args["v"].shape[1] * problem.args["v"].shape[2] <= ORACLE_TOKENS:
            bound = max(
                tolerances.limit("cuda", "prefill_state", problem.ssm.dtype),
                tolerances.undecayed_state_limit("cuda", problem.ssm.dtype),
            )
            problem.check(first, problem.expected(), bound)
            compared += 1
        problems += 1
        if time.monotonic() > shown + 10:
            shown = time.monotonic()
            print(f"{problems} problems, {end - shown:.0f} s to go", file=sys.stderr, flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"seed {seed}: {problems} problems in {seconds:.0f} s, {problems * (REPEATS + 1)} calls, {compared} compared")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(2)
    soak(60 * args.minutes, args.seed)


if __name__ == "__main__":
    main()
