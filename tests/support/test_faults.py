from __future__ import annotations

import errno

import pytest

from tilewright.support.errors import InternalError, UserError
from tilewright.support.faults import as_tilewright_error, during


def test_what_is_unexpected_becomes_a_fault_that_says_where() -> None:
    subject = object()
    with (
        pytest.raises(InternalError) as caught,
        during("pass", "fuse", subject),
        during("kernel", "add_1"),
        during("node", "node /a (Add)"),
    ):
        raise KeyError("x")
    error = caught.value
    assert error.places == {"node": "node /a (Add)", "kernel": "add_1", "pass": "fuse"}
    assert error.subjects == [subject] and isinstance(error.__cause__, KeyError)
    assert str(error).splitlines() == [
        "node /a (Add) failed: KeyError: 'x'",
        "  in node /a (Add)",
        "  in kernel add_1",
        "  in pass fuse",
        "  this is a bug in Tilewright: please report it",
    ]


def test_faults_that_are_known_as_such_learn_where_they_happened() -> None:
    told = pytest.raises(InternalError, match=r"no code for it(.|\n)*in kernel k")
    with told as caught, during("kernel", "k"):
        raise InternalError("no code for it")
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "error", [UserError("no"), MemoryError(), KeyboardInterrupt(), SystemExit()]
)
def test_what_is_no_fault_goes_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, during("pass", "fuse"):
        raise error
    assert caught.value is error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "f"), UserError),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), UserError),
        (OSError(errno.EMFILE, "Too many open files"), UserError),
        (FileNotFoundError(errno.ENOENT, "No such file", "f"), InternalError),
        (MemoryError("much"), UserError),
        (RecursionError("deep"), InternalError),
    ],
)
def test_what_the_machine_lacks_is_no_fault_of_ours(error: Exception, kind: type) -> None:
    assert type(as_tilewright_error(error, "it failed")) is kind
