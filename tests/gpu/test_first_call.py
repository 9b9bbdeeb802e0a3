"""A process whose first launch of our kernels happens while a graph is captured."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
from sglang_gdn import ops

a, b = torch.randn(2, 7, 4, device="cuda").bfloat16()
A_log, dt_bias = torch.rand(2, 4, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    g, beta = ops.gdn_gating(A_log, a, b, dt_bias)
graph.replay()
torch.cuda.synchronize()
torch.testing.assert_close(beta[0], torch.sigmoid(b.float()))
torch.testing.assert_close(g[0], -A_log.exp() * torch.nn.functional.softplus(a.float() + dt_bias))
"""


def test_first_call_inside_a_capture():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=120)
