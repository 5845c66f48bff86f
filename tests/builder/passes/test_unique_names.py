from enginesmith.builder.passes.unique_names import make_names_unique


def test_clashes_are_numbered(net, check):
    x = net.input("x", ["T", 4])
    w = net.parameter("w", [4])
    a = net.op("Mul", [x, w], ["T", 4])
    b = net.op("Neg", [a], ["T", 4])
    c = net.op("Neg", [b], ["T", 4])
    net.output(net.op("Add", [c, b], ["T", 4]))
    feeds = ["w", "a", "a"]
    for value, name in zip((a, b, c), feeds, strict=True):
        value.name = name
        value.producer().name = "same"
    assert make_names_unique(net.graph) == 4
    assert [value.name for value in (a, b, c)] == ["w_1", "a", "a_1"]
    assert len({node.name for node in net.graph}) == 4
    assert check(net, make_names_unique) == 0
