"""A model that runs elsewhere; it is inspected through its local copy."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.runtime import Build, RunnableModel, Spec
from tilewright.support.denormals import Denormals


class DistantModel(RunnableModel):
    """A model on another machine, with the local model it was made from."""

    _local: RunnableModel

    @property
    def inputs(self) -> tuple[Spec, ...]:
        return self._local.inputs

    @property
    def outputs(self) -> tuple[Spec, ...]:
        return self._local.outputs

    @property
    def precision(self) -> str:
        return self._local.precision

    @property
    def denormals(self) -> Denormals:
        return self._local.denormals

    @property
    def texts(self) -> Mapping[str, str]:
        return self._local.texts

    @property
    def kernels(self) -> tuple[str, ...]:
        return self._local.kernels

    def as_build(self) -> Build:
        return self._local.as_build()
