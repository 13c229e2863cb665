"""Barriers stand between phases that conflict, and nowhere else."""

from __future__ import annotations

from textwrap import dedent

from tilewright.ir import function_text, parse_function, verify
from tilewright.lower import place_barriers


def placed(text: str) -> str:
    """What the pass makes of a launch that has one axis of threads, `T` standing for its phases.

    `S`, `R` are shared, `L` is local; `A` and `B` are parameters.
    """
    lines = dedent(text).strip().replace("T:", 'for t in thread(8, "threadIdx.x"):')
    body = "\n".join("        " + line for line in lines.splitlines())
    function = parse_function(
        "def f(A: f32[8], B: f32[8], N: i64[8], n: i64):\n"
        '    for b in thread(1, "blockIdx.x"):\n'
        '        S = alloc(f32[8], scope="shared")\n'
        '        R = alloc(i64[8], scope="shared")\n'
        '        L = alloc(f32[8], scope="local")\n' + body + "\n"
    )
    result = place_barriers(function)
    verify(result)
    again = place_barriers(result)
    assert function_text(again) == function_text(result)
    shown = function_text(result).replace('for t in thread(8, "threadIdx.x"):', "T:")
    return dedent("\n".join(shown.rstrip().splitlines()[5:]))


def becomes(before: str, after: str) -> None:
    assert placed(before) == dedent(after).strip()


def stays(text: str) -> None:
    becomes(text, text)


def test_between_a_phase_that_writes_and_one_that_reads() -> None:
    becomes(
        """
        T:
            S[t] = A[t]
        T:
            B[t] = S[7 - t]
        """,
        """
        T:
            S[t] = A[t]
        barrier()
        T:
            B[t] = S[7 - t]
        """,
    )


def test_phases_that_read_or_have_memory_of_their_own_need_none() -> None:
    stays(
        """
        T:
            L[0] = A[t]
        T:
            L[1] = A[7 - t]
        T:
            L[0] = L[1]
            S[t] = L[0]
        T:
            R[t] = N[t]
        """
    )


def test_one_barrier_serves_all_that_came_before() -> None:
    becomes(
        """
        T:
            S[t] = A[t]
        T:
            R[t] = N[t]
        T:
            B[t] = S[7 - t]
        T:
            L[R[t]] = 0.0
        """,
        """
        T:
            S[t] = A[t]
        T:
            R[t] = N[t]
        barrier()
        T:
            B[t] = S[7 - t]
        T:
            L[R[t]] = 0.0
        """,
    )


def test_global_memory_counts_as_well() -> None:
    becomes(
        """
        T:
            B[t] = A[t]
        T:
            A[7 - t] = 0.0
        """,
        """
        T:
            B[t] = A[t]
        barrier()
        T:
            A[7 - t] = 0.0
        """,
    )


def test_an_iteration_meets_the_one_before() -> None:
    becomes(
        """
        T:
            L[t] = 0.0
        for k in range(n):
            T:
                S[t] = A[t]
            T:
                R[t] = N[t]
            T:
                L[t] = L[t] + S[R[7 - t]]
        T:
            B[t] = L[t]
        """,
        """
        T:
            L[t] = 0.0
        for k in range(n):
            barrier()
            T:
                S[t] = A[t]
            T:
                R[t] = N[t]
            barrier()
            T:
                L[t] = L[t] + S[R[7 - t]]
        T:
            B[t] = L[t]
        """,
    )


def test_a_loop_that_may_not_run_leaves_what_was_before_it() -> None:
    text = """
        T:
            S[t] = A[t]
        for k in range({}):
            barrier()
        T:
            B[t] = S[7 - t]
        """
    stays(text.format(4))
    barrier = "        barrier()\n        T:\n            B"
    becomes(text.format("n"), text.format("n").replace("        T:\n            B", barrier))


def test_branches_are_followed_side_by_side() -> None:
    becomes(
        """
        T:
            S[t] = A[t]
        if n < 4:
            T:
                B[t] = S[7 - t]
        else:
            T:
                L[t] = 0.0
        T:
            S[t] = 0.0
        """,
        """
        T:
            S[t] = A[t]
        if n < 4:
            barrier()
            T:
                B[t] = S[7 - t]
        else:
            T:
                L[t] = 0.0
        barrier()
        T:
            S[t] = 0.0
        """,
    )


def test_all_threads_read_conditions_extents_and_names() -> None:
    becomes(
        """
        T:
            R[t] = N[t]
        if R[0] < 4:
            T:
                B[t] = 0.0
        for k in range(R[1]):
            T:
                R[t] = 0
        x = let(R[2])
        T:
            B[x] = 0.0
        """,
        """
        T:
            R[t] = N[t]
        barrier()
        if R[0] < 4:
            T:
                B[t] = 0.0
        for k in range(R[1]):
            barrier()
            T:
                R[t] = 0
        barrier()
        x = let(R[2])
        T:
            B[x] = 0.0
        """,
    )


def test_a_condition_is_read_again_by_every_iteration() -> None:
    becomes(
        """
        T:
            S[t] = A[t]
        while S[0] < 4.0:
            T:
                S[t] = S[t] + 1.0
        """,
        """
        T:
            S[t] = A[t]
        barrier()
        while S[0] < 4.0:
            barrier()
            T:
                S[t] = S[t] + 1.0
            barrier()
        """,
    )


def test_statements_in_no_phase_are_phases_of_one_thread() -> None:
    becomes(
        """
        S[0] = 1.0
        T:
            B[t] = S[0]
        assert S[1] < 4.0, "too large"
        S[0] = 2.0
        """,
        """
        S[0] = 1.0
        barrier()
        T:
            B[t] = S[0]
        assert S[1] < 4.0, "too large"
        barrier()
        S[0] = 2.0
        """,
    )


def test_one_thread_does_not_wait_for_itself() -> None:
    becomes(
        """
        T:
            S[t] = A[t]
        B[0] = 0.0
        for k in range(8):
            for one in thread(1, "threadIdx.x"):
                B[0] = B[0] + S[k]
        T:
            A[t] = B[0]
        """,
        """
        T:
            S[t] = A[t]
        B[0] = 0.0
        barrier()
        for k in range(8):
            for one in thread(1, "threadIdx.x"):
                B[0] = B[0] + S[k]
        barrier()
        T:
            A[t] = B[0]
        """,
    )


def test_launches_do_not_wait_for_each_other() -> None:
    text = dedent("""
        def f(A: f32[8], B: f32[8]):
            for i in range(4):
                for b in thread(8, "blockIdx.x"):
                    A[b] = 1.0
                for y in thread(2, "blockIdx.y"):
                    for x in thread(4, "blockIdx.x"):
                        B[y * 4 + x] = A[0]
        """).lstrip()
    function = parse_function(text)
    assert place_barriers(function) is function
