"""The methods of a schedule that move and reshape blocks and buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.ir import Buffer, DType
from tilewright.schedule.handles import BlockLike, BlockRef, Loop, LoopLike
from tilewright.schedule.layout_text import LayoutLike, layout_text
from tilewright.schedule.state import ScheduleState
from tilewright.schedule.writing import BufferLike, buffer_touched


class BlockMethods(ScheduleState):
    """Block primitives; `NAME.py` below `schedule/primitives` shows before and after.

    A buffer is given as itself, by name, or by its position among those that the block reads
    (cache_read), writes (cache_write) or accesses (written ones first; all others).
    """

    # ---- where blocks are computed ---------------------------------------------------------------

    def compute_inline(self, block: BlockLike) -> None:
        """Compute an elementwise block in its consumers; the block and its buffer are removed."""
        self._apply("compute_inline", self.block(block))

    def reverse_compute_inline(self, block: BlockLike) -> None:
        """Compute an elementwise block in its producer; the block and the buffer between go."""
        self._apply("reverse_compute_inline", self.block(block))

    def compute_at(self, block: BlockLike, loop: LoopLike) -> tuple[Loop, ...]:
        """Compute a block in a loop of its consumers, just what an iteration needs.

        Gives its new loops, one for each iterator that takes more than one value there.
        """
        return self._apply("compute_at", self.block(block), self.loop(loop))

    def reverse_compute_at(self, block: BlockLike, loop: LoopLike) -> tuple[Loop, ...]:
        """Compute a block in a loop of its producers, on what an iteration made.

        Gives its new loops, one for each iterator that takes more than one value there.
        """
        return self._apply("reverse_compute_at", self.block(block), self.loop(loop))

    # ---- stages between buffers ------------------------------------------------------------------

    def cache_read(self, block: BlockLike, buffer: BufferLike, scope: str = "global") -> BlockRef:
        """Let a block read a copy of a buffer; gives the block that makes the copy."""
        return self._apply("cache_read", self.block(block), _named(buffer), scope)[0]

    def cache_write(
        self, block: BlockLike, buffer: BufferLike = 0, scope: str = "global"
    ) -> BlockRef:
        """Let a block write into a new buffer; gives the block that copies it out."""
        return self._apply("cache_write", self.block(block), _named(buffer), scope)[0]

    def reindex(
        self, block: BlockLike, buffer: BufferLike, dimensions: Sequence[int] | None = None
    ) -> BlockRef:
        """Let a block access a copy laid out by its iterators; gives the block that copies.

        `dimensions` are the ones laid out that way, if not all.
        """
        chosen = () if dimensions is None else ([*dimensions],)
        return self._apply("reindex", self.block(block), _named(buffer), *chosen)[0]

    def copy_operand(self, block: BlockLike, factor: int, dtype: object | None = None) -> BlockRef:
        """Let a factor (0 or 1) of a sum of products be read from a copy, maybe of a wider type."""
        name = None if dtype is None else DType.of(dtype).name
        return self._apply("copy_operand", self.block(block), factor, name)[0]

    def shift_operand(self, block: BlockLike, factor: int) -> tuple[BlockRef, ...]:
        """Change the signedness of the bytes of a factor of a sum of products.

        Gives the new blocks.
        """
        return self._apply("shift_operand", self.block(block), factor)

    # ---- buffers ---------------------------------------------------------------------------------

    def transform_layout(
        self,
        block: BlockLike,
        buffer: BufferLike,
        layout: LayoutLike,
        pad_value: bool | int | float | None = None,
    ) -> None:
        """Change the layout of a buffer: `lambda i, j: (j // 8, i, j % 8)`.

        The layout of a parameter can change too: callers then pass arrays of the new shape.
        Elements to which no old one maps are set to `pad_value`, or stay undefined without it.
        """
        place = self.block(block)
        rank = buffer_touched(self.block_of(place), buffer).ndim
        text = layout_text(layout, rank)
        self._apply("transform_layout", place, _named(buffer), text, pad_value)

    def replicate(
        self, block: BlockLike, count: int, readers: Mapping[str, LayoutLike] | None = None
    ) -> tuple[Loop, ...]:
        """Write several copies of the buffer that a block writes; `readers` maps blocks to the copy
        that they read, as a function of their iterators: `{"P": lambda i, j: (j % 4,)}`. Gives the
        new loops of the writers."""
        texts = tuple(
            (name, layout_text(given, len(self.block_of(name).iters)))
            for name, given in (readers or {}).items()
        )
        return self._apply("replicate", self.block(block), count, texts)

    def merge_dimensions(self, block: BlockLike, index: int) -> None:
        """Merge two adjacent iterators into one, in all blocks and buffers that they index.

        Parameters change shape: this is for callers that pass addresses.
        """
        self._apply("merge_dimensions", self.block(block), index)

    def set_scope(self, block: BlockLike, buffer: BufferLike, scope: str) -> None:
        """Choose the memory scope of an intermediate buffer: global, local, shared or tile."""
        self._apply("set_scope", self.block(block), _named(buffer), scope)

    def storage_align(
        self, block: BlockLike, buffer: BufferLike, axis: int, factor: int, offset: int = 0
    ) -> None:
        """Make the stride of an axis of an intermediate buffer k * factor + offset."""
        self._apply("storage_align", self.block(block), _named(buffer), axis, factor, offset)

    def pad(self, block: BlockLike, factors: Sequence[int]) -> tuple[BlockRef, ...]:
        """Round the extents of a block's iterators up to multiples, one factor for each.

        Gives the blocks that pad operands, then those that crop results.
        """
        return self._apply("pad", self.block(block), tuple(factors))

    def decompose_padding(self, block: BlockLike, loop: LoopLike) -> BlockRef:
        """Fill a padded buffer before `loop`, then copy what is inside; gives the filling block."""
        return self._apply("decompose_padding", self.block(block), self.loop(loop))[0]

    # ---- overlapping iterations ------------------------------------------------------------------

    def double_buffer(self, block: BlockLike, loop: LoopLike) -> None:
        """Let iterations of a loop alternate between two versions of what a block in it writes."""
        self._apply("double_buffer", self.block(block), self.loop(loop))

    def software_pipeline(self, loop: LoopLike, stages: Sequence[int]) -> None:
        """Overlap iterations of a loop; one stage for each statement inside."""
        self._apply("software_pipeline", self.loop(loop), tuple(stages))

    # ---- the function as a whole -----------------------------------------------------------------

    def remove_empty(self) -> None:
        """Remove blocks that never run."""
        self._apply("remove_empty")

    def stream(self, numbers: Sequence[int]) -> None:
        """Let these parameters, which are only written, bypass the caches."""
        self._apply("stream", tuple(numbers))


def _named(buffer: BufferLike) -> str | int:
    return buffer.name if isinstance(buffer, Buffer) else buffer
