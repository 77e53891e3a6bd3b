"""Stages of filters, of demands, and of cells that do not answer."""

from __future__ import annotations

from kilonova.placement.snapshot import Bools
from kilonova.scheduler.demand import Demand
from kilonova.scheduler.field import Field
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.matrix import Stage
from kilonova.scheduler.request import ResourceRequest


def cell_stage(field: Field, lit: Bools) -> Stage:
    """Return the stage that marks hosts as unknown if their cell does not answer: filters need its data."""

    def sentence(at: int) -> str:
        cell = field.hosts.views[at].cell
        return f"the database of {cell} answers" if lit[at] else f"the database of {cell} does not answer"

    def remedy(at: int) -> str:
        return f"wait until the database of {field.hosts.views[at].cell} answers"

    return Stage("cell", lit, sentence, remedy, unknown=~lit)


def home_stage(field: Field, home: str) -> Stage:
    """Return the stage that keeps a server in its cell."""
    inside = field.hosts.cells.judged(lambda cell: cell == home)

    def sentence(at: int) -> str:
        cell = field.hosts.views[at].cell
        return f"it is in {cell}" if cell == home else f"it is in another cell, {cell}: the server stays in {home}"

    return Stage("other_cell", inside, sentence, lambda at: None)


def filter_stage(filter_: Filter, field: Field, request: ResourceRequest) -> Stage:
    mask, unknown = filter_.passes(field, request), None
    if mask is not None:
        unknown = filter_.unknown(field, request)
        if field.lit is not None and filter_.needs_cell:
            mask = mask | ~field.lit  # the stage of the cells has reported the unknown hosts
    return Stage(
        filter_.name,
        mask,
        lambda at: filter_.sentence(field, request, at),
        lambda at: filter_.remedy(field, request, at),
        filter_.about_state,
        unknown,
    )


def demand_stage(demand: Demand, field: Field) -> Stage:
    mask = demand.passes(field)
    return Stage(
        demand.name,
        None if mask.all() else mask,
        lambda at: "fulfilled" if mask[at] else demand.why,
        lambda at: demand.remedy.format(host=field.names[at]) or None,
        demand.about_state,
    )
