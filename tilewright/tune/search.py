"""A search over tasks: resumes from records, then runs a session until the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from random import Random

from tilewright.models.native import target_info, why_not
from tilewright.support.errors import UserError
from tilewright.support.files import text_path
from tilewright.support.interrupts import watching_interrupts
from tilewright.target import Target
from tilewright.tune.allocation import Floor, Search
from tilewright.tune.features import COUNT as FEATURES
from tilewright.tune.in_place import InPlace
from tilewright.tune.measuring.building import KernelBuilder
from tilewright.tune.measuring.local import LocalMeasurer
from tilewright.tune.measuring.measurer import Measurer
from tilewright.tune.progress import watcher_for
from tilewright.tune.recording import sources_version
from tilewright.tune.records.best import best_records
from tilewright.tune.records.file import RecordFile, read_records
from tilewright.tune.records.record import Record
from tilewright.tune.session import Session, learn_from
from tilewright.tune.settings import Settings
from tilewright.tune.spaces.space import Space
from tilewright.tune.summary import Summary, summary_of
from tilewright.tune.tasks import Task
from tilewright.tune.transfer import seeds_for
from tilewright.tune.tuners.table import tuner_of
from tilewright.tune.tuners.tuner import Example
from tilewright.tune.variants import Varied


def search(
    tasks: Sequence[Task],
    space_of: Callable[[Task], Space],
    settings: Settings,
    space_name: str,
    in_place: InPlace | None = None,
    varied: Varied | None = None,
) -> Summary:
    """Search the spaces of tasks for `settings.budget` seconds, less the time spent on variants;
    then winners must win `in_place`.

    An interrupt ends the search like the deadline: everything measured is in the records.
    """
    if not tasks:
        raise UserError("there is nothing to tune", reason="the model calls no kernel")
    require_measurer(tasks[0].target, settings.measurer)
    target, tuner = tasks[0].target, tuner_of(settings.tuner)
    start = time.monotonic() - (varied.seconds if varied else 0.0)
    file = RecordFile(settings.records)
    known = read_records([settings.records, *settings.transfer])
    searches = [Search(task, space_of) for task in tasks]
    examples = resume(searches, known, space_name)
    watcher, deadline = watcher_for(settings.progress), start + settings.budget
    session = Session(
        searches,
        tuner,
        KernelBuilder(target),
        settings.measurer or LocalMeasurer(),
        file,
        watcher,
        floor_of(tasks[0], settings.measurer),
        Random(settings.seed),
        deadline,
        settings.trials,
        space_name,
        examples,
        lambda search: seeds_for(search, known, space_name),
    )
    watcher.begin(searches, deadline)
    interrupted = False
    with watching_interrupts() as was_interrupted:
        try:
            session.run()
            if in_place is not None:
                session.confirm(in_place)
        except KeyboardInterrupt:
            interrupted = True
        except Exception:
            # Waiting for threads and processes may end in another error instead of the interrupt.
            interrupted = was_interrupted()
            if not interrupted:
                raise
        finally:
            watcher.end()
            session.close()
    spent = time.monotonic() - start
    decisions = varied.decisions if varied else ()
    return summary_of(searches, spent, interrupted, text_path(settings.records), decisions)


def require_measurer(target: Target, measurer: Measurer | None) -> None:
    """Refuse a search for a target that cannot be measured."""
    if measurer is None and (reason := why_not(target_info(target))):
        raise UserError(
            f"kernels for {target.kind.name} cannot be measured here",
            reason=reason,
            remedy="measure on= another machine, or write a bundle that is measured there"
            " (tw.tune.bundle, tune --bundle)",
        )


def resume(searches: Sequence[Search], records: Iterable[Record], space_name: str) -> list[Example]:
    """Restore the state of earlier searches; returns examples for cost models.

    Records of other sources are skipped, since samples mean something else if the rules have
    changed.
    """
    records = [r for r in records if r.versions.get("sources") == sources_version()]
    by_key = {s.task.key: s for s in searches}
    examples = list[Example]()
    best = best_records(r for r in records if r.space == space_name)
    for record in records:
        search = by_key.get(record.task)
        if search is None or record.space != space_name or record.target != _target(search):
            if len(record.features) == FEATURES and record.ratio is not None:
                examples.append(Example(record.task, record.features, record.ratio))
            continue
        learn_from(search, record, examples)
        winner = best.get(record.target, {}).get(record.task)
        if winner is not None and winner.ratio is not None:
            search.winner, search.ratio = winner, winner.ratio
    return examples


def _target(search: Search) -> str:
    return search.task.target.machine


def floor_of(task: Task, measurer: Measurer | None) -> Floor:
    """A lower bound of a call's seconds on this processor; zero for other machines."""
    if task.target.kind.device != "cpu" or measurer is not None:
        return lambda flops, bytes_: 0.0
    from tilewright.insight.roof import measure_roof

    roof = measure_roof(task.threads)
    return lambda flops, bytes_: roof.floor(flops, bytes_)
