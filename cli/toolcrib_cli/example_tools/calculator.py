"""`calculator`: the value of an arithmetic expression, bounded in time and memory, never run as code."""

import ast
import math
import operator
import re
from collections.abc import Callable
from typing import Final

from toolcrib_cli.example_tools.arguments import Arguments
from toolcrib_cli.example_tools.problems import ToolError, impossible, invalid_argument

Number = int | float

LONGEST_EXPRESSION: Final = 500
DEEPEST_NESTING: Final = 250
# Below 2 ** 1024, so that every whole number met on the way still has a float.
MOST_BITS: Final = 1000
# JSON numbers beyond this lose digits in most readers (RFC 8259, section 6).
LARGEST_SAFE_INTEGER: Final = 2**53 - 1

_TOKEN: Final = re.compile(
    r"[ \t]+"
    r"|(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])"
    r"|[A-Za-z_][A-Za-z_0-9]*"
    r"|\*\*|//|[-+*/%(),]"
)

_BINARY: Final[dict[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[Number], Number]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_CONSTANTS: Final[dict[str, Number]] = {"pi": math.pi, "e": math.e, "tau": math.tau}


def calculate(arguments: Arguments) -> dict[str, object]:
    """Answer `{expression, result}`, and `exact` (digits as text) where a whole number exceeds 2**53 - 1."""
    arguments.expect({"expression"})
    expression = arguments.text("expression", longest=LONGEST_EXPRESSION).strip()
    result = evaluate(expression)
    answer: dict[str, object] = {"expression": expression, "result": result}
    if isinstance(result, int) and abs(result) > LARGEST_SAFE_INTEGER:
        answer["result"] = float(result)
        answer["exact"] = str(result)
    return answer


def evaluate(expression: str) -> Number:
    """The value of `expression`. Raises `ToolError`: 400 for no expression, 422 for one without a value."""
    _check_tokens(expression)
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise invalid_argument(
            "This is not an arithmetic expression; check parentheses and operators."
        ) from error
    try:
        return _value(tree.body, DEEPEST_NESTING)
    except ZeroDivisionError as error:
        raise impossible("division_by_zero", "The expression divides by zero.") from error
    except OverflowError as error:
        raise _too_large() from error
    except ValueError as error:
        raise impossible("no_value", "A function is undefined for this argument.") from error


def _check_tokens(expression: str) -> None:
    """Let nothing but numbers, names and operators reach Python's parser."""
    position = 0
    while position < len(expression):
        token = _TOKEN.match(expression, position)
        if token is None:
            character = expression[position]
            hint = " Use ** for powers." if character == "^" else ""
            raise invalid_argument(f"Unexpected {character!r} at position {position + 1}.{hint}")
        position = token.end()


def _value(node: ast.expr, depth: int) -> Number:
    if depth == 0:
        raise invalid_argument(f"The expression is nested more than {DEEPEST_NESTING} levels deep.")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_value(operand, depth - 1))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_value(left, depth - 1), _value(right, depth - 1))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_value(left, depth - 1), _value(right, depth - 1)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            try:
                return _bounded(_FUNCTIONS[name](*(_value(arg, depth - 1) for arg in args)))
            except TypeError as error:
                raise invalid_argument(f"Wrong arguments for {name}().") from error
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            known = ", ".join(sorted([*_FUNCTIONS, *_CONSTANTS]))
            raise invalid_argument(f"Unknown name {name[:32]!r}; there are: {known}.")
        case _:
            raise invalid_argument(
                "Only numbers, + - * / // % **, parentheses and a few functions are allowed."
            )


def _power(base: Number, exponent: Number) -> Number:
    # Judged before the work is done: 9**9**9 would need minutes and gigabytes.
    if isinstance(base, int) and isinstance(exponent, int) and _bits(base) * exponent > MOST_BITS:
        raise _too_large()
    power = base**exponent
    if isinstance(power, complex):
        raise impossible("no_value", "A negative number has no real root of this kind.")
    return _bounded(power)


def _bits(value: int) -> int:
    """The whole part of log2(|value|): a lower bound, so that nothing small is refused."""
    return max(abs(value).bit_length() - 1, 0)


def _bounded(value: Number) -> Number:
    if isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            raise _too_large()
    elif not math.isfinite(value):
        raise _too_large()
    return value


def _too_large() -> ToolError:
    return impossible("too_large", "A number on the way is too large (the limit is about 10 ** 300).")


def _round(value: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or not 0 <= digits <= 15:
        raise invalid_argument("round() takes 0 to 15 digits.")
    return round(value, digits) if digits else round(value)


def _factorial(value: Number) -> int:
    if not isinstance(value, int) or not 0 <= value <= 160:
        raise invalid_argument("factorial() takes a whole number from 0 to 160.")
    return math.factorial(value)


_FUNCTIONS: Final[dict[str, Callable[..., Number]]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "factorial": _factorial,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": _round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
