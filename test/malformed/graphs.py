"""Graphs, opsets, attributes and local functions that break the rules."""

from corpus import OPSET, case, f32, field, graph, info, model, node, save
from onnx import AttributeProto, TensorProto, helper, numpy_helper

RELU = node("Relu", ["x"], ["y"])


def graph_case(id, nodes, feeds=None, **options):
    @case(id)
    def write(folder):
        save(folder, model(nodes, **options), feeds=feeds)


# --- values -------------------------------------------------------------------------------------

graph_case("graph-cycle-self", [node("Add", ["x", "y"], ["y"])])
graph_case("graph-cycle-two", [node("Add", ["x", "b"], ["y"]), node("Relu", ["y"], ["b"])])
graph_case("graph-out-of-order", [node("Relu", ["a"], ["y"]), node("Relu", ["x"], ["a"])])
graph_case("graph-duplicate-value", [RELU, node("Abs", ["x"], ["y"])])
graph_case("graph-duplicate-output-of-node", [node("Split", ["x"], ["y", "y"], num_outputs=2)])
graph_case("graph-duplicate-input", [RELU], inputs=[info("x", dims=[4]), info("x", dims=[4])])
graph_case("graph-value-named-as-input", [node("Relu", ["x"], ["x"]), RELU])
graph_case("graph-undefined-input", [node("Add", ["x", "nowhere"], ["y"])])
graph_case("graph-undefined-output", [RELU], outputs=[info("nowhere")])
graph_case("graph-no-outputs", [RELU], outputs=[])
graph_case("graph-output-unnamed", [RELU], outputs=[info("")])
graph_case("graph-output-twice", [RELU], {"x": f32(4)}, outputs=[info("y"), info("y")])
graph_case("graph-output-declared-rank", [RELU], outputs=[info("y", dims=[2, 2])])
graph_case("graph-output-declared-type", [RELU], outputs=[info("y", TensorProto.INT64)])
graph_case("graph-node-without-outputs", [node("Relu", ["x"], []), RELU])
graph_case("graph-input-absent", [node("Relu", [""], ["y"])])
graph_case("graph-too-few-inputs", [node("Add", ["x"], ["y"])])
graph_case("graph-too-many-inputs", [node("Relu", ["x", "x", "x"], ["y"])])
graph_case("graph-too-many-outputs", [node("Relu", ["x"], ["y", "z", "u"])])
graph_case(
    "graph-duplicate-initializer",
    [node("Add", ["x", "w"], ["y"])],
    initializers=[numpy_helper.from_array(f32(4) + i, "w") for i in range(2)],
)
graph_case("graph-initializer-unnamed", [RELU], initializers=[numpy_helper.from_array(f32(4))])

# --- operators and opsets -----------------------------------------------------------------------

graph_case("op-unknown", [node("Frobnicate", ["x"], ["y"])])
graph_case("op-misspelt", [node("Relus", ["x"], ["y"])])
graph_case("op-empty", [node("", ["x"], ["y"])])
graph_case("op-unknown-domain", [node("Relu", ["x"], ["y"], domain="com.example")])
graph_case(
    "op-unknown-domain-imported",
    [node("Frob", ["x"], ["y"], domain="com.example")],
    opsets={"": OPSET, "com.example": 1},
)
graph_case("op-removed", [node("Upsample", ["x", "x"], ["y"])], opsets={"": 13})
graph_case("op-not-yet", [node("Gelu", ["x"], ["y"])], opsets={"": 17})
graph_case("opset-missing", [RELU], opsets={})
graph_case("opset-of-other-domain-only", [RELU], opsets={"ai.onnx.ml": 3})
graph_case("opset-too-new", [RELU], opsets={"": 999})
graph_case("opset-zero", [RELU], opsets={"": 0})
graph_case("opset-negative", [RELU], opsets={"": -1})


@case("opset-twice")
def opset_twice(folder):
    proto = model([RELU])
    proto.opset_import.add(domain="ai.onnx", version=7)
    save(folder, proto)


@case("ir-version-future")
def ir_version_future(folder):
    proto = model([RELU])
    proto.ir_version = 1_000_000
    save(folder, proto)


# --- attributes ---------------------------------------------------------------------------------

graph_case("attribute-unknown", [node("Relu", ["x"], ["y"], alpha=1.0)])
graph_case("attribute-wrong-type", [node("LeakyRelu", ["x"], ["y"], alpha="steep")])
graph_case("attribute-missing", [node("Cast", ["x"], ["y"])])
graph_case("attribute-list-for-number", [node("Softmax", ["x"], ["y"], axis=[0])])


def attribute_case(id, attribute, op="LeakyRelu"):
    @case(id)
    def write(folder):
        bad = node(op, ["x"], ["y"])
        bad.attribute.append(attribute)
        save(folder, model([bad]))


attribute_case("attribute-type-lies", AttributeProto(name="alpha", type=AttributeProto.FLOAT, i=1))
UNKNOWN_TYPE = AttributeProto.FromString(field(1, b"alpha") + field(20, 99))
attribute_case("attribute-type-unknown", UNKNOWN_TYPE)
attribute_case("attribute-unnamed", AttributeProto(type=AttributeProto.FLOAT, f=1))
attribute_case(
    "attribute-reference-outside-function",
    AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope"),
)
attribute_case(
    "attribute-graph-empty", AttributeProto(name="then_branch", type=AttributeProto.GRAPH), "If"
)


@case("attribute-twice")
def attribute_twice(folder):
    bad = node("LeakyRelu", ["x"], ["y"], alpha=0.5)
    bad.attribute.append(helper.make_attribute("alpha", 0.25))
    save(folder, model([bad]))


# --- subgraphs ----------------------------------------------------------------------------------

BOOL = TensorProto.BOOL
CONDITION = [info("c", BOOL, []), info("x", dims=[4])]


def branch(*nodes, outputs=("r",)):
    return graph(list(nodes), [], [info(name) for name in outputs])


def if_case(id, then_branch, else_branch=None, inputs=None):
    other = branch(node("Abs", ["x"], ["r"]))
    choose = node("If", ["c"], ["y"], then_branch=then_branch, else_branch=else_branch or other)
    graph_case(id, [choose], inputs=inputs or CONDITION)


if_case("if-undefined-name", branch(node("Relu", ["nowhere"], ["r"])))
if_case("if-output-count", branch(node("Relu", ["x"], ["r"]), outputs=("r", "r")))
if_case("if-own-output", branch(node("Relu", ["y"], ["r"])))
if_case("if-unknown-op", branch(node("Frobnicate", ["x"], ["r"])))
if_case("if-with-inputs", graph([node("Relu", ["x"], ["r"])], [info("q")], [info("r")]))
if_case("if-cycle", branch(node("Add", ["x", "q"], ["r"]), node("Relu", ["r"], ["q"])))
if_case(
    "if-condition-float",
    branch(node("Relu", ["x"], ["r"])),
    inputs=[info("c", dims=[]), info("x", dims=[4])],
)


@case("if-branch-missing")
def branch_missing(folder):
    choose = node("If", ["c"], ["y"], then_branch=branch(node("Relu", ["x"], ["r"])))
    save(folder, model([choose], CONDITION))


@case("if-name-leaks-out")
def name_leaks_out(folder):
    inside = branch(node("Relu", ["x"], ["secret"]), node("Relu", ["secret"], ["r"]))
    choose = node("If", ["c"], ["z"], then_branch=inside, else_branch=inside)
    save(folder, model([choose, node("Add", ["z", "secret"], ["y"])], CONDITION))


# --- local functions ----------------------------------------------------------------------------


def function(name, nodes, inputs=("a",), outputs=("b",), opsets=None, **attributes):
    imports = [helper.make_opsetid(k, v) for k, v in (opsets or {"": OPSET, "my": 1}).items()]
    return helper.make_function("my", name, inputs, outputs, nodes, imports, **attributes)


def call(name, source="a", result="b"):
    return node(name, [source], [result], domain="my")


def function_case(id, functions, nodes=None):
    graph_case(
        id,
        nodes or [call("F0", "x", "y")],
        opsets={"": OPSET, "my": 1},
        functions=functions,
        feeds={"x": f32(4)},
    )


def chain(count):
    """F0 calls F1, which calls F2, ...; the last is a Relu."""
    calls = [function(f"F{i}", [call(f"F{i + 1}")]) for i in range(count - 1)]
    return [*calls, function(f"F{count - 1}", [node("Relu", ["a"], ["b"])])]


def doubling(count):
    """Each function calls the next twice, so that inlining needs 2^count nodes."""
    bodies = [[call(f"F{i + 1}", "a", "m"), call(f"F{i + 1}", "m", "b")] for i in range(count)]
    calls = [function(f"F{i}", body) for i, body in enumerate(bodies)]
    return [*calls, function(f"F{count}", [node("Relu", ["a"], ["b"])])]


IN_BRANCH = node(
    "If",
    ["k"],
    ["b"],
    then_branch=branch(call("F0", "a", "r")),
    else_branch=branch(node("Relu", ["a"], ["r"])),
)
TRUE = numpy_helper.from_array(f32(1)[0] == 0)

function_case("function-good", [function("F0", [node("Relu", ["a"], ["b"])])])
function_case("function-calls-itself", [function("F0", [call("F0")])])
function_case("function-cycle-two", [function("F0", [call("F1")]), function("F1", [call("F0")])])
function_case(
    "function-cycle-long",
    [function(f"F{i}", [call(f"F{(i + 1) % 1000}")]) for i in range(1000)],
)
function_case(
    "function-cycle-in-branch",
    [function("F0", [node("Constant", [], ["k"], value=TRUE), IN_BRANCH])],
)
function_case("function-cycle-unused", [function("F1", [call("F1")]), *chain(1)])
function_case("function-chain-deep", chain(10_000))
function_case("function-doubling", doubling(50))
function_case("function-duplicate", [*chain(1), *chain(1)])
function_case("function-missing", [function("G", [node("Relu", ["a"], ["b"])])])
function_case("function-undefined-input", [function("F0", [node("Relu", ["nowhere"], ["b"])])])
function_case("function-undefined-output", [function("F0", [node("Relu", ["a"], ["c"])])])
function_case("function-unknown-op", [function("F0", [node("Frobnicate", ["a"], ["b"])])])
function_case("function-reads-outside", [function("F0", [node("Add", ["a", "x"], ["b"])])])
function_case(
    "function-too-many-inputs", chain(1), [node("F0", ["x", "x", "x"], ["y"], domain="my")]
)
function_case(
    "function-too-many-outputs", chain(1), [node("F0", ["x"], ["y", "z", "u"], domain="my")]
)
function_case(
    "function-unknown-attribute", chain(1), [node("F0", ["x"], ["y"], domain="my", slope=1.0)]
)
function_case(
    "function-opset-too-new",
    [function("F0", [node("Relu", ["a"], ["b"])], opsets={"": 999})],
)
