"""Tilewright compiles trained deep-learning models into native code.

Only public names live here, and heavy imports stay lazy: `import tilewright` loads neither LLVM
nor any frontend.
"""

from __future__ import annotations

__version__ = "0.1.0"
