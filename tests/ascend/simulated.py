"""``sglang_gdn._C`` for a simulated NPU: the same calls, on CPU tensors that are said to be on it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from sglang_gdn.errors import GdnNoKernelError, GdnTypeError, GdnUnsupportedError, GdnValueError

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent
PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.bool)
ERRORS = {
    "no_kernel": GdnNoKernelError, "type": GdnTypeError, "value": GdnValueError, "unsupported": GdnUnsupportedError,
}  # fmt: skip
NPU = 2
MAX_DIMS = 6


class UnreadableError(Exception):
    """An argument that the binding refuses on every device; here it is called without one."""


class SimulatorReportError(AssertionError):
    """The program would not, or not surely, do on hardware what it did here."""


class TensorRef(ctypes.Structure):
    """gdn::TensorRef."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("present", ctypes.c_bool),
        ("dtype", ctypes.c_uint8),
        ("device", ctypes.c_uint8),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("stride", ctypes.c_int64 * MAX_DIMS),
    )


def tensor_ref(tensor: Tensor | None) -> TensorRef:
    ref = TensorRef(device=NPU)
    if tensor is not None:
        wants_gradient = tensor.requires_grad and torch.is_grad_enabled()
        if tensor.dtype not in DTYPES or not tensor.is_cpu or tensor.dim() > MAX_DIMS or wants_gradient:
            raise UnreadableError
        ref.data, ref.present, ref.ndim = tensor.data_ptr(), True, tensor.dim()
        ref.dtype = DTYPES.index(tensor.dtype)
        ref.shape[: tensor.dim()], ref.stride[: tensor.dim()] = tensor.shape, tensor.stride()
    return ref


def build(folder: Path, *definitions: str) -> Path:
    """Compiles the backend and the simulator; only what changed is compiled again."""
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    configure = ["cmake", "-S", SOURCES, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=Release", *definitions]
    for command in (configure, ["cmake", "--build", folder, "--parallel", "2"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
    return folder / "libsimulated.so"


class SimulatedModule:
    """Runs operators; every call fails if the simulator reports anything."""

    def __init__(self, library: Path) -> None:
        self.library = ctypes.CDLL(str(library))
        self.library.simulator_bytes.restype = ctypes.c_uint64
        self.library.simulator_reports.restype = ctypes.c_size_t
        self.library.simulated_register_kernels()
        self.one_at_a_time = threading.Lock()  # as on a stream; the simulator has one device

    def __getattr__(self, op: str) -> Callable[..., None]:
        return lambda stream, *arguments: self.call(op, arguments)

    def set_cores(self, cores: int) -> None:
        self.library.simulated_set_cores(cores)

    def workspace(self) -> Tensor:
        """Of the chunked delta rule; NaN."""
        return torch.full((self.library.simulated_chunk_workspace_elements(),), torch.nan)

    def chunk_gated_delta_rule(self, stream: int, *arguments: object) -> None:
        *inputs, _segment_states, _segment_chunks, out, _workspace, scale, qk_l2norm, update_state = arguments
        numbers = [scale, qk_l2norm, update_state]
        self.call("chunk_gated_delta_rule", [*inputs, out, self.workspace(), *numbers])

    def gdn_decode(self, stream: int, *arguments: object) -> None:
        *inputs, out, layout, scale, eps, _silu, _norm_silu = arguments
        reads_heads = all(isinstance(number, int) for number in inputs[:4])
        if not (reads_heads and isinstance(eps, int | float) and isinstance(scale, int | float | None)):
            raise UnreadableError
        if isinstance(out, Tensor) and out.dim() == 4 and len(out) == 1:
            out = out[0]
        self.call("gdn_decode", [*inputs, out, layout])

    def set_checks_only(self, value: bool) -> None:
        self.library.simulated_set_checks_only(ctypes.c_bool(value))

    def call(self, op: str, arguments: Sequence[object]) -> None:
        function = getattr(self.library, f"simulated_{op}")
        function.restype = ctypes.c_char_p
        with self.one_at_a_time:
            self.run(op, function, arguments)

    def run(self, op: str, function: Callable[..., bytes | None], arguments: Sequence[object]) -> None:
        tensors = [x for x in arguments if x is None or isinstance(x, Tensor)]
        numbers = [float(x) for x in arguments if isinstance(x, int | float)]
        if len(tensors) + len(numbers) < len(arguments):
            raise UnreadableError
        self.library.simulator_reset()
        for index, tensor in enumerate(tensors):
            if tensor is not None and tensor.numel() > 0:
                memory = tensor.untyped_storage()
                name = f"argument {index}".encode()
                self.library.simulator_register(
                    ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(memory.nbytes()), name
                )
        refs = (TensorRef * len(tensors))(*(tensor_ref(tensor) for tensor in tensors))
        error = function(refs, (ctypes.c_double * len(numbers))(*numbers))
        if error:
            kind, name, argument, message = error.decode().split("\n", 3)
            raise ERRORS[kind](message, name, argument) if kind in ERRORS else RuntimeError(message)
        reports = self.reports()
        if reports:
            raise SimulatorReportError("\n".join([op, *reports]))

    def reports(self) -> list[str]:
        """Everything reported since the last call began, "count text"."""
        text = ctypes.create_string_buffer(1 << 20)
        self.library.simulator_reports(text, len(text))
        return text.value.decode().splitlines()

    def leave_out(self, file: str, lines: Sequence[int]) -> None:
        """From now on ``file`` runs without the synchronisation at these lines."""
        self.library.simulator_leave_out(
            file.encode(), (ctypes.c_uint32 * len(lines))(*lines), ctypes.c_size_t(len(lines))
        )

    def launches(self) -> int:
        """Of the last call."""
        return self.library.simulator_launches()

    def bytes_moved(self) -> dict[str, int]:
        """Of the last call, by pipe: MTE2 reads global memory, MTE3 and FIX write it."""
        return {pipe: self.library.simulator_bytes(index) for index, pipe in enumerate(PIPES)}
