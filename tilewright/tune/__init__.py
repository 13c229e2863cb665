"""Automatic tuning: schedules are searched for by measuring them.

    tasks        the kernels of a model, each once, with what they cost a run
    spaces/      what can be chosen for a kernel: by the default rules, a template, or sketches
    tuners/      which samples of a space to measure next
    measuring/   builds candidates side by side; has them run, here or on other machines
    variants     what passes over the graph decide, by whole models that run in turns
    session      batch after batch: choose, build, measure, record, judge
    in_place     winners measured inside the model in the end
    allocation   which task gets the next batch
    template     schedules with choices that people write, and one that nobody has to
    bundling     candidates that are built here and measured elsewhere, as one file
    records/     every measurement as a line of JSON; the winners are what compilers apply
    shipping     winners that come with the package (`shipped/`), for whoever has the same machine

The room can be called: `tw.tune(model, …)` is `tune.api.tune`.
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
    """`tilewright.tune` is this room and, to users, the function in it; these are its names."""

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
