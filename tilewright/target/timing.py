"""Timing parameters of processors, for the cost models of schedules and layouts.

The defaults were measured on x86-64 servers with AVX2 and AVX-512 and hold well enough on Arm's
cores; rows of the tables of processors override what differs there. Cycles are those of one core,
bytes per cycle what one core reads by itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ConvTiming(NamedTuple):
    """The throughput of convolutions, and the cost of Winograd's transforms."""

    #: The fractions of peak multiply-adds that direct convolutions reach: blocked channels; a plain
    #: image into blocked channels; plain channels; depthwise, with blocked and with plain channels
    #: (both are memory-bound).
    blocked: float = 0.85
    into_blocked: float = 0.6
    plain: float = 0.3
    depthwise: float = 0.15
    depthwise_plain: float = 0.06
    #: The same for transposed convolutions: as convolutions of phases, and as products whose
    #: overlapping results are added.
    transposed: float = 0.6
    transposed_plain: float = 0.05
    #: The time to interleave phases element by element, relative to a copy.
    scatter_factor: float = 8.0
    #: The fraction that the widest block of channels gains over one of width zero.
    wide_block_gain: float = 0.15
    #: The fraction of peak that the batched products of Winograd's transformed tiles reach.
    winograd_products: float = 0.8
    #: Cycles per vector of a transformed tile, to load and store it, and to transform it for each
    #: point along an axis.
    transform_move: float = 2.5
    transform_point: float = 0.25
    #: Cycles of two additional kernel calls.
    transform_calls: float = 10_000.0
    #: Cycles to transform one vector of weights on the fly, for each point.
    transform_weights: float = 2.3
    #: Cycles to accumulate one vector of partial sums over a block of channels.
    add_partial_sums: float = 1.7
    #: The time of an int8 convolution, including the conversion of the image, relative to float32.
    bytes_share: float = 0.35
    #: The same if bytes are multiplied as pairs of 16 bits, for images that are bytes already.
    pairs_share: float = 0.75


class CpuTiming(NamedTuple):
    """Parameters of one core, its memory, and threading."""

    # ---- a core -----------------------------------------------------------------------------
    #: Vector loads started per cycle.
    load_ports: int = 2
    #: Instructions started per cycle.
    issue_width: int = 4
    #: Average cycles of a load beyond its port, since some miss L1.
    load_cycles: float = 0.15
    #: Overhead of one loop iteration in cycles.
    loop_cycles: float = 1.0
    #: Overhead of one loop iteration in instructions.
    loop_instructions: int = 3
    #: The throughput of a product's tile whose rows are not whole vectors, relative to one whose
    #: rows are.
    partial_vector_rate: float = 0.8
    #: The cost of transposing one element, in simple operations.
    transpose_operations: int = 4
    #: Length of the dependency chain from which on instructions of neighbouring stores are
    #: interleaved to hide latency.
    interleaved_chain: int = 10
    #: Independent partial vectors that hide the latency of a reduction.
    partial_vectors: int = 4
    #: Block instances that outweigh the integer divisions for recovering loop variables from a
    #: fused one.
    division_instances: int = 256

    # ---- caches and memory ------------------------------------------------------------------
    #: Cycles per byte from L2; bytes per cycle from L3; bytes per cycle of a long sequential read
    #: from L2 or beyond; bytes per cycle of convolution weights from memory.
    l2_cycles_per_byte: float = 1 / 128
    l3_bytes_per_cycle: float = 12
    read_bytes_per_cycle: float = 10
    weight_bytes_per_cycle: float = 4.0
    #: Cycles from a prefetch from far away to its arrival.
    fetch_latency: int = 192
    #: Cache lines in flight to a core at a time.
    lines_in_flight: int = 24
    #: Distance in bytes of software prefetches for a sequential read.
    prefetch_distance: int = 1024
    #: Streams with this many iterations per cache line are left to the hardware prefetcher.
    prefetched_iterations: int = 16
    #: A column sum reads this many rows at a time; from memory, this many cache lines of one row.
    rows_at_a_time: int = 4
    lines_at_a_time: int = 4
    #: Bytes of a row to read sequentially before hardware prefetching pays off.
    sequential_run: int = 1024
    #: Ways of L1: addresses that are a multiple of its size divided by this apart share a set.
    l1_ways: int = 8
    #: Rows further apart than this in bytes compete for cache sets; and the stride from which on a
    #: column is read by strips of several cache lines.
    conflict_stride: int = 1024
    strip_stride: int = 2048
    #: Extra cycles of a load from a row that competes for cache sets.
    conflict_cycles: float = 0.12
    #: Cycles to copy one element: into packed rows of a product; into rows gathered from an image;
    #: one vector of a plain copy.
    pack_cycles: float = 1.0
    gather_cycles: float = 0.4
    copy_cycles: float = 1.0
    #: The fraction of the time of reading beyond L2 that is not hidden by prefetching.
    far_share: float = 0.5
    #: The cost of each further chunk of rows of a product, as a fraction of all work: its columns
    #: are read again, but prefetched.
    chunk_cost: float = 0.001
    #: An operand of a product is packed, or converted to a wider type, beforehand if every element
    #: is used at least this many times.
    pack_uses: int = 32
    convert_uses: int = 32
    #: The values of attention are copied if at least this many blocks of rows read them.
    copy_uses: int = 4
    #: Packed weights of few bits are unpacked once, to memory, for products with at least this many
    #: rows.
    unpack_rows: int = 32
    #: A tile of one vector by many rows replaces a wide one if its loads are at most this fraction
    #: of the wide one's.
    narrow_tile_loads: float = 0.7
    #: The time of a copy that changes the layout of an image, relative to a plain copy.
    relayout_factor: float = 2.0
    #: The fraction of a product's time that gathered rows save, if windows do not stay in L1.
    gather_gain: float = 0.12
    #: Up to this many rows, a product takes as long as reading its weights.
    memory_bound_rows: int = 16
    #: Up to this many operations per byte, a kernel is memory-bound.
    memory_bound_operations: int = 16
    #: Smaller results are not written by non-temporal stores: a target without a named machine has
    #: small caches, and the actual machine may have larger ones.
    least_streamed: int = 32 << 20
    #: Without L3, this many times L2 counts as near.
    near_without_l3: int = 8

    # ---- threads ----------------------------------------------------------------------------
    #: The least work of a parallel region: cycles full of multiply-adds; simple operations;
    #: multiply-adds of narrow types, of which one instruction does many.
    fork_cycles: int = 12_500
    fork_operations: int = 50_000
    fork_narrow_products: int = 400_000

    conv: ConvTiming = ConvTiming()


#: A single-issue core with memory as fast as a cache, without threads.
MICROCONTROLLER: Final = CpuTiming(load_ports=1, issue_width=1, load_cycles=1.0, loop_cycles=3.0)
