"""Host programs: what runs between the kernels of a graph."""

# pyright: reportUnusedImport=false
from tilewright.graph.host.calls import KernelInfo
from tilewright.graph.host.program import HostProgram, kernel_bindings, lower_program
