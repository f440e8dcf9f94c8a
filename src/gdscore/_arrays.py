"""What differs between NumPy, PyTorch, JAX and CuPy, and nothing else.

Requirements met here:

- arrays are computed where they live; a framework is touched only when the caller's array comes from it;
- sums are kept in float64, on the array's own device where that device has float64, on the host otherwise;
- reduced-precision products (TF32, autocast, "medium" matmul precision) never reach a score;
- what a library can do in place is done in place, as the temporaries here are as large as the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

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
    host = np.asarray(x.get() if compat.is_cupy_array(x) else x)
    return host.astype(np.float32) if host.dtype.name == "bfloat16" else host


def like(x: Array, reference: Array) -> Array:
    """Put ``x`` into the library and onto the device of ``reference``."""
    if is_numpy(reference):
        return to_numpy(x)
    if type(x) is type(reference) and device(x) == device(reference):
        return x
    if is_torch(x) and is_torch(reference):
        return x.to(reference.device)
    host = to_numpy(x)
    # A view of a JAX array is read-only, which torch does not know.
    host = host if host.flags.writeable else host.copy()
    return compat.to_device(namespace(reference).asarray(host), device(reference))


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
    """Matrix with ``x[i, column[i]]`` replaced by ``value``: written into ``x`` itself where that is possible."""
    if is_torch(x):
        # Not by indexing: assigning a number to entries of a GPU's tensor copies it there and waits.
        index = column[:, None].long()
        return x.scatter_(1, index, value if isinstance(value, float) else value[:, None])
    rows = namespace(x).arange(x.shape[0], device=device(x))
    if is_jax(x):
        return x.at[rows, column].set(value)
    x[rows, column] = value
    return x


def concatenate(parts: list[Array]) -> Array:
    """Rows of several arrays of one library, one after the other."""
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=0)


def detached_copy(x: Array) -> Array:
    """Copy that shares no memory with ``x``, so that a caller may reuse its buffers."""
    return x if is_jax(x) else namespace(x).asarray(x, copy=True)


@contextlib.contextmanager
def full_precision(x: Array) -> Iterator[None]:
    """Compute with full float32 products and without gradients, whatever the caller has switched on."""
    if is_torch(x):
        import torch

        with torch.no_grad(), torch.autocast(x.device.type, enabled=False), _exact_products(torch):
            yield
    elif is_jax(x):
        import jax

        with jax.default_matmul_precision("highest"):
            yield
    else:
        yield


@contextlib.contextmanager
def _exact_products(torch: Any) -> Iterator[None]:
    # The settings are process-wide: they are touched only where they are not what is needed already. Newer versions
    # have one for each backend, and refuse to read the old one once somebody has set those.
    places = [torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)]
    if all(hasattr(place, "fp32_precision") for place in places):
        changed = [(place, place.fp32_precision) for place in places]
        changed = [(place, value) for place, value in changed if value != "ieee"]
        try:
            for place, _ in changed:
                place.fp32_precision = "ieee"
            yield
        finally:
            for place, value in changed:
                place.fp32_precision = value
        return
    value = torch.get_float32_matmul_precision()
    try:
        if value != "highest":
            torch.set_float32_matmul_precision("highest")
        yield
    finally:
        if value != "highest":
            torch.set_float32_matmul_precision(value)
