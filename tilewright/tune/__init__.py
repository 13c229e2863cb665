"""Automatic tuning: searches for schedules by measuring them.

    tasks        the kernels of a model, each once, with their share of its run time
    spaces/      the choices for a kernel: by the default rules, a template, or sketches
    tuners/      which samples of a space to measure next
    measuring/   builds candidates in parallel; has them run, here or on other machines
    variants     decisions of graph passes, measured by alternating runs of whole models
    session      batch after batch: choose, build, measure, record, judge
    in_place     a final measurement of winners inside the model
    allocation   which task gets the next batch
    template     schedules with choices, written by users; and automatic ones
    bundling     candidates that are built here and measured elsewhere, as one file
    records/     every measurement as a line of JSON; compilers apply the winners
    shipping     winners shipped with the package (`shipped/`), for users of the same machine

The package can be called: `tw.tune(model, …)` is `tune.api.tune`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tilewright.tune.api import apply_best, bundle, measure, tune
from tilewright.tune.records.best import best_records
from tilewright.tune.records.file import read_records, write_records
from tilewright.tune.records.record import Record
from tilewright.tune.report import write_report
from tilewright.tune.shipping import add_shipped
from tilewright.tune.spaces.knobs import Knobs
from tilewright.tune.summary import Summary
from tilewright.tune.template import Template, automatic, template

__all__ = [
    "Knobs",
    "Record",
    "Summary",
    "Template",
    "TuneRoom",
    "add_shipped",
    "apply_best",
    "automatic",
    "best_records",
    "bundle",
    "measure",
    "read_records",
    "template",
    "tune",
    "write_records",
    "write_report",
]


class TuneRoom(ModuleType):
    """`tilewright.tune` is this package and, to users, the function `tune`; these are its names."""

    __call__ = staticmethod(tune)
    apply_best = staticmethod(apply_best)
    automatic = staticmethod(automatic)
    best_records = staticmethod(best_records)
    bundle = staticmethod(bundle)
    measure = staticmethod(measure)
    read_records = staticmethod(read_records)
    template = staticmethod(template)
    write_records = staticmethod(write_records)
    write_report = staticmethod(write_report)


sys.modules[__name__].__class__ = TuneRoom
