"""What differs between NumPy, PyTorch, JAX and CuPy, and nothing else.

Requirements met here:

- arrays are computed where they live; a framework is touched only when the caller's array comes from it;
- sums are kept in float64, on the array's own device where that device has float64, on the host otherwise;
- reduced-precision products (TF32, autocast, "medium" matmul precision) never reach a score;
- numbers too large to compute with become Inf or NaN without a warning; the scores refuse them;
- what a library can do in place is done in place, as the temporaries here are as large as the data.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from gdscore.errors import GdscoreError

Array: TypeAlias = Any
"""An array of NumPy, PyTorch, JAX or CuPy: they share no static type."""

namespace = compat.array_namespace
is_array = compat.is_array_api_obj
is_numpy = compat.is_numpy_array
is_torch = compat.is_torch_array
is_jax = compat.is_jax_array
device = compat.device


def library(x: Array) -> str:
    """Name of the library an array comes from."""
    return "jax" if is_jax(x) else type(x).__module__.split(".")[0]


def on_host(x: Array) -> bool:
    """Whether reading a value of the array costs no synchronisation with an accelerator."""
    return is_numpy(x) or str(device(x)).lower().startswith(("cpu", "tfrt_cpu"))


def to_numpy(x: Array) -> NDArray[Any]:
    """Copy an array of any library to the host; half precisions NumPy lacks become float32."""
    if is_torch(x):
        x = x.detach().cpu()
        return np.asarray(x.float() if str(x.dtype) == "torch.bfloat16" else x)
    if np.ma.isMaskedArray(x):  # what is under the mask would count
        raise GdscoreError("Expected arrays without a mask, but got a masked array: fill or drop what is masked first")
    host = np.asarray(x.get() if compat.is_cupy_array(x) else x)
    return host.astype(np.float32) if host.dtype.name == "bfloat16" else host


def fetch(x: Array) -> Callable[[], NDArray[Any]]:
    """Begin to copy an array to the host; the function returned gives it, and waits only for what it depends on."""
    if is_torch(x) and x.is_cuda:
        import torch

        host = x.detach().to("cpu", non_blocking=True)
        copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(x.device))

        def fetched() -> NDArray[Any]:
            copied.synchronize()
            return to_numpy(host)

        return fetched
    on_host = to_numpy(x)
    return lambda: on_host


def is_real(x: Array) -> bool:
    """Whether the array holds real floating-point numbers that its library can compute with."""
    try:
        return bool(namespace(x).isdtype(x.dtype, "real floating"))
    except TypeError:  # NumPy's answer to dtypes of other packages
        return False


def native(x: Array) -> Array:
    """Array in the machine's byte order and in a precision that every library computes in, the values unchanged.

    Big-endian arrays are turned round, long double becomes float64, and the 8-bit formats and NumPy's bfloat16
    (of ``ml_dtypes``) become float32.
    """
    if is_numpy(x):
        if x.dtype.name.startswith(("bfloat16", "float8_", "float6_", "float4_")):
            return x.astype(np.float32)
        if x.dtype.kind == "f" and x.dtype.itemsize > 8:
            with np.errstate(over="ignore"):
                return x.astype(np.float64)
        return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))
    if "float8" in str(x.dtype):
        return x.float() if is_torch(x) else namespace(x).astype(x, namespace(x).float32)
    return x


def like(x: Array, other: Array) -> Array:
    """Put ``x`` into the library and onto the device of ``other``."""
    if is_numpy(other):
        return to_numpy(x)
    if type(x) is type(other) and device(x) == device(other):
        return x
    if is_torch(x) and is_torch(other):
        return _sent(x, other)
    host = to_numpy(x)
    # A view of a JAX array is read-only, which torch does not know.
    host = host if host.flags.writeable else host.copy()
    if is_torch(other):
        return _sent(namespace(other).asarray(host), other)
    return compat.to_device(namespace(other).asarray(host), device(other))


_PINNED_BYTES = 1 << 24
"""Pinned memory that is asked for at once: it is kept for the next time."""


def _sent(x: Array, other: Array) -> Array:
    """Tensor on the device of another one; small ones go to a GPU through pinned memory, so that nothing waits."""
    if x.device.type == "cpu" and other.is_cuda and x.nbytes <= _PINNED_BYTES:
        return x.pin_memory().to(other.device, non_blocking=True)
    return x.to(other.device)


def working(x: Array) -> Array:
    """Contiguous copy or view in the precision scores are computed in: float64 as it is, others float32."""
    xp = namespace(x)
    if x.dtype != xp.float64:
        x = xp.astype(x, xp.float32, copy=False)
    if is_torch(x):
        # MKL's products are reproducible bit for bit only on 64-byte boundaries.
        x = x.contiguous()
        return x.clone() if x.data_ptr() % 64 and on_host(x) else x
    return x if is_jax(x) else xp.ascontiguousarray(x)


def wide(x: Array) -> Array:
    """Cast to float64, on the host where the array's own library or device has none."""
    if is_torch(x):
        return x.double() if x.device.type != "mps" else np.asarray(x.cpu().double())
    if is_jax(x):
        return np.asarray(x, dtype=np.float64)
    return namespace(x).asarray(x, dtype="float64")


def columns(x: Array) -> Array:
    """Column numbers 0 … K−1 of a matrix, on its device."""
    return namespace(x).arange(x.shape[1], device=device(x))


def pick(x: Array, column: Array) -> Array:
    """Entry ``x[i, column[i]]`` of every row."""
    if is_torch(x):
        return x.gather(1, column[:, None].long())[:, 0]
    rows = namespace(x).arange(x.shape[0], device=device(x))
    return x[rows, column]


def put(x: Array, column: Array, value: Array | float) -> Array:
    """Matrix with ``x[i, column[i]]`` replaced by ``value``: written into ``x`` where that is possible."""
    if is_torch(x):
        # Not by indexing: assigning a number to entries of a GPU's tensor copies it there and waits.
        index = column[:, None].long()
        return x.scatter_(1, index, value if isinstance(value, float) else value[:, None])
    rows = namespace(x).arange(x.shape[0], device=device(x))
    if is_jax(x):
        return x.at[rows, column].set(value)
    x[rows, column] = value
    return x


def exp(x: Array) -> Array:
    """Exponential, written into ``x`` where that is possible."""
    if is_torch(x):
        return x.exp_()
    return namespace(x).exp(x) if is_jax(x) else namespace(x).exp(x, out=x)


def concatenate(parts: list[Array]) -> Array:
    """Rows of several arrays of one library, one after the other."""
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=0)


def detached_copy(x: Array) -> Array:
    """Copy that shares no memory with ``x``, so that a caller may reuse its buffers."""
    return x if is_jax(x) else namespace(x).asarray(x, copy=True)


@contextlib.contextmanager
def full_precision(x: Array) -> Iterator[None]:
    """Compute with full float32 products, without gradients and without NumPy's warnings.

    Whatever the caller has switched on stays as it is, also for other threads.
    """
    with np.errstate(all="ignore"):
        if is_torch(x):
            import torch

            with torch.no_grad(), torch.autocast(x.device.type, enabled=False), _EXACT_PRODUCTS:
                yield
        elif is_jax(x):
            import jax

            with jax.default_matmul_precision("highest"):
                yield
        else:
            yield


class _ExactProducts:
    """Switches torch's reduced-precision products off while any thread is inside.

    The settings belong to the process: they are touched only where they are not what is needed already, and put back
    by the last thread that leaves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._changed: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._switch_off()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._put_back()

    def _switch_off(self) -> None:
        import torch

        # Newer versions have a setting for each backend, and refuse to read the old one after somebody set those.
        backends: list[Any] = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
        if all(hasattr(backend, "fp32_precision") for backend in backends):
            settings: list[tuple[Any, Any]] = [(backend, backend.fp32_precision) for backend in backends]
            self._changed = [(backend, value) for backend, value in settings if value != "ieee"]
            for backend, _ in self._changed:
                backend.fp32_precision = "ieee"
        elif (value := torch.get_float32_matmul_precision()) != "highest":
            self._changed = [(None, value)]
            torch.set_float32_matmul_precision("highest")

    def _put_back(self) -> None:
        for backend, value in self._changed:
            if backend is None:
                import torch

                torch.set_float32_matmul_precision(value)
            else:
                backend.fp32_precision = value
        self._changed = []


_EXACT_PRODUCTS = _ExactProducts()
