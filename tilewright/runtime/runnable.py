"""The common interface of all compiled models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from tilewright.runtime.artifact import Build, Key, save_models
from tilewright.runtime.binding import Spec, UnsuitedError
from tilewright.runtime.crossed import NOTHING, Crossed
from tilewright.support.denormals import Denormals
from tilewright.support.errors import InternalError, TilewrightError, UserError, nearest
from tilewright.support.faults import as_tilewright_error
from tilewright.support.files import AnyPath
from tilewright.support.timing import Latencies, latencies

if TYPE_CHECKING:
    from tilewright.runtime.executor import BoundModel
    from tilewright.support.profile import Profile

Inputs = Mapping[str, Any] | Sequence[Any]
_T = TypeVar("_T")
_Apart = Callable[["RunnableModel", Inputs, UnsuitedError], "RunnableModel"]
#: The operation in progress, for messages.
_DOING: Final = {"run": "running", "bind": "binding", "profile": "profiling"}


class RunnableModel:
    """A model that can be run; subclasses implement how.

    `set_input`, `run()` and `get_output` keep arrays in the model and are for a single thread.
    """

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        self._results: list[Any] = []
        #: Gives the model for inputs that disagree on a symbolic dimension, or whose sizes this
        #: program does not support; None: such inputs are refused.
        self.apart: _Apart | None = None

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """The inputs in order: name, element type, shape."""
        raise NotImplementedError

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """The outputs in order: name, element type, shape."""
        raise NotImplementedError

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        """The outputs for inputs by name or in order, in the caller's arrays where given."""
        raise NotImplementedError

    def as_build(self) -> Build:
        """The model as stored in an artifact."""
        raise NotImplementedError

    # ---- running --------------------------------------------------------------------------------

    def run(self, inputs: Inputs | None = None, *, out: Inputs = ()) -> list[Any]:
        """The outputs for these inputs, given by name or in order.

        Without inputs, those of `set_input` are used. `out` are arrays of the caller's, by name or
        in order, for outputs whose shapes follow from those of the inputs.
        """
        given = self._given if inputs is None else inputs
        results = self._called("run", given, lambda model: model.outputs_for(given, out))
        if inputs is None:
            self._results = results
        return results

    def _called(self, name: str, inputs: Inputs, call: Callable[[RunnableModel], _T]) -> _T:
        """The result of `call` for the model that accepts these inputs; raises only our errors."""
        try:
            try:
                return call(self)
            except UnsuitedError as error:
                if self.apart is None:
                    raise
                return self.apart(self, inputs, error)._called(name, inputs, call)
        except TilewrightError:
            raise
        except Exception as error:
            raise self._failed(error, name, inputs) from error

    def _failed(self, error: Exception, name: str, inputs: Inputs) -> TilewrightError:
        """The error to raise where the call `name` of the model fails unexpectedly."""
        reported = as_tilewright_error(error, f"{_DOING[name]} the model failed")
        if isinstance(reported, InternalError):
            # The fault may have left an inconsistent state: describing it must not fail as well.
            with suppress(Exception):
                reported.places["model"] = repr(self)
            with suppress(Exception):
                reported.places["call"] = f"{name}({_inputs_text(inputs)})"
        return reported

    def __call__(self, *inputs: Any) -> Any:
        """The output for these inputs in order; a tuple where there are several."""
        results = self.run(inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def set_input(self, name: str, value: Any) -> None:
        """Set an input for `run()`."""
        names = [s.name for s in self.inputs]
        if not _is_one_of(name, names):
            raise UserError(f"the model has no input {name}", remedy=nearest(name, names))
        self._given[name] = value

    def get_output(self, output: int | str = 0) -> Any:
        """An output of the last `run()`, by number or by name."""
        names = [s.name for s in self.outputs]
        number = names.index(str(output)) if _is_one_of(output, names) else output
        if not isinstance(number, int) or not -len(names) <= number < len(names):
            raise UserError(f"the model has no output {output}", remedy=nearest(str(output), names))
        if not self._results:
            raise UserError("there are no outputs yet", remedy="call run() first")
        return self._results[number]

    # ---- more ways to run -----------------------------------------------------------------------

    def bind(self, inputs: Inputs, out: Inputs = ()) -> BoundModel:
        """Bind the model to arrays; calling the result runs it on their current contents.

        Nothing is checked, copied or allocated per call; results are in the arrays `out`, or in new
        ones that all calls share.
        """
        return self._called("bind", inputs, lambda model: model.bound_to(inputs, out))

    def bound_to(self, inputs: Inputs, out: Inputs) -> BoundModel:
        """The model tied to these arrays."""
        raise self._not_offered("be bound to arrays")

    def benchmark(self, inputs: Inputs, *, seconds: float = 1.0, warmup: int = 3) -> Latencies:
        """The latency of single runs on these inputs, as percentiles."""
        if not isinstance(seconds, Real) or not isinstance(warmup, Integral):
            reason = f"got {seconds!r} seconds, after {warmup!r} runs"
            raise UserError("cannot time the model", reason=reason, remedy="give numbers")
        return latencies(lambda: self.run(inputs), float(seconds), int(warmup))

    def profile(self, inputs: Inputs, *, runs: int = 10, warmup: int = 2) -> Profile:
        """The time of each kernel call, in `runs` runs on these inputs.

        The first call compiles a recording variant of the host program, except for saved models for
        GPUs, which contain one; `run` is not slowed down.
        """
        return self._called("profile", inputs, lambda m: m.profile_of(inputs, runs, warmup))

    def profile_of(self, inputs: Inputs, runs: int, warmup: int) -> Profile:
        """The profile of `runs` runs, after `warmup` others."""
        raise self._not_offered("be profiled")

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        """Use `count` threads from now on (None: all cores), on the given processors."""
        raise self._not_offered("be given threads")

    @property
    def copied(self) -> Crossed:
        """The copies that the last run made between host and device: NumPy inputs and outputs of a
        model for a GPU."""
        return NOTHING

    @property
    def precision(self) -> str:
        """The requested precision; unless float32, with the number of products in each type."""
        return "float32"

    @property
    def denormals(self) -> Denormals:
        """Whether the code flushes numbers below the least normal one to zero, or keeps them."""
        return "keep"

    @property
    def texts(self) -> Mapping[str, str]:
        """The graph, the host program and the loops of each kernel, by file name."""
        return {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels, where the model is compiled as a whole."""
        return ()

    def _not_offered(self, what: str) -> UserError:
        return UserError(
            f"this {type(self).__name__} cannot {what}",
            reason="it is not one native program",
            remedy="compile a model whose structure does not depend on values of its inputs, and"
            " that has no strings",
        )

    # ---- saving ----------------------------------------------------------------------------------

    def save(self, path: AnyPath, *, key: Key | None = None) -> None:
        """Write the model to one file, which `tilewright.load` reads on any such machine.

        `key` signs it: the path of a PEM file with a private Ed25519 key, or the key as bytes.
        """
        save_models([self], path, key)

    def export_library(
        self,
        path: str | os.PathLike[str],
        header: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        """Write a library for C; the suffix of `path` selects its kind: `.o`, `.a` or `.so`.

        `header` is the path for its declarations; `name` is the prefix of its functions, by default
        the name of the file. Only `.so` needs a linker on this machine.
        """
        raise self._not_offered("be exported as a library")

    def export_micro(self, folder: str | os.PathLike[str], *, name: str | None = None) -> Any:
        """Write object file, header and notes for a machine without an operating system.

        `name` is the prefix of files and functions, by default the name of the folder. All memory
        is static; the result gives its size.
        """
        raise self._not_offered("be exported for a machine without an operating system")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise UserError(
            f"cannot pickle or copy a {type(self).__name__}",
            reason="it holds machine code that is loaded into this process",
            remedy="model.save(path), and tilewright.load(path) where it is needed",
        )

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, s)) for s in (self.inputs, self.outputs))
        return f"<{type(self).__name__} ({inputs}) -> ({outputs})>"


def _is_one_of(name: object, names: Sequence[str]) -> bool:
    return isinstance(name, str) and name in names


def _inputs_text(inputs: Any) -> str:
    """The types and shapes of arbitrary inputs, for messages."""
    named: Any = inputs.items() if hasattr(inputs, "items") else enumerate(inputs)
    return ", ".join(f"{name}: {_input_text(value)}" for name, value in named)


def _input_text(value: Any) -> str:
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{dtype}{[*shape]}"
