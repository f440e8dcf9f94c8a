"""Odd values and damaged bytes that several attacks use."""

import json

import numpy as np

ODD = [
    None,
    True,
    False,
    "",
    "a",
    "default",
    "\x1b[31m",
    "\0",
    0,
    1,
    -1,
    2**31,
    2**63,
    10**400,
    0.0,
    0.3,
    1.0,
    -0.5,
    1e-320,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    1j,
    b"x",
    [],
    [1],
    ["a", None],
    (),
    {},
    {"a": 1},
    set(),
    object(),
    lambda: 1,
    np.float64("nan"),
    np.int8(3),
    np.zeros(0),
    np.zeros((2, 2)),
    np.array(["a"]),
    slice(None, None, 0),
    Ellipsis,
    range(3),
]


def pick(rng, items):
    return items[int(rng.integers(len(items)))]


def odd(rng):
    return pick(rng, ODD)


def damaged(raw, rng):
    """Bytes with flipped bits, cut, lengthened, zeroed in part, or with parts exchanged."""
    raw = bytearray(raw)
    way = int(rng.integers(6))
    if way == 0 or not raw:
        return bytes(raw[: int(rng.integers(len(raw) + 1))])
    if way == 1:
        return bytes(raw) + rng.bytes(int(rng.integers(1, 64)))
    if way == 2:
        start = int(rng.integers(len(raw)))
        stop = start + int(rng.integers(1, 64))
        raw[start:stop] = bytes([pick(rng, [0, 255])]) * len(raw[start:stop])
        return bytes(raw)
    if way == 3:
        a, b = sorted(int(i) for i in rng.integers(len(raw), size=2))
        return bytes(raw[:a] + raw[b:])
    for _ in range(int(rng.integers(1, 4))):
        raw[int(rng.integers(len(raw)))] ^= 1 << int(rng.integers(8))
    return bytes(raw)


def tampered(values, rng):
    """Named arrays and numbers of which one is changed, renamed, dropped or added."""
    values = dict(values)
    name = pick(rng, sorted(values))
    way = int(rng.integers(10))
    if way == 0:
        del values[name]
    elif way == 1:
        values[pick(rng, sorted(values)) + pick(rng, ["", ".", "x"])] = values[name]
    else:
        values[name] = _changed(values[name], rng)
    return values


def _changed(value, rng):
    if isinstance(value, np.ndarray):
        return _changed_array(value, rng)
    if isinstance(value, str):
        try:
            return json.dumps(_changed_json(json.loads(value), rng))
        except ValueError:
            return pick(rng, ["", "a", "\x1b[31m", value + "x", value[:-1], "9" * 50])
    return pick(
        rng, [-1, 0, 1, 2**62, -(2**62), 0.5, -0.5, 1e308, 1e-320, float("nan"), float("inf"), True, "a", [1.0]]
    )


def _changed_array(array, rng):
    way = int(rng.integers(6))
    if way == 0:
        array = array[: int(rng.integers(len(array) + 1))] if array.ndim else array
    elif way == 1:
        array = array.astype(pick(rng, ["f4", "f8", "i8", "U5", "?"])) if array.dtype.kind in "fiub" else array[:1]
    elif way == 2:
        array = array[None] if rng.integers(2) else array.reshape(-1)
    elif array.size:
        array = array.copy()
        if array.dtype.kind == "U":
            array.reshape(-1)[0] = ""
        else:
            if array.dtype.kind != "f" and way == 5:
                array = array.astype(float)
            kinds = [0, 1, -1] if array.dtype.kind != "f" else [0.0, -1.0, 1e300, 1e-300, np.nan, np.inf, -np.inf]
            with np.errstate(all="ignore"):
                array.reshape(-1)[int(rng.integers(array.size))] = np.array(pick(rng, kinds)).astype(array.dtype)
                if way == 4:
                    array[...] = np.array(pick(rng, kinds)).astype(array.dtype)
    return np.asarray(array)


def _changed_json(value, rng):
    if isinstance(value, dict) and value and rng.integers(5):
        name = pick(rng, sorted(value))
        if not rng.integers(6):
            return {key: item for key, item in value.items() if key != name}
        return {**value, name: _changed_json(value[name], rng)}
    if isinstance(value, list) and value and rng.integers(5):
        at = int(rng.integers(len(value)))
        return [*value[:at], _changed_json(value[at], rng), *value[at + 1 :]]
    return pick(
        rng, [None, True, -1, 0, 1, 3, 10**30, 0.5, 1e308, 1e-320, "", "a", "\x1b[2J", [], {}, [None], {"a": 1}]
    )
