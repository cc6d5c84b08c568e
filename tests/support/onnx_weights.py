"""The integer weights of an ONNX model's products, read without the onnx package.

Protocol buffers' wire format is a list of (field, kind, value): that and a handful of field numbers of onnx.proto3
(ModelProto.graph 7, GraphProto.node 1 and .initializer 5, NodeProto.input 1, .name 3 and .op_type 4, TensorProto.dims 1,
.data_type 2, .int32_data 5, .name 8 and .raw_data 9) are all there is to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

PRODUCTS = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Operators that multiply bytes."""
_UINT8, _INT8 = 2, 3


@dataclass(frozen=True)
class Product:
    """A node that multiplies bytes, and its stored byte operands."""

    name: str
    kind: str
    signed: dict[str, NDArray[np.int8]]
    unsigned: dict[str, NDArray[np.uint8]]


def products(model: Path) -> list[Product]:
    """The products of bytes in `model`, with their weights (and zero points)."""
    graph = next(
        bytes(v) for field, v in _fields(model.read_bytes()) if field == 7 and not isinstance(v, int)
    )
    signed: dict[str, NDArray[np.int8]] = {}
    unsigned: dict[str, NDArray[np.uint8]] = {}
    nodes: list[tuple[str, str, list[str]]] = []
    for field, value in _fields(graph):
        if isinstance(value, int):
            continue
        if field == 1:
            nodes.append(_node(value))
        elif field == 5:
            name, kind, data = _tensor(value)
            if kind == _INT8:
                signed[name] = np.frombuffer(data, np.int8)
            elif kind == _UINT8:
                unsigned[name] = np.frombuffer(data, np.uint8)
    return [
        Product(
            name,
            kind,
            {i: signed[i] for i in inputs if i in signed},
            {i: unsigned[i] for i in inputs if i in unsigned and unsigned[i].size > 1},
        )
        for name, kind, inputs in nodes
        if kind in PRODUCTS
    ]


def _node(data: memoryview) -> tuple[str, str, list[str]]:
    name, kind, inputs = "", "", []
    for field, value in _fields(data):
        if isinstance(value, int):
            continue
        if field == 1:
            inputs.append(str(value, "utf-8"))
        elif field == 3:
            name = str(value, "utf-8")
        elif field == 4:
            kind = str(value, "utf-8")
    return name, kind, inputs


def _tensor(data: memoryview) -> tuple[str, int, bytes]:
    name, kind, raw = "", 0, b""
    for field, value in _fields(data):
        if field == 2 and isinstance(value, int):
            kind = value
        elif field == 5 and not isinstance(value, int):
            # packed: one number each, a negative one as ten bytes
            raw = bytes(number & 0xFF for number in _numbers(value))
        elif field == 8 and not isinstance(value, int):
            name = str(value, "utf-8")
        elif field == 9 and not isinstance(value, int):
            raw = bytes(value)
    return name, kind, raw


def _fields(data: bytes | memoryview) -> Iterator[tuple[int, int | memoryview]]:
    view = memoryview(data)
    at = 0
    while at < len(view):
        key, at = _number(view, at)
        field, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _number(view, at)
            yield field, value
            continue
        if kind == 2:
            size, at = _number(view, at)
        else:
            size = {1: 8, 5: 4}[kind]
        yield field, view[at : at + size]
        at += size


def _numbers(view: memoryview) -> Iterator[int]:
    at = 0
    while at < len(view):
        number, at = _number(view, at)
        yield number


def _number(view: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = view[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
