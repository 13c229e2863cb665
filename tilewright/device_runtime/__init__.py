"""The runtime for devices without Python: C sources, and what builds them for a target.

`source/` is portable C with no dependencies but libc: it opens artifacts as `runtime/` does, links
their code into memory, runs and times models. `docs/device_runtime.md` shows it.
"""

# pyright: reportUnusedImport=false
from tilewright.device_runtime.build import (
    SOURCE,
    build_runtime,
    compiler_for,
    runtime_sources,
    serving_options,
)
from tilewright.device_runtime.monitor import MONITOR, MONITOR_BOARDS, build_monitor
