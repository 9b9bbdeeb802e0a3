"""What the contract suite runs over: heads, lengths, slots, gates, dtypes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


@dataclass(frozen=True)
class Heads:
    H: int
    HV: int
    K: int = 128
    V: int = 128

    @property
    def ratio(self) -> int:
        return self.HV // self.H

    @property
    def conv_dim(self) -> int:
        return 2 * self.H * self.K + self.HV * self.V

    def __str__(self) -> str:
        sizes = "" if (self.K, self.V) == (128, 128) else f"-k{self.K}v{self.V}"
        return f"h{self.H}hv{self.HV}{sizes}"


# Kernels on tensor cores take heads of 128 channels and 16-bit activations. The CPU takes any, and small heads in
# float32 say more per second there. conftest.py calls `for_device` before the tests are imported.
HEAD_SIZE = 64
ACTIVATION = ELEMENTWISE_ACTIVATION = F32  # the second for convolution and gates alone
STATES = SERVED_STATES = [F32, BF16, F16]
PREFILL_ACTIVATIONS = DECODE_ACTIVATIONS = ACTIVATIONS = [F32, BF16, F16]
ODD_HEADS = [Heads(1, 2, 128, 64)]
ODD_DECODE_HEADS = [Heads(1, 2, 64, 128)]
WINDOWS_BY_TOKEN = False  # windows of the convolution lie as [W-1, D] in memory, as on an NPU
DRAFT_TREES = True  # drafts may name a parent


def for_device(device: str) -> None:
    global HEAD_SIZE, ACTIVATION, PREFILL_ACTIVATIONS, ODD_HEADS, SMALL, TRIPLE
    global ELEMENTWISE_ACTIVATION, DECODE_ACTIVATIONS, SERVED_STATES, ODD_DECODE_HEADS, WINDOWS_BY_TOKEN, DRAFT_TREES
    if device != "cpu":
        HEAD_SIZE, ACTIVATION = 128, BF16
        PREFILL_ACTIVATIONS, ODD_HEADS = [BF16, F16], []
    if "npu" in device:
        DECODE_ACTIVATIONS, SERVED_STATES, ODD_DECODE_HEADS = [BF16, F16], [F32], []
        ELEMENTWISE_ACTIVATION, WINDOWS_BY_TOKEN, DRAFT_TREES = BF16, True, False
    SMALL, TRIPLE = small(2, 4), small(2, 6)


def small(H: int, HV: int) -> Heads:
    return Heads(H, HV, HEAD_SIZE, HEAD_SIZE)


# 16/32, 16/48, 16/64 and 16/16 of the public Qwen models under tensor parallelism 1, 2, 4, 8 and 16.
QWEN_TP = [
    Heads(H // tp, HV // tp)
    for H, HV in ((16, 32), (16, 48), (16, 64), (16, 16))
    for tp in (1, 2, 4, 8, 16)
]  # fmt: skip
# The same ratios with few heads, and head sizes that tell K from V.
RATIOS = [Heads(1, 1), Heads(2, 2), Heads(2, 4), Heads(2, 6), Heads(1, 4)]
ASYMMETRIC = [Heads(2, 6, 64, 128), Heads(2, 4, 128, 64), Heads(1, 2, 64, 64)]
SMALL = small(2, 4)
TRIPLE = small(2, 6)

# Options of a layer as Qwen's have them, for which some kernels take 16 bytes at a time.
QWEN = {"act": BF16, "conv": BF16, "bias": False}

CHUNK_EDGES = [1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 127, 128, 129]
VARLEN = {
    "empty-middle": [128, 0, 128],
    "empty-ends": [0, 410, 0, 431, 294, 0],
    "all-empty": [0, 0, 0],
    "tail-tokens": [127, 1],
    "mixed": [130, 65, 3],
    "aligned": [64, 64],
    "short-long": [1, 70, 200],
    "around-chunk": [63, 127, 64],
    "sevens": [7] * 19,
    "three-chunks": [64, 111, 192],
    "57-2-5": [57, 2, 5],
    "descending": [2049, 1011, 513, 256, 128, 65, 32, 16, 8, 4, 5, 1],
    "unaligned": [500, 700, 900],
}

# Slot ids of four rows; -1 is padding. The pool they index has SLOTS slots.
SLOTS = 9
ID_PATTERNS = {
    "arange": [0, 1, 2, 3],
    "scattered": [7, 2, 5, 3],
    "slot-0-live": [0, -1, 2, -1],
    "last-slot-live": [SLOTS - 1, -1, -1, 3],
    "both-ends-live": [-1, SLOTS - 1, -1, 0],
    "leading-pads": [-1, -1, 4, 6],
    "all-pads": [-1, -1, -1, -1],
}

INDEX_DTYPES = [torch.int32, torch.int64]
GATES = ["model", "none", "half-none", "forget", "beta-0", "beta-1"]
EXTRA_PITCH = [0, 96, 16384]
CONV_WIDTHS = [2, 3, 4]

MOST_BLOCKS = 65535  # of a launch on an NPU, and of two dimensions of a grid on a GPU


def name_of(value: object) -> str:
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    return str(value)
