"""Tasks and kernels in the form for machines without a compiler."""

from __future__ import annotations

from dataclasses import replace

from tilewright.codegen import backend_of
from tilewright.kernels.compiled import CompiledKernel
from tilewright.kernels.cost import constant_params
from tilewright.kernels.module import signature_of
from tilewright.kernels.workers import Answer
from tilewright.models.native import target_info
from tilewright.runtime import TrialTask
from tilewright.support.errors import UserError
from tilewright.target import Target
from tilewright.tune.tasks import Task


def trial_task(task: Task) -> TrialTask:
    """Everything needed to call kernels of a task, except their code."""
    target = task.target
    return TrialTask(
        signature_of(task.function),
        task.numbers,
        target_info(target),
        backend_of(target).threadpool(target),
        task.threads,
        _forgetful_caches(task),
        constant_params(task.function),
    )


def _forgetful_caches(task: Task) -> int:
    """Bytes of the caches that no longer hold what a kernel read in the last run of the model.

    These are the private caches of CPU cores. A GPU has one shared cache, in two halves that may
    hold the same data: constants of a small model stay in it from run to run.
    """
    target = task.target
    if target.gpu is not None:
        return target.gpu.l2 if 2 * task.model_bytes > target.gpu.l2 else 0
    return target.cores * (target.caches.l2 or target.caches.l1d)


def linked(answer: Answer, target: Target) -> Answer:
    """A worker's answer, with its kernel's code linked to an object file."""
    if not answer.kernel:
        return answer
    try:
        found = CompiledKernel.unpacked(answer.kernel)
        (code,) = backend_of(target).linked([found.code], target)
    except UserError as error:
        return Answer(b"", str(error))
    return answer if code == found.code else Answer(replace(found, code=code).packed())
