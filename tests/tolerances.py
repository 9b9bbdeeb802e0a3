"""How far an output may be from the float64 oracle: relative L2 error by (device, output) and stored dtype.

Storing rounds once: to nearest, rounding alone leaves a relative L2 error of about 1.7e-3 in bfloat16 (8 bits) and
2.1e-4 in float16 (11 bits). A limit for those dtypes is that rounding plus what the arithmetic may add.
"""

from __future__ import annotations

import math

import torch

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16

# The CPU computes in float32 whatever the inputs are stored in, so only storing costs more than float32 accuracy.
CPU = {
    "conv": {F32: 1e-6, BF16: 3e-3, F16: 1e-3},  # at most 5 products a sum, then one rounding
    "prefill_o": {F32: 1e-5, BF16: 5e-3, F16: 1e-3},  # float32 against token by token; bf16: what peers on a GPU reach
    "prefill_state": {F32: 1e-5, BF16: 3e-3, F16: 1e-3},  # the same, stored once at the end
    "decode_o": {F32: 1e-6, BF16: 3e-3, F16: 1e-3},  # one pass over the state: two sums of K products
    "decode_state": {F32: 1e-6, BF16: 3e-3, F16: 1e-3},
}

# Tensor cores, and the cube cores of an NPU, multiply bf16/fp16 operands: the limits are what four published kernels
# reach on an H200 against an fp32 recurrence (o 3.8e-3, state 3.0e-3..3.5e-3); for decode the single rounding of each
# output.
CUDA = {
    "conv": {F32: 1e-6, BF16: 3e-3, F16: 1e-3},
    "prefill_o": {F32: 5e-3, BF16: 5e-3, F16: 5e-3},
    "prefill_state": {F32: 3e-3, BF16: 5e-3, F16: 3e-3},
    "decode_o": {F32: 1e-5, BF16: 3e-3, F16: 1e-3},
    "decode_state": {F32: 1e-5, BF16: 3e-3, F16: 1e-3},
}

NPU = dict(CUDA)

LIMITS = {"cpu": CPU, "cuda": CUDA, "npu": NPU}

# A fused operator splits the convolution's output after rounding it to the activation dtype. Where the float64 sum lies
# next to a rounding boundary, the float32 sum may land on the other side, and that element differs by one unit in the
# last place: rarely, but by more than float32 accuracy. Its state is then held to the limit of its activations.
FUSED_STATE_OF_ACTIVATION = {F32: 0.0, BF16: 3e-3, F16: 1e-3}

GATE = 1e-6  # absolute for beta, relative for g: float32 exp, log1p and one product
CONV_MAX_ABS_BF16 = 1e-2  # one bf16 rounding of values around 1
SPLIT = {F32: 1e-5, BF16: 2e-3, F16: 2e-3}  # split prefill against one shot, by pool dtype or activation dtype
ONE_TOKEN_PREFILL = 1e-3  # chunked prefill of one token against the decode step
FORGET_ALL = 1e-3  # gates of log(1e-12) a token
HUGE_STATE = 1e-3  # entries of 1e5 that nothing decays

# Absolute limits of SGLang's own kernel test: normalised q and k, A in U(0, 16), initial state times 0.05.
SGLANG_RECIPE = {"o_max": 2e-3, "o_mean": 6e-5, "state_max": 2e-2, "state_mean": 6e-4}


def limit(device: str, output: str, stored: torch.dtype) -> float:
    return LIMITS[device.partition(":")[0]][output][stored]


def draft_output_limit(device: str, activation: torch.dtype, state: torch.dtype) -> float:
    """``decode_o`` for several tokens a row.

    Between them the state is rounded to the pool's dtype, where float32 and float64 may land on different sides.
    """
    return max(limit(device, "decode_o", activation), limit(device, "decode_state", state))


def fused_state_limit(device: str, output: str, stored: torch.dtype, activation: torch.dtype) -> float:
    """Two independent errors: that of the state's arithmetic, and that of its inputs."""
    return math.hypot(limit(device, output, stored), FUSED_STATE_OF_ACTIVATION[activation])


def undecayed_state_limit(device: str, stored: torch.dtype) -> float:
    """Of prefill where nothing decays.

    Tensor cores read the state rounded to 16 bits, and no decay shrinks what that adds: published kernels reach
    3.5e-3 in bfloat16.
    """
    return max(limit(device, "prefill_state", stored), 3.5e-3 if on_tensor_cores(device) else 0)


def chunked_limit(device: str, float32_limit: float, output: str, stored: torch.dtype) -> float:
    """What is only compared in float32 on the CPU is held to ``output``'s limit where operands have 16 bits.

    Not the state on an NPU, where what is summed again is multiplied in two parts.
    """
    in_two_parts = LIMITS[device.partition(":")[0]] is NPU and output == "prefill_state"
    return limit(device, output, stored) if on_tensor_cores(device) and not in_two_parts else float32_limit


def on_tensor_cores(device: str) -> bool:
    return LIMITS[device.partition(":")[0]] is not CPU
