"""Default schedules compute what the plain loops compute, and are what they are meant to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.ir import Block, Const, Expr, For, Select, all_exprs, binary, const, evaluate, walk
from tilewright.schedule import RULES, Schedule, schedule_by_rules

Definition = Callable[[], tuple[list[te.Tensor], te.Tensor]]


def tensor(*shape: int, dtype: str = "float32", name: str = "X") -> te.Tensor:
    return te.placeholder(shape, dtype, name=name)


def matmul(m: int, n: int, k: int, ta: bool = False, tb: bool = False, dtype: str = "float32"):
    a = tensor(*((k, m) if ta else (m, k)), dtype=dtype, name="A")
    b = tensor(*((n, k) if tb else (k, n)), dtype=dtype, name="B")
    return [a, b], ops.matmul(a, b, transpose_a=ta, transpose_b=tb)


def batch_matmul(b: int, m: int, n: int, k: int):
    x, y = tensor(b, m, k, name="A"), tensor(b, k, n, name="B")
    return [x, y], ops.matmul(x, y)


def dense_with_epilogue(m: int, n: int, k: int):
    (a, b), c = matmul(m, n, k)
    bias = tensor(n, name="bias")
    return [a, b, bias], ops.relu(ops.add(c, bias))


def with_gelu(definition: tuple[list[te.Tensor], te.Tensor]):
    inputs, output = definition
    return inputs, ops.gelu(output)


def conv(layout: str, c: int, o: int, size: int, kernel: int, stride: int = 1, pad: int = 0):
    attrs = {"strides": [stride] * 2, "pads": [pad] * 4}
    if layout == "nchw":
        x, w = tensor(1, c, size, size), tensor(o, c, kernel, kernel, name="W")
        return [x, w], ops.conv(x, w, **attrs)
    if layout == "nhwc":
        x, w = tensor(1, 1, size, size, c), tensor(o, kernel, kernel, c, name="W")
        return [x, w], ops.conv_last(x, w, **attrs)
    x, w = tensor(1, c // 4, size, size, 4), tensor(o // 8, c // 4, kernel, kernel, 4, 8, name="W")
    return [x, w], ops.conv_blocked(x, w, **attrs)


def depthwise(c: int, size: int, stride: int = 1, kernel: int = 3):
    x, w = tensor(1, c // 8, size, size, 8), tensor(c // 8, kernel, kernel, 8, name="W")
    return [x, w], ops.depthwise_blocked(x, w, strides=[stride] * 2, pads=[kernel // 2] * 4)


def of_one(operator: Callable[..., te.Tensor], *shape: int, dtype: str = "float32", **options: Any):
    x = tensor(*shape, dtype=dtype)
    return [x], operator(x, **options)


def layer_norm(*shape: int):
    x, g, b = tensor(*shape), tensor(shape[-1], name="G"), tensor(shape[-1], name="B")
    return [x, g, b], ops.layer_norm(x, g, b)


POOL: dict[str, Any] = {"kernel": [3, 3], "strides": [2, 2], "pads": [1] * 4}

CASES: dict[str, Definition] = {
    "matmul": lambda: matmul(65, 70, 90),
    "matmul, packed": lambda: matmul(130, 77, 300),
    "matmul, uneven rows": lambda: matmul(49, 144, 300),
    "matmul, one row": lambda: matmul(1, 700, 90),
    "matmul, few rows": lambda: matmul(5, 600, 100),
    "matmul, one column": lambda: matmul(50, 1, 70),
    "matmul, A transposed": lambda: matmul(67, 70, 300, ta=True),
    "matmul, B transposed": lambda: matmul(67, 70, 300, tb=True),
    "matmul, float64": lambda: matmul(67, 70, 90, dtype="float64"),
    "matmul, int32": lambda: matmul(33, 40, 50, dtype="int32"),
    "batched": lambda: batch_matmul(3, 33, 41, 50),
    "dense, bias, relu": lambda: dense_with_epilogue(66, 130, 70),
    "conv nchw": lambda: conv("nchw", 5, 9, 13, 3, 2, 1),
    "conv nhwc": lambda: conv("nhwc", 5, 24, 13, 3, 1, 1),
    "conv nhwc 1x1": lambda: conv("nhwc", 32, 48, 9, 1),
    "conv blocked": lambda: conv("blocked", 16, 32, 14, 3, 1, 1),
    "conv blocked stride": lambda: conv("blocked", 8, 16, 15, 3, 2, 1),
    "conv blocked 1x1": lambda: conv("blocked", 32, 16, 7, 1),
    "depthwise": lambda: depthwise(16, 15),
    "depthwise stride": lambda: depthwise(16, 15, 2),
    "depthwise, tiles inside and at edges": lambda: depthwise(16, 44, 1, 5),
    "max pool": lambda: of_one(ops.max_pool, 1, 3, 15, 15, **POOL),
    "average pool": lambda: of_one(ops.avg_pool, 1, 3, 15, 15, **POOL),
    "softmax": lambda: of_one(ops.softmax, 33, 77),
    "softmax, short rows": lambda: of_one(ops.softmax, 33, 3),
    "softmax over columns": lambda: of_one(ops.softmax, 33, 40, axis=0),
    "layer norm": lambda: layer_norm(7, 5, 131),
    "sum of rows": lambda: of_one(ops.sum, 100, 333, axes=(1,)),
    "sum of short rows": lambda: of_one(ops.sum, 100, 16, axes=(1,)),
    "sum of columns": lambda: of_one(ops.sum, 333, 100, axes=(0,)),
    "sum of long columns": lambda: of_one(ops.sum, 300, 1030, axes=(0,)),
    "sum of all": lambda: of_one(ops.sum, 37, 41, axes=(0, 1)),
    "sum in the middle": lambda: of_one(ops.sum, 7, 30, 9, axes=(1,)),
    "max of rows": lambda: of_one(ops.max, 20, 50, axes=(1,)),
    "dense, gelu": lambda: with_gelu(matmul(67, 133, 70)),
    "conv blocked, gelu": lambda: with_gelu(conv("blocked", 8, 16, 12, 3, pad=1)),
    "depthwise, gelu": lambda: with_gelu(depthwise(16, 12)),
    "relu": lambda: of_one(ops.relu, 37, 41),
    "gelu": lambda: of_one(ops.gelu, 300, 40),
    "transpose": lambda: of_one(ops.transpose, 67, 130, axes=(1, 0)),
    "transpose, thin": lambda: of_one(ops.transpose, 3, 130, axes=(1, 0)),
    "transpose, thin, i8": lambda: of_one(ops.transpose, 9, 5, 67, axes=(0, 2, 1), dtype="int8"),
    "transpose, thin, far": lambda: of_one(ops.transpose, 2, 3, 9000, axes=(0, 2, 1)),
    "transpose, four axes": lambda: of_one(ops.transpose, 2, 9, 17, 6, axes=(0, 2, 3, 1)),
    "transpose, dimensions between": lambda: of_one(ops.transpose, 24, 3, 20, axes=(2, 1, 0)),
    "transpose, batches and edges": lambda: of_one(ops.transpose, 3, 70, 90, axes=(0, 2, 1)),
    "transpose, f64": lambda: of_one(ops.transpose, 37, 130, axes=(1, 0), dtype="float64"),
    "transpose, f16": lambda: of_one(ops.transpose, 803, 801, axes=(1, 0), dtype="float16"),
    "transpose, i8": lambda: of_one(ops.transpose, 67, 130, axes=(1, 0), dtype="int8"),
    "pad": lambda: of_one(ops.pad, 9, 13, before=(1, 0), after=(2, 3)),
}


def arrays_for(function: tw.Function) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = []
    for buffer in function.buffers:
        shape = [int(d.value) for d in buffer.shape if isinstance(d, Const)]
        dtype = buffer.dtype.numpy
        values = rng.integers(-9, 9, shape) if dtype.kind == "i" else rng.standard_normal(shape)
        found.append(values.astype(dtype))
    return found


@pytest.mark.parametrize("name", CASES)
def test_default_schedule_computes_the_same(name: str) -> None:
    inputs, output = CASES[name]()
    function = te.function(inputs, [output], name="f")
    arrays = arrays_for(function)
    expected = [a.copy() for a in arrays]
    tw.build(tw.Schedule(function))(*expected)
    for threads in (1, 3):
        target = tw.Target.of(f"llvm -num-cores={threads}")
        arrays[-1].fill(77)
        tw.build(function, target, threads=threads)(*arrays)
        np.testing.assert_allclose(arrays[-1], expected[-1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", [n for n in CASES if "one column" not in n and n != "pad"])
@pytest.mark.parametrize("cpu", ["neoverse-n1", "x86-64-v3", "sapphirerapids"])
def test_default_schedule_uses_vectors(name: str, cpu: str) -> None:
    triples = {"neoverse-n1": "aarch64-unknown-linux-gnu"}
    triple = triples.get(cpu, "x86_64-unknown-linux-gnu")
    inputs, output = CASES[name]()
    function = te.function(inputs, [output], name="f")
    scheduled = schedule_by_rules(function, tw.Target.of(f"llvm -mtriple={triple} -mcpu={cpu}"))
    kinds = {s.kind for s in walk(scheduled.body) if isinstance(s, For)}
    turned = "transpose" in name and "thin" not in name
    assert turned or "vectorized" in kinds


def test_windows_read_images_where_they_are() -> None:
    """Unless edges lie within vectors, or what is padded is computed."""
    x, w = tensor(1, 2, 28, 28, 8), tensor(2, 3, 3, 8, name="W")
    y, v = tensor(1, 16, 28, 28), tensor(16, 1, 3, 3, name="W")
    powers = te.compute(x.shape, lambda *i: te.exp(x[i]), name="powers")
    cases = {
        "plain": ([x, w], ops.depthwise_blocked(x, w, pads=[1] * 4)),
        "of powers": ([x, w], ops.depthwise_blocked(powers, w, pads=[1] * 4)),
        "along rows": ([y, v], ops.conv(y, v, pads=[1] * 4, groups=16)),
    }
    target = tw.Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1")
    padded: dict[str, bool] = {}
    for name, (inputs, output) in cases.items():
        scheduled = schedule_by_rules(te.function(inputs, [output], name="f"), target)
        blocks = [b.name for b in walk(scheduled.body) if isinstance(b, Block)]
        padded[name] = any("pad" in b for b in blocks)
    assert padded == {"plain": False, "of powers": True, "along rows": True}


@pytest.mark.parametrize(("kernel", "stride", "vectors"), [(5, 1, 1), (3, 2, 4), (2, 2, 4)])
def test_tiles_are_long_where_windows_share_much(kernel: int, stride: int, vectors: int) -> None:
    x, size = tensor(1, 4, 57, 57, 16), (57 - kernel) // stride + 1
    over = [te.reduce_axis(kernel, name=n) for n in ("a", "b")]

    def greatest(n: Expr, c: Expr, i: Expr, j: Expr, k: Expr) -> Expr:
        return te.max(x[n, c, i * stride + over[0], j * stride + over[1], k], axis=over)

    y = te.compute((1, 4, size, size, 16), greatest, name="pool")
    target = tw.Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1")
    s = Schedule(schedule_by_rules(te.function([x], [y], name="f"), target))
    *_, beside, lanes = (evaluate(s.loop_of(loop).extent, {}) for loop in s.loops("pool"))
    assert (beside, lanes) == (vectors, 4)


@pytest.mark.parametrize("name", ["conv blocked, gelu", "depthwise, gelu"])
@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1", 4),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3", 2),
    ],
)
def test_long_epilogues_take_a_few_vectors_at_a_time(name: str, target: str, count: int) -> None:
    """Accumulators are put down; what follows is a loop with so many vectors written out."""
    inputs, output = CASES[name]()
    function = te.function(inputs, [output], name="f")
    scheduled = schedule_by_rules(function, tw.Target.of(target))
    (last,) = [b for b in walk(scheduled.body) if isinstance(b, Block) and "gelu" in b.name]
    around = [f for f in walk(scheduled.body) if isinstance(f, For) and last in walk(f)]
    kinds = [f.kind for f in around]
    unrolled = [evaluate(f.extent, {}) for f in around if f.kind == "unrolled"]
    assert kinds[-1] == "vectorized"
    assert np.prod(unrolled) == count
    assert all(r.buffer.scope != "local" for r in last.reads)


@pytest.mark.parametrize("rows", [196, 128])
def test_long_epilogues_come_in_groups_of_four_vectors(rows: int) -> None:
    """Whatever tiles there are: chains of operations wait unless others run beside them."""
    inputs, output = with_gelu(matmul(rows, 1536, 384))
    target = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=2")
    scheduled = schedule_by_rules(te.function(inputs, [output], name="f"), target)
    (last,) = [b for b in walk(scheduled.body) if isinstance(b, Block) and "gelu" in b.name]
    around = [f for f in walk(scheduled.body) if isinstance(f, For) and last in walk(f)]
    unrolled = [evaluate(f.extent, {}) for f in around if f.kind == "unrolled"]
    assert np.prod(unrolled) % 4 == 0


@pytest.mark.parametrize("comparison", ["lt", "le", "gt", "ge"])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_are_cut_where_elements_come_from_elsewhere(comparison: str, turned: bool) -> None:
    compare = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
    x, y = tensor(40, 37), tensor(40, 37, name="Y")

    def element(i: Expr, j: Expr) -> Expr:
        a, b = (const(21), j) if turned else (j, const(21))
        return te.select(binary(comparison, a, b), x[i, j], y[i, j])

    function = te.function([x, y], [te.compute((40, 37), element, name="Z")], name="f")
    module = tw.build(function)
    assert not any(isinstance(e, Select) for e in all_exprs(module.ir("lowered").body))
    given = [
        np.random.default_rng(k).standard_normal((40, 37)).astype(np.float32) for k in range(2)
    ]
    out = np.empty((40, 37), np.float32)
    module(*given, out)
    j = np.arange(37)
    picks = compare[comparison](21, j) if turned else compare[comparison](j, 21)
    np.testing.assert_array_equal(out, np.where(picks, *given))


def test_what_runs_over_nothing_is_left_alone() -> None:
    x, k = tensor(0, 9, 5), te.reduce_axis(2)
    padded = te.compute(
        (0, 9, 7),
        lambda n, i, j: te.if_then_else((j > 0) & (j < 6), x[n, i, j - 1], 0.0),
        name="P",
    )
    y = te.compute((0, 9, 6), lambda n, i, j: te.sum(padded[n, i, j + k], axis=k), name="Y")
    given, out = np.empty((0, 9, 5), np.float32), np.empty((0, 9, 6), np.float32)
    tw.build(te.function([x], [y]))(given, out)


def test_padding_may_come_together_with_something_else() -> None:
    x, k = tensor(16, 16), te.reduce_axis(3)

    def parts(i: Expr, j: Expr) -> tuple[Any, Any]:
        inside = (i > 0) & (i < 17) & (j > 0) & (j < 17)
        return x[0, 0] * 2.0, te.if_then_else(inside, x[i - 1, j - 1], 0.0)

    _, padded = te.compute((18, 18), parts, name="P")
    y = te.compute((4, 16, 16), lambda c, i, j: te.max(padded[i + k, j], axis=k), name="Y")
    given = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    out = np.empty((4, 16, 16), np.float32)
    tw.build(te.function([x], [y]))(given, out)
    around = np.pad(given, 1)[:, :16]
    wanted = np.max([around[:16], around[1:17], around[2:]], axis=0)
    np.testing.assert_array_equal(out, np.broadcast_to(wanted, out.shape))


def test_rows_stay_whole_where_seams_lie_between_vectors() -> None:
    x, y = tensor(9, 64), tensor(9, 64, name="Y")
    z = te.compute((9, 64), lambda i, j: te.select(j < 32, x[i, j], y[i, j]), name="Z")
    function = schedule_by_rules(te.function([x, y], [z], name="f"), tw.Target.of("llvm"))
    assert sum(isinstance(s, Block) for s in walk(function.body)) == 1


def test_a_free_dimension_may_be_one_and_leaves_work_for_every_core() -> None:
    n = te.var("n")
    x, y = te.placeholder((n, 64, 256), name="A"), te.placeholder((n, 256, 512), name="B")
    for inputs, output in (([x, y], ops.matmul(x, y)), ([y], ops.softmax(y))):
        function = te.function(inputs, [output], name="f")
        scheduled = schedule_by_rules(function, tw.Target.of("llvm -num-cores=4"))
        loops = [s for s in walk(scheduled.body) if isinstance(s, For) and s.kind == "parallel"]
        assert max(evaluate(s.extent, {n: 1}) for s in loops) >= 4


def test_maps_of_any_size_have_vectors_and_threads() -> None:
    """Also where one loop over all elements cannot be shown to write each of them once."""
    n, h, w = te.var("n"), te.var("h"), te.var("w")
    for shape in ((n, 3, h, w, 8), (n, 24, h * 2, w)):
        x = te.placeholder(shape, name="X")
        function = schedule_by_rules(
            te.function([x], [ops.relu(x)], name="f"), tw.Target.of("llvm -num-cores=2")
        )
        kinds = [s.kind for s in walk(function.body) if isinstance(s, For)]
        assert "vectorized" in kinds and "parallel" in kinds


def test_threads_find_their_place_for_many_elements_at_a_time() -> None:
    """Divisions by sizes that are not known take longer than a vector."""
    n, h, w = te.var("n"), te.var("h"), te.var("w")
    x = te.placeholder((n, 2, h, w, 8), name="X")
    y = te.compute((n, h, w, 2, 8), lambda n, h, w, k, b: x[n, k, h, w, b], name="Y")
    target = tw.Target.of("llvm -num-cores=2")
    function = schedule_by_rules(te.function([x], [y], name="f"), target)
    (threads,) = [s for s in walk(function.body) if isinstance(s, For) and s.kind == "parallel"]
    assert evaluate(threads.extent, {n: 1, h: 10, w: 100}) == 10


def test_threads_take_columns_where_rows_cannot_be_shared_out_evenly() -> None:
    target = tw.Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1 -num-cores=2")
    for rows, parts in ((49, "j"), (64, "i")):
        inputs, output = matmul(rows, 288, 300)
        function = schedule_by_rules(te.function(inputs, [output], name="f"), target)
        block = next(b for b in walk(function.body) if isinstance(b, Block) and b.init is not None)
        around = [s for s in walk(function.body) if isinstance(s, For) and block in walk(s.body)]
        (outer,) = [s for s in around if s.kind == "parallel"]
        assert outer.var.name.startswith(parts)


CPUS = ["neoverse-n1", "x86-64-v3", "skylake-avx512", "znver4"]


@pytest.mark.parametrize("name", CASES)
def test_no_block_is_left_with_its_plain_loops(name: str) -> None:
    inputs, output = CASES[name]()
    function = te.function(inputs, [output], name="f")
    for cpu in CPUS:
        scheduled = schedule_by_rules(function, tw.Target.of(f"llvm -mcpu={cpu} -num-cores=8"))
        assert "refused" not in scheduled.attrs


@pytest.mark.parametrize("lanes", [4, 8, 12, 16, 32, 48, 64, 80])
def test_rows_of_a_few_vectors_are_reduced_by_vectors(lanes: int) -> None:
    x = tensor(200, lanes)
    function = te.function([x], [ops.sum(x, axes=(1,))], name="f")
    for cpu in CPUS:
        target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=8")
        s = tw.Schedule(schedule_by_rules(function, target))
        for block in s.blocks():
            inner = s.loop_of(s.loops(block)[-1])
            is_long = isinstance(inner.extent, Const) and inner.extent.value > target.lanes("f32")
            assert inner.kind != "serial" or not is_long


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    "shape",
    [
        (128, 768, 3072),
        (64, 256, 1000),
        (197, 768, 768),
        (96, 64, 40),
        (49, 288, 576),
        (49, 300, 96),
    ],
)
def test_no_product_is_left_with_its_plain_loops(cpu: str, shape: tuple[int, int, int]) -> None:
    """Rows of a tile, lanes of a vector and cores need not divide each other."""
    m, k, n = shape
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    function = te.function([a, b], [ops.matmul(a, b, name="C")], name="f")
    for cores in (1, 4, 8, 32):
        s = RULES.schedule(function, tw.Target.of(f"llvm -mcpu={cpu} -num-cores={cores}"))
        assert not s.declined
        assert "vectorized" in {s.loop_of(loop).kind for loop in s.all_loops()}


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("batch", [1, 2])
def test_rows_that_all_threads_pack(cpu: str, batch: int) -> None:
    """More threads than chunks of rows: what is scheduled for eight of them computes the same."""
    inputs, output = batch_matmul(batch, 49, 576, 200)
    function = te.function(inputs, [output], name="f")
    scheduled = schedule_by_rules(function, tw.Target.of(f"llvm -mcpu={cpu} -num-cores=8"))
    block = next(b for b in walk(scheduled.body) if isinstance(b, Block) and b.init is not None)
    around = [s for s in walk(scheduled.body) if isinstance(s, For) and block in walk(s.body)]
    (threads,) = [s.extent for s in around if s.kind == "parallel"]
    assert isinstance(threads, Const) and threads.value >= 8
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(size).astype("f4") for size in ((49, 200), (200, 576)))
    a, b = np.stack([a] * batch), np.stack([b, -b][:batch])
    c = np.full((batch, 49, 576), np.nan, "f4")
    tw.build(tw.Schedule(scheduled), threads=2)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("cores", [2, 8, 16, 32])
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("shape", [(3136, 96, 384), (784, 192, 96), (100, 256, 256)])
def test_every_core_has_work(shape: tuple[int, int, int], cpu: str, cores: int) -> None:
    """Few blocks of columns, or few of rows, are shared out together."""
    inputs, output = matmul(*shape)
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores={cores}")
    scheduled = schedule_by_rules(te.function(inputs, [output], name="f"), target)
    block = next(b for b in walk(scheduled.body) if isinstance(b, Block) and b.init is not None)
    around = [s for s in walk(scheduled.body) if isinstance(s, For) and block in walk(s.body)]
    (threads,) = [s.extent for s in around if s.kind == "parallel"]
    assert isinstance(threads, Const)
    turns = -(-int(threads.value) // cores)
    assert threads.value >= 0.6 * turns * cores


@pytest.mark.parametrize(("cpu", "rows"), [("neoverse-n1", 24), ("skylake-avx512", 96)])
def test_threads_are_woken_for_as_many_cycles_on_every_machine(cpu: str, rows: int) -> None:
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2")

    def is_parallel(m: int) -> bool:
        inputs, output = matmul(m, 64, 64)
        scheduled = schedule_by_rules(te.function(inputs, [output], name="f"), target)
        return "parallel" in {s.kind for s in walk(scheduled.body) if isinstance(s, For)}

    assert is_parallel(rows + 8) and not is_parallel(rows)


def stem(outputs: int, block: int, kernel: int, stride: int):
    """A plain image into blocked channels."""
    x, w = tensor(1, 3, 224, 224), tensor(outputs // block, 3, kernel, kernel, block, name="W")
    margin = (0, 0, kernel // 2, kernel // 2)
    image = ops.pad(x, before=margin, after=margin)
    rc, ry, rx = (te.reduce_axis(n) for n in (3, kernel, kernel))
    size = (224 + 2 * (kernel // 2) - kernel) // stride + 1

    def element(n: Expr, o: Expr, y: Expr, x: Expr, b: Expr) -> Any:
        pixel = image[n, rc, y * stride + ry, x * stride + rx]
        return te.sum(pixel * w[o, rc, ry, rx, b], axis=[rc, ry, rx])

    return [x, w], te.compute((1, outputs // block, size, size, block), element)


@pytest.mark.parametrize(("outputs", "block"), [(8, 8), (24, 8), (40, 8), (64, 16)])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 2), (7, 2), (7, 4), (3, 3)])
def test_stems_of_all_sizes_keep_their_tiles(
    outputs: int, block: int, kernel: int, stride: int
) -> None:
    """Where a primitive refuses, plain loops are left behind that are twenty times as slow."""
    inputs, output = stem(outputs, block, kernel, stride)
    function = te.function(inputs, [output], name="f")
    for cpu in CPUS:
        s = RULES.schedule(function, tw.Target.of(f"llvm -mcpu={cpu} -num-cores=2"))
        assert not s.declined


def test_a_copy_of_one_number() -> None:
    x = te.placeholder((), name="x")
    module = tw.build(te.function([x], [te.compute((), lambda: x[()], name="y")], name="f"))
    got = np.zeros((), np.float32)
    module(np.array(2.5, np.float32), got)
    assert got == 2.5
