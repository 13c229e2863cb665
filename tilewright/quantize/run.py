"""`tw.quantize`: from a float model and data to a quantized graph, step by step."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from tilewright.graph import Module, Value
from tilewright.quantize.data import Data
from tilewright.quantize.equalize import equalized
from tilewright.quantize.insert import quantized_module
from tilewright.quantize.layers import Layer, layers_of, parted, prepared
from tilewright.quantize.measure import Error, error_of
from tilewright.quantize.mixed import Trials, Trying, draw_curve, within_budget
from tilewright.quantize.observe import Batch, Progress, Statistics, observed
from tilewright.quantize.plan import Plan, planned
from tilewright.quantize.ranges import Calibration, require_method
from tilewright.quantize.report import LayerReport, Report, left_out
from tilewright.quantize.result import QuantizedModule
from tilewright.quantize.samples import Samples
from tilewright.quantize.simulate import Simulation
from tilewright.quantize.weights import Blocks, with_weights_alone
from tilewright.support.errors import UserError

#: Samples for comparing choices.
_TRIED: Final = 32


def quantize(
    model: Any,
    data: Any = None,
    *,
    budget: float | None = None,
    validation: Any = None,
    method: str = "mse",
    percentile: float = 99.99,
    symmetric: bool = False,
    equalize: bool = True,
    correct_bias: bool = True,
    keep: Collection[str] = (),
    weights: str | None = None,
    group: int = 32,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    params: Any = None,
    inputs: Any = None,
    progress: Progress | None = None,
) -> QuantizedModule:
    """Quantize a model's products to int8, with a measured error; or only weights, to few bits.

    `data` are representative samples: dicts of arrays by input (or arrays, for one input), any
    iterable of such batches, an .npz file or a folder of them. "random" makes samples up, and warns
    that ranges will be wrong. A fourth of the samples is held out to measure the error, unless
    `validation` gives others.

    `budget` is the allowed error of outputs relative to their largest value, as in `tilewright
    compare`: as many layers as necessary stay in float32. `keep` names layers that stay in float32
    in any case.

    `method` determines ranges: "mse", "minmax", "percentile" or "entropy". `symmetric` ranges have
    no zero point. `equalize` moves outliers of activations into weights if that reduces the error;
    `correct_bias` removes the mean error of rounded weights.

    `weights` ("int4" or "int8") rounds only the weights of matrix products, in blocks of `group`;
    it needs no data, unless `method` is "gptq" or "awq". With "gptq", the error of each rounded
    weight is compensated by those after it, to minimize the error of outputs on the data; with
    "awq", weights that are multiplied by large inputs are scaled up first, and the inputs down.
    `shapes`, `params` and `inputs` are as for `tw.compile`. `progress` is called with each step.
    """
    from tilewright.frontends import read_model
    from tilewright.graph import passes

    original = (
        passes.bind_shapes(model, shapes or {})
        if isinstance(model, Module)
        else read_model(model, shapes, params=params, inputs=inputs)
    )
    tell = progress or _silent
    if weights is not None:
        blocks = Blocks(weights, group, method)
        return with_weights_alone(original, blocks, keep, data, validation, tell)
    if method in ("gptq", "awq"):
        raise UserError(
            f"{method} rounds weights alone", remedy='pass weights="int4" or "int8" too'
        )
    how = Calibration(method, symmetric, percentile)
    require_method(how)
    _require_budget(budget)
    if data is None:
        raise UserError(
            "cannot quantize without calibration data",
            remedy='pass data= (batches by input name, an .npz file, a folder), or weights="int8"'
            " to round weights alone",
        )
    job = _Job(prepared(original), original, how, keep, tell, equalize, correct_bias)
    held_out = Data(data if validation is None else validation, original)
    return job.run(Data(data, original) if validation is not None else held_out, held_out, budget)


def _silent(_stage: str) -> None:
    """The default progress callback, which does nothing."""


def _require_budget(budget: float | None) -> None:
    if budget is not None and not 0 < budget < 1:
        raise UserError(
            f"the budget is {budget}",
            reason="it is an error relative to the outputs' largest value",
            remedy="use 0.01 for one percent",
        )


@dataclass
class _Job:
    """One run of quantization."""

    module: Module
    original: Module
    how: Calibration
    keep: Collection[str]
    tell: Progress
    equalize: bool
    correct: bool

    def run(self, data: Data, validation: Data, budget: float | None) -> QuantizedModule:
        samples = Samples.of(data, validation)
        layers, kept = parted(layers_of(self.module), self.keep)
        if not layers:
            rows = left_out(self.module, layers, kept)
            return QuantizedModule(self.original, Report(rows, budget=budget))
        statistics = self._observed(self.module, layers, samples)
        few: list[Batch] = list(islice(samples.held_out(), _TRIED))
        plan, trying, is_equal = self._best(layers, statistics, samples, few)
        with_noise = trying.ranked(plan.layers, lambda: self.tell("sensitivity of layers"))
        draw_curve(trying, with_noise, lambda: self.tell("trade-off"))
        in_float = 0 if budget is None else within_budget(trying, with_noise, budget)
        made, error, in_float = self._verified(plan, trying, with_noise, in_float, budget, samples)
        rows = _rows(plan, with_noise, in_float, trying.work)
        report = Report(
            [*rows, *left_out(plan.module, plan.layers, self._kept(plan))],
            error,
            budget,
            self.how.method,
            is_equal,
            samples.is_apart,
            with_noise.curve,
        )
        return QuantizedModule(made, report)

    def _kept(self, plan: Plan) -> list[Layer]:
        return parted(layers_of(plan.module), self.keep)[1]

    def _observed(
        self, module: Module, layers: Sequence[Layer], samples: Samples
    ) -> dict[Value, Statistics]:
        batches = samples.calibration()
        return observed(module, layers, batches, lambda: self.tell("calibration"))

    def _best(
        self,
        layers: list[Layer],
        statistics: Mapping[Value, Statistics],
        samples: Samples,
        few: Sequence[Batch],
    ) -> tuple[Plan, Trying, bool]:
        """The plan with the smaller error: of the original model, or of the equalized one."""
        plain = self._tried(self.module, layers, statistics, few)
        other = equalized(self.module, layers, statistics) if self.equalize else self.module
        if other is self.module:
            return (*plain, False)
        # Rewriting keeps the values where only constants change.
        names = {layer.name for layer in layers}
        again = [layer for layer in layers_of(other) if layer.name in names]
        changed = self._tried(other, again, self._observed(other, again, samples), few)
        errors = [t.error(set(p.layers)).sqnr for p, t in (plain, changed)]
        return (*changed, True) if errors[1] > errors[0] else (*plain, False)

    def _tried(
        self,
        module: Module,
        layers: list[Layer],
        statistics: Mapping[Value, Statistics],
        few: Sequence[Batch],
    ) -> tuple[Plan, Trying]:
        plan = planned(module, layers, statistics, self.how, correct=self.correct)
        self.tell("simulation")
        work = {layer: layer.work(statistics[layer.x].shape) for layer in layers}
        return plan, Trying(Simulation(plan), few, work)

    def _verified(
        self,
        plan: Plan,
        trying: Trying,
        trials: Trials,
        in_float: int,
        budget: float | None,
        samples: Samples,
    ) -> tuple[Module, Error, int]:
        """The quantized module, compiled and measured; returns layers to float32 until it holds."""
        from tilewright.compile import compile

        reference: Any = compile(self.original)
        while True:
            chosen = trials.order[in_float:]
            made = quantized_module(plan, chosen) if chosen else self.original
            self.tell("measuring")
            model: Any = compile(made)
            error = error_of(model.run, reference.run, samples.held_out())
            if budget is None or error.expected <= budget or not chosen:
                return made, error, in_float
            in_float = min(len(trials.order), in_float + 1 + len(chosen) // 10)


def _rows(
    plan: Plan, trials: Trials, in_float: int, work: Mapping[Layer, int]
) -> list[LayerReport]:
    back = set(trials.order[:in_float])
    total = max(sum(work.values()), 1)
    return [
        LayerReport(
            layer.name,
            layer.origin,
            layer.call.op.name,
            "float32" if layer in back else "int8",
            "kept for the budget" if layer in back else "",
            trials.noise[layer].sqnr,
            work[layer] / total,
        )
        for layer in plan.layers
    ]
