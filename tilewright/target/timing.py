"""How fast a processor is at what the cost models of schedules and layouts ask for.

The defaults were measured on x86-64 servers with AVX2 and AVX-512 and hold well enough on Arm's
cores; a row of the tables of processors overrides what is different there. Cycles are those of one
core, bytes per cycle what one core reads by itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ConvTiming(NamedTuple):
    """What convolutions reach, and what Winograd's transforms cost."""

    #: The shares of the machine's multiply-adds that direct convolutions reach: blocked channels;
    #: a plain image into blocked channels; plain channels; depthwise, with blocked channels and
    #: with plain ones (both are bound by memory).
    blocked: float = 0.85
    into_blocked: float = 0.6
    plain: float = 0.3
    depthwise: float = 0.15
    depthwise_plain: float = 0.06
    #: The same of transposed convolutions: as convolutions of phases, and as products that are
    #: added up where they overlap.
    transposed: float = 0.6
    transposed_plain: float = 0.05
    #: How much longer than a copy it takes to interleave phases element by element.
    scatter_factor: float = 8.0
    #: The share that the widest block of channels gains over one of no width.
    wide_block_gain: float = 0.15
    #: The share that the batched products of Winograd's transformed tiles reach.
    winograd_products: float = 0.8
    #: Cycles to load and store one vector of a transformed tile, and to transform it, for each
    #: point along an axis.
    transform_move: float = 2.5
    transform_point: float = 0.25
    #: Cycles for two more kernel calls.
    transform_calls: float = 10_000.0
    #: Cycles to transform one vector of weights where it is used, for each point.
    transform_weights: float = 2.3
    #: Cycles to add one vector of partial sums over a block of channels to the total.
    add_partial_sums: float = 1.7
    #: The time of a convolution of bytes, conversion of the image included, as a share of that in
    #: float32.
    bytes_share: float = 0.35
    #: The same where bytes are multiplied as pairs of 16 bits, of images that are bytes already.
    pairs_share: float = 0.75


class CpuTiming(NamedTuple):
    """Figures of one core, of its memory, and of handing work to other threads."""

    # ---- a core -----------------------------------------------------------------------------
    #: Vector loads that start in each cycle.
    load_ports: int = 2
    #: Instructions that start in each cycle.
    issue_width: int = 4
    #: Cycles that a load costs on average beyond its port: some miss L1.
    load_cycles: float = 0.15
    #: Cycles of counting and branching in one iteration of a loop.
    loop_cycles: float = 1.0
    #: Instructions that count and branch in one iteration of a loop.
    loop_instructions: int = 3
    #: The throughput of a tile of a product whose rows fill no whole vectors, as a share of one
    #: whose rows do.
    partial_vector_rate: float = 0.8
    #: Simple operations that take as long as one element of a transpose.
    transpose_operations: int = 4
    #: Dependent operations on vectors from which on instructions of neighbouring stores are
    #: interleaved, so that they hide each other's latency.
    interleaved_chain: int = 10
    #: Vectors of independent partial results that hide the latency of a reduction.
    partial_vectors: int = 4
    #: Instances of a block that take longer than the integer divisions which recover several loop
    #: variables from a fused one.
    division_instances: int = 256

    # ---- caches and memory ------------------------------------------------------------------
    #: Cycles for each byte that comes from L2; bytes per cycle from L3; bytes per cycle of a long
    #: run that lies in L2 or beyond; bytes per cycle of convolution weights from memory.
    l2_cycles_per_byte: float = 1 / 128
    l3_bytes_per_cycle: float = 12
    read_bytes_per_cycle: float = 10
    weight_bytes_per_cycle: float = 4.0
    #: Cycles from a prefetch of something far away to its arrival.
    fetch_latency: int = 192
    #: Cache lines that can be on their way to a core at the same time.
    lines_in_flight: int = 24
    #: Bytes that a software prefetch runs ahead of a sequential read.
    prefetch_distance: int = 1024
    #: Streams that stay on a cache line for so many iterations are left to the hardware prefetcher.
    prefetched_iterations: int = 16
    #: A sum down columns reads so many rows at a time; from memory, so many cache lines of one row.
    rows_at_a_time: int = 4
    lines_at_a_time: int = 4
    #: Bytes of a row that are read at a stretch before hardware prefetching pays off.
    sequential_run: int = 1024
    #: Ways of L1: addresses that are a multiple of its size divided by this apart share a set.
    l1_ways: int = 8
    #: Rows further apart than this in bytes compete for the same cache sets; and the stride from
    #: which on a column is better read by strips of several cache lines.
    conflict_stride: int = 1024
    strip_stride: int = 2048
    #: Extra cycles of a load from a row that competes for cache sets.
    conflict_cycles: float = 0.12
    #: Cycles to copy one element: into packed rows of a product; into rows that are gathered from
    #: an image; one vector of a plain copy.
    pack_cycles: float = 1.0
    gather_cycles: float = 0.4
    copy_cycles: float = 1.0
    #: The share of the time that it takes to read what lies beyond L2 that is waited for, although
    #: it is prefetched.
    far_share: float = 0.5
    #: What every further chunk of rows of a product costs, as a share of all work: its columns are
    #: read again, but prefetched.
    chunk_cost: float = 0.001
    #: An operand of a product is packed, or converted to a wider type, beforehand if every element
    #: is used at least so often.
    pack_uses: int = 32
    convert_uses: int = 32
    #: The values of attention are copied where at least so many blocks of rows read them.
    copy_uses: int = 4
    #: Packed weights of few bits are unpacked once, in memory, for products of at least so many
    #: rows.
    unpack_rows: int = 32
    #: A tile of one vector by many rows takes the place of a wide one if its loads are at most this
    #: share of the wide one's.
    narrow_tile_loads: float = 0.7
    #: How much longer a copy takes that changes the layout of an image.
    relayout_factor: float = 2.0
    #: The share of a product's time that gathered rows save, where windows do not stay in L1.
    gather_gain: float = 0.12
    #: Up to so many rows, a product takes as long as reading its weights.
    memory_bound_rows: int = 16
    #: Up to so many operations for each byte, a kernel waits for memory.
    memory_bound_operations: int = 16
    #: Results smaller than this are not written past the caches: a target that names no machine
    #: has small caches, and the machine that runs the code may have larger ones.
    least_streamed: int = 32 << 20
    #: Where there is no L3, so many times L2 counts as near.
    near_without_l3: int = 8

    # ---- threads ----------------------------------------------------------------------------
    #: What one parallel region must be worth: cycles full of multiply-adds; simple operations;
    #: multiply-adds of narrow types, of which one instruction does many.
    fork_cycles: int = 12_500
    fork_operations: int = 50_000
    fork_narrow_products: int = 400_000

    conv: ConvTiming = ConvTiming()


#: A core that starts one instruction in each cycle and has its memory beside it, without threads.
MICROCONTROLLER: Final = CpuTiming(load_ports=1, issue_width=1, load_cycles=1.0, loop_cycles=3.0)
