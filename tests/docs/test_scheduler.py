"""docs/scheduler.md: every pre-filter, filter and weigher, with its options and defaults as the code has them. The
scheduler's README.md: the file of each filter and pre-filter."""

from __future__ import annotations

import json
import re

from kilonova.scheduler.filters import ALWAYS, KNOWN
from kilonova.scheduler.filters.base import Filter
from kilonova.scheduler.filters.hosts import Accepting
from kilonova.scheduler.prefilters import PREFILTERS
from kilonova.scheduler.weighers import WEIGHERS
from kilonova.settings import FilterOptions, MetricsOptions, SchedulerOptions, Settings
from tests.docs.markdown import ROOT, code, table

PAGE = (ROOT / "docs" / "scheduler.md").read_text()
README = (ROOT / "kilonova" / "scheduler" / "README.md").read_text()
SECTIONS = (SchedulerOptions, FilterOptions, MetricsOptions)
OPTIONS = {name for section in SECTIONS for name in section.__struct_fields__}
NOT_HERE = {"max_attempts", "shuffle_best_same_weighed_hosts", "required", "weight_of_unavailable"}


def test_every_prefilter_is_told() -> None:
    rows = table(PAGE, "pre-filter", "turned on by", "asks of a host")
    told = [(code(row["pre-filter"]), row["turned on by"].strip("`")) for row in rows]
    assert told == [(prefilter.name, prefilter.option or "always") for prefilter in PREFILTERS]


def test_every_filter_is_told_in_the_order_of_the_code() -> None:
    rows = table(PAGE, "filter", "options and keys", "a host passes when")
    assert [code(row["filter"]) for row in rows] == [filter_.name for filter_ in KNOWN]
    assert tuple(code(row["filter"]) for row in rows[:7]) == FilterOptions().enabled_filters


def test_every_weigher_is_told_with_its_multiplier() -> None:
    rows = table(PAGE, "weigher", "multiplier", "default", "value")
    told = [(code(row["weigher"]), json.loads(code(row["default"]))) for row in rows]
    assert told == [(weigher.name, weigher.multiplier(Settings())) for weigher in WEIGHERS]
    assert [code(row["multiplier"]) for row in rows] == [weigher.option for weigher in WEIGHERS]


def test_every_option_is_told_and_none_that_there_is_not() -> None:
    named = set(re.findall(r"`(?:\[\w+\] )?(\w+)`", PAGE))
    assert sorted(OPTIONS - named - NOT_HERE) == []
    options = {word for row in table(PAGE, "filter", "options and keys", "a host passes when") for word in _words(row)}
    assert sorted(word for word in options if word.startswith(("max_", "isolated_", "restrict_"))) == sorted(
        name for name in FilterOptions.__struct_fields__ if name.startswith(("max_", "isolated_", "restrict_"))
    )


def test_the_base_class_of_own_filters_is_where_the_page_says() -> None:
    assert f"`{Filter.__module__}.{Filter.__qualname__}`" in PAGE


def test_the_readme_names_the_file_of_each_class() -> None:
    rows = table(README, "file", "classes")
    named = {(row["file"].partition("](")[2].strip(")"), name) for row in rows for name in _names(row["classes"])}
    classes = {*ALWAYS, *KNOWN, Accepting, *(type(prefilter) for prefilter in PREFILTERS)}
    assert named == {(_file(one), one.__name__) for one in classes}


def _names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def _file(class_: type) -> str:
    return class_.__module__.removeprefix("kilonova.scheduler.").replace(".", "/") + ".py"


def _words(row: dict[str, str]) -> list[str]:
    return [word for word in re.findall(r"`(\w+)`", row["options and keys"]) if word != "max_server_per_host"]
