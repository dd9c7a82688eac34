"""large_sizes.py: a program with a reshape whose number of elements is too long for a dim: each of its
extents is the sum of the lengths of eight slices of an input."""

T = "v_tensor<[{}], f32>"


def joined(name, symbol):
    print(f'  %{name} = nn.feed() {{name = "{name}"}} : () -> {T.format(symbol)}')
    lengths = []
    for step in range(2, 10):
        length = f"floordiv({symbol} + {step - 1}, {step})"
        lengths.append(length)
        for what, value in (("s", 0), ("e", 2**62), ("a", 0), ("t", step)):
            print(f"  %{name}{what}{step} = builtin.constant() {{value = tensor<[1], i64> [{value}]}} : () -> v_tensor<[1], i64>")
        operands = ", ".join(f"%{name}{what}{step}" for what in "seat")
        print(f"  %{name}{step} = nn.slice(%{name}, {operands}) : ({T.format(symbol)}"
              + ", v_tensor<[1], i64>" * 4 + f") -> {T.format(length)}")
    parts, types = (", ".join(x) for x in ([f"%{name}{s}" for s in range(2, 10)], map(T.format, lengths)))
    extent = " + ".join(lengths)
    print(f"  %{name}j = nn.concat({parts}) {{axis = 0}} : ({types}) -> {T.format(extent)}")
    return extent


print("program {")
a, b, c = (joined(name, symbol) for name, symbol in (("x", "N"), ("y", "M"), ("z", "K")))
for name, extent, shape in (("x", a, "[-1, 1, 1]"), ("y", b, "[-1, 1]"), ("z", c, "[-1]")):
    rank = shape.count("1")
    print(f"  %{name}n = builtin.constant() {{value = tensor<[{rank}], i64> {shape}}} : () -> v_tensor<[{rank}], i64>")
    to = T.format(", ".join([extent] + ["1"] * (rank - 1)))
    print(f"  %{name}r = nn.reshape(%{name}j, %{name}n) : ({T.format(extent)}, v_tensor<[{rank}], i64>) -> {to}")
xr, yr, zr = T.format(f"{a}, 1, 1"), T.format(f"{b}, 1"), T.format(c)
xy, xyz = T.format(f"{a}, {b}, 1"), T.format(f"{a}, {b}, {c}")
print(f"  %p = nn.add(%xr, %yr) : ({xr}, {yr}) -> {xy}")
print(f"  %q = nn.add(%p, %zr) : ({xy}, {zr}) -> {xyz}")
print(f'  nn.fetch(%q) {{name = "q"}} : ({xyz}) -> ()')
print("}")
