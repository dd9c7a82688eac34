"""functions.py COUNT: a program that calls COUNT functions one after the other; in each there is
something to fold, merge, drop and recognize."""

import sys

TYPE = "v_tensor<[2, 4], f32>"


def function(i):
    def op(name, *operands):
        return f"nn.{name}({', '.join(operands)}) : ({', '.join([TYPE] * len(operands))}) -> {TYPE}"

    yield f'builtin.func() {{name = "f{i}"}} ({{ ^(%a: {TYPE}):'
    for name in ("c", "d"):
        yield f"%{name} = builtin.constant() {{value = tensor<[2, 4], f32> [{', '.join([f'{i % 7}.5'] * 8)}]}} : () -> {TYPE}"
    yield f"%s = {op('add', '%c', '%d')}"
    yield f"%p = {op('mul', '%a', '%s')}"
    yield f"%q = {op('mul', '%a', '%s')}"
    yield f"%dead = {op('exp', '%q')}"
    yield f"%n = {op('neg', '%p')}"
    yield f"%m = {op('neg', '%n')}"
    yield f"%e = {op('exp', '%m')}"
    yield "%axes = builtin.constant() {value = tensor<[1], i64> [1]} : () -> v_tensor<[1], i64>"
    yield f"%t = nn.reduce_sum(%e, %axes) : ({TYPE}, v_tensor<[1], i64>) -> v_tensor<[2, 1], f32>"
    yield f"%y = nn.div(%e, %t) : ({TYPE}, v_tensor<[2, 1], f32>) -> {TYPE}"
    yield f"%z = {op('add', '%y', '%q')}"
    yield f"builtin.return(%z) : ({TYPE}) -> ()"
    yield "}) : () -> ()"


def main():
    count = int(sys.argv[1])
    print("program {")
    print(f'%v0 = nn.feed() {{name = "x"}} : () -> {TYPE}')
    for i in range(count):
        print(f'%v{i + 1} = builtin.call(%v{i}) {{callee = "f{i}"}} : ({TYPE}) -> {TYPE}')
    print(f'nn.fetch(%v{count}) {{name = "y"}} : ({TYPE}) -> ()')
    for i in range(count):
        print(*function(i), sep="\n")
    print("}")


if __name__ == "__main__":
    main()
