"""A part → LLVM's text. Variables are slots in memory, which LLVM turns into registers.

A variable has one kind in the whole function, which its first assignment says; only a bool may become an integer later, and then the
function is translated again. There is no recursion, and a name that is not a variable is what the function's module has under it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from tidemill.kernels.compiler.functions import Part
from tidemill.kernels.compiler.primitives import Primitive
from tidemill.kernels.compiler.values import (
    BOOL,
    DOUBLE,
    INT,
    LLVM,
    NONE,
    SINGLE,
    UINT,
    KernelError,
    Kind,
    Value,
    constant,
    joined,
    llvm_type,
    name_of,
    wrapped,
)

ZERO, ONE = Value(INT, 0), Value(INT, 1)
_PLAIN: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("add", "fadd"), ast.Sub: ("sub", "fsub"), ast.Mult: ("mul", "fmul"), ast.BitAnd: ("and", ""), ast.BitOr: ("or", ""),
    ast.BitXor: ("xor", ""),
}  # fmt: skip
_SHIFTS = {(ast.LShift, INT): "shl", (ast.LShift, UINT): "shl", (ast.RShift, INT): "ashr", (ast.RShift, UINT): "lshr"}
_ORDERS: dict[type[ast.cmpop], tuple[str, str, str]] = {
    ast.Eq: ("eq", "eq", "oeq"), ast.NotEq: ("ne", "ne", "une"), ast.Lt: ("slt", "ult", "olt"), ast.LtE: ("sle", "ule", "ole"),
    ast.Gt: ("sgt", "ugt", "ogt"), ast.GtE: ("sge", "uge", "oge"),
}  # fmt: skip
_KNOWN: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__, ast.BitAnd: int.__and__, ast.BitOr: int.__or__,
    ast.BitXor: int.__xor__,
}  # fmt: skip
_LITERAL = {**_KNOWN, ast.FloorDiv: int.__floordiv__, ast.Mod: int.__mod__, ast.LShift: int.__lshift__, ast.RShift: int.__rshift__}
_LITERAL_SIGNS: dict[type[ast.unaryop], Callable[[int], int]] = {ast.USub: int.__neg__, ast.Invert: int.__invert__}
_NAME = re.compile(r"\{(\w+)\}")
_KINDS: dict[Any, str] = {np.uint64: UINT, np.int64: INT, np.float64: DOUBLE, np.float32: SINGLE, int: INT, float: DOUBLE}


class Module:
    """The text of a module: functions, each once for every list of kinds."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, tuple[str, ...]], tuple[str, Kind]] = {}
        self._texts: list[str] = []
        self._needs: dict[str, None] = {}

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join([*self._needs, *self._texts])

    def add_entry(self, part: Part, symbol: str, result: str) -> None:
        """Add a function that is called from outside, with int64 and with a result of this kind."""
        kinds = (INT,) * len(part.source().args.args)
        name, found = self.instance(part, kinds)
        parameters = ", ".join(f"i64 %{i}" for i in range(len(kinds)))
        lines = [f'define {LLVM[result]} @"{symbol}"({parameters}) nounwind {{', "entry:"]
        if found == NONE or result == NONE:
            lines += [f"  call {llvm_type(found)} {name}({parameters})"]
            lines += ["  ret void" if result == NONE else "  ret i64 0"]
        elif found == BOOL:
            lines += [f"  %r = call i1 {name}({parameters})", "  %w = zext i1 %r to i64", "  ret i64 %w"]
        elif found in (INT, UINT):
            lines += [f"  %r = call i64 {name}({parameters})", "  ret i64 %r"]
        else:
            raise KernelError(f"{part.name} returns {name_of(found)}, but an entry point returns an int64")
        self._texts.append("\n".join([*lines, "}"]))

    def instance(self, part: Part, kinds: tuple[str, ...]) -> tuple[str, Kind]:
        """The symbol of a part for arguments of these kinds, and the kind of its result."""
        key = (part.name, kinds)
        if key not in self._functions:
            symbol = f'@"{part.name}.{"".join(kinds)}"'
            self._functions[key] = (symbol, "recursion")
            made = _translated(self, part, symbol, kinds)
            self._texts.append(made.text())
            self._functions[key] = (symbol, made.result or NONE)
        symbol, result = self._functions[key]
        if result == "recursion":
            raise KernelError(f"{part.name} calls itself")
        return symbol, result

    def need(self, declarations: Iterable[str]) -> None:
        """Add declarations, each once."""
        self._needs.update(dict.fromkeys(declarations))


def _translated(module: Module, part: Part, symbol: str, kinds: tuple[str, ...]) -> _Function:
    source = part.source()
    parameters = [a.arg for a in source.args.args]
    if len(parameters) != len(kinds):
        raise KernelError(f"{part.name} takes {len(parameters)} arguments, not {len(kinds)}")
    variables, result = dict(zip(parameters, kinds, strict=True)), None
    while True:
        made = _Function(module, part, symbol, source, kinds, variables, result)
        made.translate()
        if not made.again:
            return made
        variables, result = made.variables, made.result


class _Function:
    """One function while it is translated."""

    def __init__(
        self, module: Module, part: Part, symbol: str, source: ast.FunctionDef, kinds: tuple[str, ...], variables: dict[str, str],
        result: Kind | None,
    ) -> None:  # fmt: skip
        self.again, self.result, self.variables = False, result, dict(variables)
        self._module, self._part, self._symbol, self._source, self._kinds = module, part, symbol, source, kinds
        assigned = (n.id for n in ast.walk(source) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        self._own = {*(a.arg for a in source.args.args), *assigned}
        self._lines: list[str] = []
        self._count = 0
        self._block, self._alive = "entry", True
        self._reached: set[str] = set()
        self._loops: list[tuple[str, str]] = []  # where `continue` and `break` go
        self._at: ast.AST = source

    def translate(self) -> None:
        """Translate the whole. Raises KernelError, which names the line."""
        try:
            self._statements(self._source.body)
        except KernelError as error:
            if str(error).startswith(self._part.name):
                raise
            raise KernelError(f"{self._part.name}, line {getattr(self._at, 'lineno', 0)}: {error}") from None
        if self._alive:
            if self.result not in (None, NONE):
                raise KernelError(f"{self._part.name} has a way to its end without a result")
            self._emit("ret void")

    def text(self) -> str:
        """The function in LLVM's text."""
        names = [a.arg for a in self._source.args.args]
        parameters = ", ".join(f"{LLVM[k]} %a.{n}" for n, k in zip(names, self._kinds, strict=True))
        lines = [f"define internal {llvm_type(self.result or NONE)} {self._symbol}({parameters}) nounwind {{", "entry:"]
        for name, kind in self.variables.items():
            lines.append(f"  %v.{name} = alloca {LLVM[kind]}")
            lines.append(f"  store {LLVM[kind]} {f'%a.{name}' if name in names else _zero(kind)}, ptr %v.{name}")
        return "\n".join([*lines, *self._lines, "}"])

    # Lines and blocks

    def _emit(self, line: str) -> None:
        self._lines.append("  " + line)

    def _new(self, line: str, kind: str) -> Value:
        """A line that makes a value."""
        self._count += 1
        name = f"%t.{self._count}"
        self._lines.append(f"  {name} = {line}")
        return Value(kind, name)

    def _label(self, name: str) -> str:
        self._count += 1
        return f"{name}{self._count}"

    def _jump(self, label: str) -> None:
        if self._alive:
            self._reached.add(label)
            self._emit(f"br label %{label}")
            self._alive = False

    def _branch(self, condition: Value, yes: str, no: str) -> None:
        if condition.known is not None:
            self._jump(yes if condition.known else no)
        else:
            self._reached |= {yes, no}
            self._emit(f"br i1 {condition.text}, label %{yes}, label %{no}")
            self._alive = False

    def _begin(self, label: str) -> bool:
        """Begin a block. False: nothing goes there."""
        self._alive = label in self._reached
        if self._alive:
            self._lines.append(f"{label}:")
            self._block = label
        return self._alive

    # Statements

    def _statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if not self._alive:
                return
            self._at = statement
            handler = _STATEMENTS.get(type(statement))
            if handler is None:
                raise KernelError(f"a kernel has no {type(statement).__name__}")
            handler(self, statement)

    def _expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self._any(node.value)

    def _assign(self, node: ast.Assign) -> None:
        found = self._any(node.value)
        for target in node.targets:
            if isinstance(target, ast.Tuple):
                if not isinstance(found, list) or len(found) != len(target.elts):
                    raise KernelError(f"{ast.unparse(node)}: the sides differ in length")
                for each, value in zip(target.elts, found, strict=True):
                    self._set(each, value)
            elif isinstance(found, list):
                raise KernelError("a variable cannot be a tuple")
            else:
                self._set(target, found)

    def _set(self, target: ast.expr, value: Value) -> None:
        if not isinstance(target, ast.Name):
            raise KernelError(f"{ast.unparse(target)} cannot be assigned to")
        name = target.id
        if name == "_":
            return
        kind = self.variables.get(name)
        if kind is None:
            kind = value.kind
            if kind == NONE:
                raise KernelError(f"{name} is assigned nothing")
            self.variables[name] = kind
        elif kind != value.kind:
            wide = str(joined(kind, value.kind))
            if wide != kind:
                self.variables[name], self.again = wide, True
                kind = wide
        self._emit(f"store {self._to(value, kind).typed}, ptr %v.{name}")

    def _augmented(self, node: ast.AugAssign) -> None:
        self._set(node.target, self._binary(node.op, self._name(node.target), self._one(node.value)))

    def _if(self, node: ast.If) -> None:
        yes, no, end = self._label("then"), self._label("else"), self._label("end")
        self._test(node.test, yes, no if node.orelse else end)
        if self._begin(yes):
            self._statements(node.body)
            self._jump(end)
        if node.orelse and self._begin(no):
            self._statements(node.orelse)
            self._jump(end)
        self._begin(end)

    def _while(self, node: ast.While) -> None:
        head, body, end = self._label("while"), self._label("do"), self._label("done")
        self._jump(head)
        self._begin(head)
        self._test(node.test, body, end)
        if self._begin(body):
            self._loop(node.body, head, end)
            self._jump(head)
        self._begin(end)

    def _loop(self, body: list[ast.stmt], again: str, end: str) -> None:
        self._loops.append((again, end))
        self._statements(body)
        self._loops.pop()

    def _for(self, node: ast.For) -> None:
        """A loop over a range: its bounds are computed once, and the body may change the variable without an effect on the loop."""
        call = node.iter
        if not (isinstance(call, ast.Call) and ast.unparse(call.func) == "range" and isinstance(node.target, ast.Name)):
            raise KernelError("a kernel loops over a range only")
        bounds = [self._to(self._one(a), INT) for a in call.args]
        first, last = (ZERO, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2].known if len(bounds) == 3 else 1
        if not step:
            raise KernelError("the step of a range is a constant")
        count = f"for.{self._label('')}"
        self.variables[count] = INT
        self._emit(f"store {first.typed}, ptr %v.{count}")
        head, body, after, end = (self._label(name) for name in ("for", "do", "next", "done"))
        self._jump(head)
        self._begin(head)
        at = self._new(f"load i64, ptr %v.{count}", INT)
        self._branch(self._new(f"icmp {'slt' if step > 0 else 'sgt'} i64 {at.text}, {last.text}", BOOL), body, end)
        self._begin(body)
        self._set(node.target, at)
        self._loop(node.body, after, end)
        self._jump(after)
        if self._begin(after):
            at = self._new(f"add i64 {at.text}, {step}", INT)
            self._emit(f"store {at.typed}, ptr %v.{count}")
            self._jump(head)
        self._begin(end)

    def _break(self, node: ast.Break) -> None:
        self._jump(self._loops[-1][1])

    def _continue(self, node: ast.Continue) -> None:
        self._jump(self._loops[-1][0])

    def _return(self, node: ast.Return) -> None:
        found = self._any(node.value) if node.value is not None else Value(NONE, 0)
        kind: Kind = tuple(v.kind for v in found) if isinstance(found, list) else found.kind
        if self.result is None:
            self.result = kind
        elif self.result != kind:
            wide = joined(self.result, kind)
            self.again |= wide != self.result
            self.result = wide
        if isinstance(found, list):
            whole = Value(INT, "undef")
            for i, (value, wanted) in enumerate(zip(found, self.result, strict=True)):
                whole = self._new(f"insertvalue {llvm_type(self.result)} {whole.text}, {self._to(value, wanted).typed}, {i}", INT)
            self._emit(f"ret {llvm_type(self.result)} {whole.text}")
        else:
            self._emit("ret void" if kind == NONE else f"ret {self._to(found, str(self.result)).typed}")
        self._alive = False

    # Conditions

    def _test(self, node: ast.expr, yes: str, no: str) -> None:
        """Go to `yes` or `no`."""
        if isinstance(node, ast.BoolOp):
            for value in node.values[:-1]:
                following = self._label("and" if isinstance(node.op, ast.And) else "or")
                if isinstance(node.op, ast.And):
                    self._test(value, following, no)
                else:
                    self._test(value, yes, following)
                if not self._begin(following):
                    return
            self._test(node.values[-1], yes, no)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._test(node.operand, no, yes)
        else:
            self._branch(self._to(self._one(node), BOOL), yes, no)

    # Expressions

    def _any(self, node: ast.expr) -> Any:
        """A value, or a list of values: a tuple."""
        if isinstance(node, ast.Tuple):
            return [self._one(each) for each in node.elts]
        handler = _EXPRESSIONS.get(type(node))
        if handler is None:
            raise KernelError(f"a kernel has no {type(node).__name__}")
        return handler(self, node)

    def _one(self, node: ast.expr) -> Value:
        found = self._any(node)
        if isinstance(found, list):
            raise KernelError(f"{ast.unparse(node)} is a tuple")
        return found  # type: ignore[no-any-return]

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.expr) -> Value:
        assert isinstance(node, ast.Name)
        if node.id in self._own:
            if node.id not in self.variables:
                raise KernelError(f"{node.id} is read before it is assigned")
            kind = self.variables[node.id]
            return self._new(f"load {LLVM[kind]}, ptr %v.{node.id}", kind)
        return constant(self._outside(node))

    def _attribute(self, node: ast.Attribute) -> Value:
        return constant(self._outside(node))

    def _outside(self, node: ast.expr) -> object:
        """What a name or a module's attribute means outside the function."""
        if isinstance(node, ast.Name):
            names = self._part.names
            if node.id in names:
                return names[node.id]
            builtins = {"min": min, "max": max, "int": int, "float": float, "True": True, "False": False}
            if node.id in builtins:
                return builtins[node.id]
        elif isinstance(node, ast.Attribute):
            module = self._outside(node.value)
            if isinstance(module, ModuleType) and hasattr(module, node.attr):
                return getattr(module, node.attr)
        raise KernelError(f"{ast.unparse(node)} is not there")

    def _unary(self, node: ast.UnaryOp) -> Value:
        if (number := _literal(node)) is not None:
            return constant(number)
        value = self._one(node.operand)
        if isinstance(node.op, ast.Not):
            value = self._to(value, BOOL)
            return Value(BOOL, 1 - value.known) if value.known is not None else self._new(f"xor i1 {value.text}, true", BOOL)
        if value.kind == BOOL:
            value = self._to(value, INT)
        if value.kind == DOUBLE:
            return self._new(f"fneg {value.typed}", DOUBLE)
        if isinstance(node.op, ast.USub):
            return self._binary(ast.Sub(), Value(value.kind, 0), value)
        return self._binary(ast.BitXor(), value, Value(value.kind, wrapped(value.kind, -1)))

    def _operation(self, node: ast.BinOp) -> Value:
        if (number := _literal(node)) is not None:
            return constant(number)
        return self._binary(node.op, self._one(node.left), self._one(node.right))

    def _binary(self, op: ast.operator, left: Value, right: Value) -> Value:
        kind = type(op)
        if BOOL in (left.kind, right.kind) and not (left.kind == right.kind and kind in (ast.BitAnd, ast.BitOr, ast.BitXor)):
            left, right = (self._to(v, INT) if v.kind == BOOL else v for v in (left, right))
        if kind in (ast.LShift, ast.RShift):
            return self._shifted(kind, left, right)
        if kind is ast.Div or DOUBLE in (left.kind, right.kind):
            left, right = self._to(left, DOUBLE), self._to(right, DOUBLE)
            name = "fdiv" if kind is ast.Div else _PLAIN[kind][1]
            return self._new(f"{name} {left.typed}, {right.text}", DOUBLE)
        if left.kind != right.kind:
            raise KernelError(f"{name_of(left.kind)} and {name_of(right.kind)} in one operation: as_i and as_u reinterpret")
        if kind in (ast.FloorDiv, ast.Mod):
            return self._divided(kind, left, right)
        if kind not in _PLAIN:
            raise KernelError(f"a kernel has no {kind.__name__}")
        if left.known is not None and right.known is not None:
            return Value(left.kind, wrapped(left.kind, _KNOWN[kind](left.known, right.known)))
        return self._new(f"{_PLAIN[kind][0]} {left.typed}, {right.text}", left.kind)

    def _shifted(self, op: type[ast.operator], left: Value, right: Value) -> Value:
        """By how much is of either kind."""
        if left.known is not None and right.known is not None:
            return Value(left.kind, wrapped(left.kind, left.known << right.known if op is ast.LShift else left.known >> right.known))
        return self._new(f"{_SHIFTS[op, left.kind]} i64 {left.text}, {right.text}", left.kind)

    def _divided(self, op: type[ast.operator], left: Value, right: Value) -> Value:
        """As Python divides: downwards, the rest with the sign of the divisor. A division by 0 gives 0."""
        is_div = op is ast.FloorDiv
        divisor = right
        if right.known is None:
            zero = self._new(f"icmp eq i64 {right.text}, 0", BOOL)
            divisor = self._new(f"select i1 {zero.text}, i64 1, i64 {right.text}", right.kind)
        if left.kind == UINT:
            found = self._new(f"{'udiv' if is_div else 'urem'} i64 {left.text}, {divisor.text}", UINT)
        else:
            rest = self._new(f"srem i64 {left.text}, {divisor.text}", INT)
            other = self._new(f"xor i64 {rest.text}, {divisor.text}", INT)
            signs = self._new(f"icmp slt i64 {other.text}, 0", BOOL)
            some = self._new(f"icmp ne i64 {rest.text}, 0", BOOL)
            wrong = self._new(f"and i1 {signs.text}, {some.text}", BOOL)
            if is_div:
                whole = self._new(f"sdiv i64 {left.text}, {divisor.text}", INT)
                found = self._new(f"sub i64 {whole.text}, {self._to(wrong, INT).text}", INT)
            else:
                more = self._new(f"select i1 {wrong.text}, i64 {divisor.text}, i64 0", INT)
                found = self._new(f"add i64 {rest.text}, {more.text}", INT)
        return found if divisor is right else self._new(f"select i1 {zero.text}, i64 0, i64 {found.text}", left.kind)

    def _compare(self, node: ast.Compare) -> Value:
        if len(node.ops) > 1:
            return self._either(node, [partial(self._link, node, i) for i in range(len(node.ops))], stops_at=False)
        return self._ordered(node.ops[0], self._one(node.left), self._one(node.comparators[0]))

    def _link(self, node: ast.Compare, i: int) -> Value:
        """One comparison of a chain. What stands in the middle is computed twice, which LLVM notices: it has no effect."""
        sides = [node.left, *node.comparators]
        return self._ordered(node.ops[i], self._one(sides[i]), self._one(sides[i + 1]))

    def _ordered(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        if type(op) not in _ORDERS:
            raise KernelError(f"a kernel has no {type(op).__name__}")
        signed, unsigned, floating = _ORDERS[type(op)]
        if DOUBLE in (left.kind, right.kind):
            left, right = self._to(left, DOUBLE), self._to(right, DOUBLE)
            return self._new(f"fcmp {floating} {left.typed}, {right.text}", BOOL)
        if left.kind != right.kind:
            wide = str(joined(left.kind, right.kind))
            left, right = self._to(left, wide), self._to(right, wide)
        return self._new(f"icmp {unsigned if left.kind == UINT else signed} {left.typed}, {right.text}", BOOL)

    def _logic(self, node: ast.BoolOp) -> Value:
        return self._either(node, [partial(self._one, v) for v in node.values], stops_at=isinstance(node.op, ast.Or))

    def _either(self, node: ast.expr, values: list[Callable[[], Value]], *, stops_at: bool) -> Value:
        """`and`, `or`: what comes later is computed only if what comes earlier does not decide."""
        end = self._label("end")
        ways: list[tuple[Value, str]] = []
        for i, make in enumerate(values):
            value = make()
            if value.kind != BOOL:
                raise KernelError(f"{ast.unparse(node)}: and, or are of bools")
            if i == len(values) - 1:
                ways.append((value, self._block))
                self._jump(end)
                break
            following = self._label("or" if stops_at else "and")
            ways.append((Value(BOOL, int(stops_at)), self._block))
            known = value.known
            if known is not None:
                if bool(known) is not stops_at:
                    ways.pop()
                self._jump(end if bool(known) is stops_at else following)
            else:
                self._branch(value, end if stops_at else following, following if stops_at else end)
            if not self._begin(following):
                break
        return self._met(end, ways)

    def _met(self, label: str, ways: list[tuple[Value, str]]) -> Value:
        """Begin the block where several ways meet, each with a value."""
        self._begin(label)
        if len(ways) == 1:
            return ways[0][0]
        kind = ways[0][0].kind
        return self._new(f"phi {LLVM[kind]} " + ", ".join(f"[ {value.text}, %{block} ]" for value, block in ways), kind)

    def _choice(self, node: ast.IfExp) -> Value:
        yes, no, end = self._label("then"), self._label("else"), self._label("end")
        self._test(node.test, yes, no)
        if not (yes in self._reached and no in self._reached):
            only = node.body if yes in self._reached else node.orelse
            self._begin(yes if yes in self._reached else no)
            return self._one(only)
        made = []
        for label, each in ((yes, node.body), (no, node.orelse)):
            self._begin(label)
            value = self._one(each)
            made.append((value, self._block, len(self._lines)))  # the way may still have to widen its value
            self._lines.append("")
            self._alive = False
        self._reached.add(end)
        wide = str(joined(made[0][0].kind, made[1][0].kind))
        ways = []
        for value, block, at in made:
            kept, self._lines = self._lines, []
            wider = self._to(value, wide)
            kept[at] = "\n".join([*self._lines, f"  br label %{end}"])
            self._lines = kept
            ways.append((wider, block))
        return self._met(end, ways)

    def _call(self, node: ast.Call) -> Any:
        called = self._outside(node.func)
        if node.keywords:
            raise KernelError("a kernel calls without keywords")
        values = [self._one(a) for a in node.args]
        if isinstance(called, Part):
            return self._called(called, values)
        if isinstance(called, Primitive):
            return self._primitive(called, values)
        if called in _KINDS:
            return self._to(values[0], _KINDS[called])
        if called is min or called is max:
            found = values[0]
            for value in values[1:]:
                wide = str(joined(found.kind, value.kind))
                found, value = self._to(found, wide), self._to(value, wide)
                first = self._ordered(ast.Lt() if called is min else ast.Gt(), value, found)
                found = self._new(f"select i1 {first.text}, {value.typed}, {found.typed}", wide)
            return found
        raise KernelError(f"{ast.unparse(node.func)} is not for kernels")

    def _called(self, part: Part, values: list[Value]) -> Any:
        symbol, result = self._module.instance(part, tuple(v.kind for v in values))
        line = f"call {llvm_type(result)} {symbol}({', '.join(v.typed for v in values)})"
        if result == NONE:
            self._emit(line)
            return Value(NONE, 0)
        if isinstance(result, str):
            return self._new(line, result)
        whole = self._new(line, INT)
        return [self._new(f"extractvalue {llvm_type(result)} {whole.text}, {i}", kind) for i, kind in enumerate(result)]

    def _primitive(self, made: Primitive, values: list[Value]) -> Value:
        if len(values) != len(made.arguments):
            raise KernelError(f"{made.name} takes {len(made.arguments)} arguments")
        given = [v if v.kind in (INT, UINT) and k == INT else self._to(v, k) for v, k in zip(values, made.arguments, strict=True)]
        if not made.text:
            known = given[0].known
            return Value(made.result, given[0].it if known is None else wrapped(made.result, known))
        self._module.need(made.needs)
        self._count += 1
        names = {str(i): v.text for i, v in enumerate(given)}
        text = _NAME.sub(lambda found: names.get(found[1], f"%{found[1]}.{self._count}"), made.text)
        self._lines += [f"  {line}" for line in text.split("\n")]
        return Value(made.result, f"%r.{self._count}" if made.result != NONE else 0)

    def _to(self, value: Value, kind: str) -> Value:
        """The value as another kind. An integer as an integer of the other kind is the same bits."""
        old = value.kind
        if old == kind:
            return value
        if kind == BOOL and old in (INT, UINT):
            return Value(BOOL, int(value.it != 0)) if value.known is not None else self._new(f"icmp ne i64 {value.text}, 0", BOOL)
        if kind in (INT, UINT) and old in (INT, UINT, BOOL):
            if value.known is not None:
                return Value(kind, wrapped(kind, value.known))
            return self._new(f"zext i1 {value.text} to i64", kind) if old == BOOL else Value(kind, value.it)
        if kind in (INT, UINT) and old == DOUBLE:
            return self._new(f"{'fptosi' if kind == INT else 'fptoui'} {value.typed} to i64", kind)
        if kind == DOUBLE and old in (INT, UINT):
            return self._new(f"{'sitofp' if old == INT else 'uitofp'} {value.typed} to double", kind)
        if (old, kind) in ((DOUBLE, SINGLE), (SINGLE, DOUBLE)):
            return self._new(f"{'fptrunc' if kind == SINGLE else 'fpext'} {value.typed} to {LLVM[kind]}", kind)
        raise KernelError(f"{name_of(old)} where {name_of(kind)} is wanted")


def _literal(node: ast.expr) -> int | None:
    """The number that an expression of written numbers is, as Python computes it: without a limit of size. None: it is no such thing."""
    match node:
        case ast.Constant(int(number)) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op, operand) if type(op) in _LITERAL_SIGNS:
            found = _literal(operand)
            return None if found is None else _LITERAL_SIGNS[type(op)](found)
        case ast.BinOp(left, op, right) if type(op) in _LITERAL:
            one, other = _literal(left), _literal(right)
            return None if one is None or other is None else _LITERAL[type(op)](one, other)
    return None


def _zero(kind: str) -> str:
    return {BOOL: "false", DOUBLE: "0.0", SINGLE: "0.0"}.get(kind, "0")


_STATEMENTS: dict[type[ast.stmt], Any] = {
    ast.Expr: _Function._expression, ast.Assign: _Function._assign, ast.AugAssign: _Function._augmented, ast.If: _Function._if,
    ast.While: _Function._while, ast.For: _Function._for, ast.Break: _Function._break, ast.Continue: _Function._continue,
    ast.Return: _Function._return, ast.Pass: lambda function, node: None,
}  # fmt: skip
_EXPRESSIONS: dict[type[ast.expr], Any] = {
    ast.Constant: _Function._constant, ast.Name: _Function._name, ast.Attribute: _Function._attribute, ast.UnaryOp: _Function._unary,
    ast.BinOp: _Function._operation, ast.Compare: _Function._compare, ast.BoolOp: _Function._logic, ast.IfExp: _Function._choice,
    ast.Call: _Function._call,
}  # fmt: skip
