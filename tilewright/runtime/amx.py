"""Permission to use Intel's AMX tiles, which Linux gives to a process only on request."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache

_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18


@cache
def request_amx() -> bool:
    """True if this process may use AMX from now on; false on machines without AMX.

    The permission holds for all threads and for forked children. Repeated requests cost nothing.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        return False
    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return False
    syscall.restype = ctypes.c_long
    arguments = (_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)
    return syscall(*(ctypes.c_long(a) for a in arguments)) == 0
