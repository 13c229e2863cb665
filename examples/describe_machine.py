"""What Tilewright makes of this machine."""

from __future__ import annotations

from tilewright.support.config import format_size
from tilewright.target import Target


def main() -> None:
    target = Target.of("llvm")
    caches = ", ".join(
        f"{name} {format_size(size)}"
        for name, size in zip(target.caches._fields, target.caches, strict=True)
    )
    print(f"target     {target}")
    print(f"cores      {target.cores}")
    print(f"vectors    {target.vector_registers} registers of {target.vector_bits} bits")
    print(f"float32    {target.lanes('float32')} lanes, {target.fma_ports} multiply-adds per cycle")
    print(f"caches     {caches}")
    print(f"features   {' '.join(sorted(target.features))}")


if __name__ == "__main__":
    main()
