"""Every fault that the executor looks for, in a kernel made to have it, and its message."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simt.kernel_text import execute, fails, zeros
from tilewright.simt import SimtError
from tilewright.support.errors import UserError

# ---- bounds -------------------------------------------------------------------------------------


def test_a_store_outside_of_global_memory() -> None:
    error = fails(
        "k went wrong in block (2, 0, 0), thread (4, 0, 0): the element 20 of global A lies "
        "outside of 20 elements",
        """
        def k(A: f32[20]):
            for b in thread(4, "blockIdx.x"):
                for t in thread(8, "threadIdx.x"):
                    A[b * 8 + t] = 1.0
        """,
        zeros(20),
    )
    assert error.place is not None
    assert (error.kernel, error.place.block, error.place.thread) == ("k", (2, 0, 0), (4, 0, 0))
    assert "A[b * 8 + t] = 1.0\n" in error.listing


@pytest.mark.parametrize("scope", ["shared", "local"])
def test_a_load_outside_of_memory_of_blocks_and_threads(scope: str) -> None:
    fails(
        f"in block (0, 0, 0), thread (3, 1, 0): the element -1 of {scope} S lies outside",
        f"""
        def k(A: f32[20]):
            for b in thread(1, "blockIdx.x"):
                S = alloc(f32[8], scope="{scope}")
                for y in thread(2, "threadIdx.y"):
                    for x in thread(4, "threadIdx.x"):
                        S[y * 4 + x] = 0.0
                        if y * 4 + x == 7:
                            A[0] = S[x - 4]
        """,
        zeros(20),
    )


def test_lanes_of_vectors_are_checked_one_by_one() -> None:
    fails(
        "in block (0, 0, 0), thread (1, 0, 0): the element 6 of global A lies outside",
        """
        def k(A: f32[6]):
            for b in thread(1, "blockIdx.x"):
                for t in thread(2, "threadIdx.x"):
                    A[ramp(t * 4, 1, 4)] = broadcast(1.0, 4)
        """,
        zeros(6),
    )


def test_what_no_lane_wants_may_lie_outside() -> None:
    a = np.arange(6, dtype="f4")
    b = np.full(8, -1, "f4")
    execute(
        """
        def k(A: f32[6], B: f32[8]):
            for b in thread(1, "blockIdx.x"):
                for t in thread(8, "threadIdx.x"):
                    B[t] = A[t] if t < 6 and A[t] > 1.0 else 0.0
        """,
        a,
        b,
    )
    np.testing.assert_array_equal(b, [0, 0, 2, 3, 4, 5, 0, 0])


# ---- races --------------------------------------------------------------------------------------


REVERSE = """
def k(A: f32[64], B: f32[64]):
    for b in thread(4, "blockIdx.x"):
        S = alloc(f32[16], scope="shared")
        for t in thread(16, "threadIdx.x"):
            S[t] = A[b * 16 + t]
        barrier()
        for t in thread(16, "threadIdx.x"):
            B[b * 16 + t] = S[15 - t]
"""


def test_a_missing_barrier_is_a_race() -> None:
    a, b = np.arange(64, dtype="f4"), zeros(64)
    execute(REVERSE, a, b)
    np.testing.assert_array_equal(b.reshape(4, 16), a.reshape(4, 16)[:, ::-1])
    fails(
        "in block (0, 0, 0), thread (0, 0, 0): a race: it reads the element 15 of shared S, which "
        "block (0, 0, 0), thread (15, 0, 0) wrote with no barrier between them",
        REVERSE.replace("        barrier()\n", ""),
        a,
        b,
    )


ITERATED = """
def k(A: f32[64], B: f32[16]):
    for b in thread(1, "blockIdx.x"):
        S = alloc(f32[16], scope="shared")
        for i in range(4):
            for t in thread(16, "threadIdx.x"):
                S[t] = A[i * 16 + t]
            barrier()
            for t in thread(16, "threadIdx.x"):
                B[t] = S[15 - t]
            barrier()
"""


def test_the_next_iteration_races_with_reads_of_the_one_before() -> None:
    a, b = np.arange(64, dtype="f4"), zeros(16)
    execute(ITERATED, a, b)
    np.testing.assert_array_equal(b, a[:47:-1])
    text = ITERATED[: ITERATED.rindex("            barrier()")]
    fails(
        "a race: it writes the element 0 of shared S, which block (0, 0, 0), thread (15, 0, 0) "
        "read with no barrier between them",
        text,
        a,
        b,
    )


def test_threads_that_write_the_same_element() -> None:
    fails(
        "a race: it writes the element 0 of shared S, which block (0, 0, 0), thread (7, 0, 0) "
        "writes",
        """
        def k(A: f32[1]):
            for b in thread(1, "blockIdx.x"):
                S = alloc(f32[1], scope="shared")
                for t in thread(8, "threadIdx.x"):
                    S[0] = 1.0
        """,
        zeros(1),
    )


def test_several_readers_race_with_a_writer() -> None:
    fails(
        "a race: it writes the element 0 of shared S, which several threads of block (0, 0, 0) "
        "read",
        """
        def k(A: f32[8]):
            for b in thread(1, "blockIdx.x"):
                S = alloc(f32[1], scope="shared")
                S[0] = 1.0
                barrier()
                for t in thread(8, "threadIdx.x"):
                    A[t] = S[0]
                S[0] = 2.0
        """,
        zeros(8),
    )


ACROSS_BLOCKS = """
def k(A: f32[8], B: f32[8]):
    for b in thread(8, "blockIdx.x"):
        for t in thread(1, "threadIdx.x"):
            A[b] = 1.0
        barrier()
        for t in thread(1, "threadIdx.x"):
            B[b] = A[{}]
"""


def test_blocks_race_in_global_memory_whatever_barriers_there_are() -> None:
    execute(ACROSS_BLOCKS.format("b"), zeros(8), zeros(8))
    fails(
        "in block (0, 0, 0), thread (0, 0, 0): a race: it reads the element 7 of global A, which "
        "block (7, 0, 0), thread (0, 0, 0) wrote",
        ACROSS_BLOCKS.format("7 - b"),
        zeros(8),
        zeros(8),
    )


def test_blocks_that_read_race_with_one_that_writes() -> None:
    fails(
        "a race: it writes the element 3 of global A, which threads of other blocks read",
        """
        def k(A: f32[8], B: f32[8]):
            for b in thread(8, "blockIdx.x"):
                for t in thread(1, "threadIdx.x"):
                    B[b] = A[3]
                    A[b] = 0.0
        """,
        zeros(8),
        zeros(8),
    )


def test_a_launch_sees_what_the_one_before_wrote() -> None:
    b = zeros(8)
    execute(
        """
        def k(A: f32[8], B: f32[8]):
            for b in thread(8, "blockIdx.x"):
                A[b] = 3.0
            for b in thread(8, "blockIdx.x"):
                B[b] = A[7 - b]
        """,
        zeros(8),
        b,
    )
    assert (b == 3).all()


def test_chunks_of_blocks_race_too() -> None:
    """More blocks than execute together."""
    count = 1 << 17
    text = """
        def k(A: f32[131072]):
            for b in thread(131072, "blockIdx.x"):
                for t in thread(1, "threadIdx.x"):
                    A[b % {}] = 1.0
        """
    a = zeros(count)
    execute(text.format(count), a)
    assert a.all()
    fails("in block (131071, 0, 0)", text.format(count - 1), a)


# ---- barriers, checks and what cannot stand where it does ---------------------------------------


def test_a_barrier_that_not_all_threads_reach() -> None:
    fails(
        "in block (1, 0, 0), thread (3, 0, 0): it does not reach the barrier",
        """
        def k(A: f32[8]):
            for b in thread(4, "blockIdx.x"):
                for t in thread(4, "threadIdx.x"):
                    if b * 4 + t < 7:
                        barrier()
        """,
        zeros(8),
    )


def test_blocks_may_meet_barriers_apart_from_each_other() -> None:
    b = zeros(16)
    execute(
        """
        def k(N: i64[4], B: f32[16]):
            for b in thread(4, "blockIdx.x"):
                S = alloc(f32[4], scope="shared")
                for t in thread(4, "threadIdx.x"):
                    S[t] = 0.0
                barrier()
                for i in range(N[b]):
                    for t in thread(4, "threadIdx.x"):
                        B[b * 4 + t] = S[(t + 1) % 4]
                    barrier()
                    for t in thread(4, "threadIdx.x"):
                        S[t] = B[b * 4 + (t + 1) % 4] + 1.0
                    barrier()
                for t in thread(4, "threadIdx.x"):
                    B[b * 4 + t] = S[t]
        """,
        np.array([3, 0, 1, 2]),
        b,
    )
    np.testing.assert_array_equal(b, np.repeat([3, 0, 1, 2], 4))


def test_a_check_that_fails_reports_its_message() -> None:
    text = """
        def k(N: i64[8], A: f32[8]):
            for b in thread(2, "blockIdx.x"):
                for t in thread(4, "threadIdx.x"):
                    assert N[b * 4 + t] < 8, ("index {} is beyond {}", N[b * 4 + t], 8)
                    A[N[b * 4 + t]] = 1.0
        """
    a = zeros(8)
    execute(text, np.arange(8), a)
    assert a.all()
    with pytest.raises(UserError, match="k stopped: index 11 is beyond 8") as caught:
        execute(text, np.array([0, 1, 2, 3, 4, 11, 12, 7]), a)
    assert not isinstance(caught.value, SimtError)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("A[0] = 1.0", "the host does not write elements of buffers"),
        ("if A[0] < 1.0:\n    assert n > 0, 'no'", "the host does not read elements of buffers"),
        ("S = alloc(f32[4], scope='shared')\nassert n > 0, 'no'", "shared memory cannot be"),
        ("for t in thread(4, 'threadIdx.x'):\n    A[t] = 1.0", "threadIdx.x cannot stand here"),
        (
            "for b in thread(4, 'blockIdx.x'):\n    W = alloc(f32[4])\n    W[0] = 1.0",
            "global memory cannot be allocated in a launch",
        ),
        (
            "for b in thread(4, 'blockIdx.x'):\n    for t in thread(n, 'threadIdx.x'):\n"
            "        A[t] = 1.0",
            "loop t cannot run over threadIdx.x",
        ),
        (
            "for b in thread(4, 'blockIdx.x'):\n    for t in thread(1025, 'threadIdx.x'):\n"
            "        A[t] = 1.0",
            "a block of 1025 threads has more than 1024",
        ),
    ],
)
def test_what_cannot_stand_where_it_does(body: str, message: str) -> None:
    inner = body.replace("\n", "\n    ")
    fails(message, f"def k(A: f32[n]):\n    {inner}\n", zeros(4))


# ---- barriers of the grid -----------------------------------------------------------------------

EXCHANGE = """
    def k(A: f32[4], B: f32[4]):
        for b in thread(4, "blockIdx.x"):
            for t in thread(1, "threadIdx.x"):
                A[b] = 1.0
            {between}
            for t in thread(1, "threadIdx.x"):
                B[b] = A[3 - b]
"""


def test_blocks_that_wait_for_each_other_do_not_race() -> None:
    result = zeros(4)
    execute(EXCHANGE.format(between="grid_barrier()"), zeros(4), result)
    assert (result == 1).all()


def test_blocks_that_wait_only_for_themselves_race() -> None:
    fails(
        "a race: it reads the element 3 of global A, which block (3, 0, 0), thread (0, 0, 0) wrote",
        EXCHANGE.format(between="barrier()"),
        zeros(4),
        zeros(4),
    )


def test_a_race_after_a_barrier_of_the_grid() -> None:
    text = EXCHANGE.format(between="grid_barrier()").replace("B[b] = A[3 - b]", "B[0] = A[3 - b]")
    fails("a race: it writes the element 0 of global B", text, zeros(4), zeros(4))


def test_a_block_that_others_wait_for_in_vain() -> None:
    fails(
        "in block (2, 0, 0), thread (0, 0, 0): it does not reach the barrier that the other blocks",
        """
        def k(A: f32[4]):
            for b in thread(4, "blockIdx.x"):
                if b < 2:
                    grid_barrier()
                for t in thread(1, "threadIdx.x"):
                    A[b] = 1.0
        """,
        zeros(4),
    )


# ---- other threads of a warp --------------------------------------------------------------------


def test_what_neighbours_have() -> None:
    result = zeros(64)
    execute(
        """
        def k(A: f32[64]):
            for b in thread(1, "blockIdx.x"):
                for y in thread(2, "threadIdx.y"):
                    for x in thread(32, "threadIdx.x"):
                        if x < 16:
                            value = let(f32(y * 100 + x))
                            A[y * 32 + x] = of_lane(value, i32(x // 4 * 4 + 3 - x % 4), 4)
        """,
        result,
    )
    lanes = np.arange(16)
    want = np.zeros((2, 32), "f4")
    want[:, :16] = lanes // 4 * 4 + 3 - lanes % 4
    want[1, :16] += 100
    np.testing.assert_array_equal(result.reshape(2, 32), want)


def test_a_neighbour_that_does_not_take_part() -> None:
    fails(
        "thread (3, 0, 0): the thread that it asks for a value does not take part",
        """
        def k(A: f32[32]):
            for b in thread(1, "blockIdx.x"):
                for x in thread(32, "threadIdx.x"):
                    if x < 4:
                        A[x] = of_lane(f32(x), i32(x + 1), 32)
        """,
        zeros(32),
    )


def test_what_a_neighbour_has_not_written() -> None:
    fails(
        "nobody has written",
        """
        def k(A: f32[32]):
            for b in thread(1, "blockIdx.x"):
                for x in thread(32, "threadIdx.x"):
                    S = alloc(f32[1], scope="local")
                    if x > 0:
                        S[0] = 1.0
                    A[x] = of_lane(S[0], i32(x // 2 * 2), 2)
        """,
        zeros(32),
    )


# ---- groups that take turns ---------------------------------------------------------------------


def two_groups(touched: str) -> str:
    return f"""
        def k(A: f32[256], B: f32[256]):
            for b in thread(1, "blockIdx.x"):
                S = alloc(f32[256], scope="shared")
                for z in thread(2, "threadIdx.z"):
                    for y in thread(4, "threadIdx.y"):
                        for x in thread(32, "threadIdx.x"):
                            S[z * 128 + y * 32 + x] = A[z * 128 + y * 32 + x]
                groups_arrive(0)
                for z in thread(2, "threadIdx.z"):
                    for y in thread(4, "threadIdx.y"):
                        for x in thread(32, "threadIdx.x"):
                            B[z * 128 + y * 32 + x] = {touched}
                groups_await(0)
                for z in thread(2, "threadIdx.z"):
                    for y in thread(4, "threadIdx.y"):
                        for x in thread(32, "threadIdx.x"):
                            B[z * 128 + y * 32 + x] = S[255 - (z * 128 + y * 32 + x)]
        """


def test_a_group_sees_what_the_other_stored_before_it_arrived() -> None:
    a, b = np.arange(256, dtype="f4"), zeros(256)
    execute(two_groups("1.0"), a, b)
    np.testing.assert_array_equal(b, a[::-1])


def test_a_group_that_arrived_leaves_shared_memory_alone() -> None:
    message = "it touches the element 0 of shared S, which its group has told to be done with"
    fails(message, two_groups("S[z * 128 + y * 32 + x]"), zeros(256), zeros(256))


def test_a_group_awaits_the_time_for_which_the_other_arrives() -> None:
    text = two_groups("1.0")
    other, never = (
        text.replace("groups_await(0)", "groups_await(1)"),
        text.replace("                groups_arrive(0)\n", ""),
    )
    message = "it awaits time 1, and groups have arrived for time 0"
    fails(message, other, zeros(256), zeros(256))
    message = "it awaits time 0, and groups have arrived for no time"
    fails(message, never, zeros(256), zeros(256))
    twice = text.replace("groups_arrive(0)", "groups_arrive(0)\n                groups_arrive(1)")
    fails("its group has not awaited time 0 yet", twice, zeros(256), zeros(256))


def test_groups_take_turns_by_twos() -> None:
    text = two_groups("1.0").replace("thread(2,", "thread(1,")
    fails("its block is not made of two groups of four warps", text, zeros(256), zeros(256))
