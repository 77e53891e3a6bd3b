"""A story as a YAML file: prose, cluster, script, the log it must produce and what must be true then."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

PARTS = ("story", "cluster", "matrix", "shows", "script", "log", "then")
OUTCOMES = "outcomes"


class StoryError(Exception):
    """An error in a story's file, with its position."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")


class Lined(dict[str, Any]):
    """A mapping that knows its line."""

    line = 0


class _Loader(yaml.SafeLoader):
    """A YAML loader that keeps line numbers and reads `on` and `off` as words: stories switch things."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Lined:
    mapping = Lined({str(key): value for key, value in loader.construct_mapping(node, deep=True).items()})
    mapping.line = node.start_mark.line + 1
    return mapping


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


@dataclass
class Story:
    path: Path
    prose: str
    script: list[Lined]
    then: Mapping[str, object]
    log: list[str]
    cluster: Lined = field(default_factory=Lined)
    matrix: dict[str, list[Any]] = field(default_factory=dict)
    shows: str = ""  # "outcomes": only the results of operations are in the log; always so with a matrix

    @property
    def name(self) -> str:
        return self.path.stem

    def where(self, entry: Any = None) -> str:
        line = getattr(entry, "line", 0)
        return f"{self.path}:{line}" if line else str(self.path)

    def variants(self) -> Iterator[dict[str, object]]:
        """Yield each combination of the matrix's values; a single empty one without a matrix."""
        for values in itertools.product(*self.matrix.values()):
            yield dict(zip(self.matrix, values, strict=True))


def load(path: Path) -> Story:
    try:
        document = yaml.load(path.read_text(), _Loader)
    except (OSError, yaml.YAMLError) as error:
        raise StoryError(str(path), f"cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise StoryError(str(path), f"is not a story; it needs {', '.join(PARTS)}")
    unknown = [part for part in document if part not in PARTS]
    if unknown:
        raise StoryError(str(path), f"unknown part {unknown[0]!r}; there are {', '.join(PARTS)}")
    for part in ("story", "script"):
        if not document.get(part):
            raise StoryError(str(path), f"has no `{part}:`")
    if not document.get("then"):
        raise StoryError(str(path), "has no `then:`; a log alone is not a test")
    return Story(
        path=path,
        prose=document["story"].strip(),
        script=document["script"],
        then=document["then"],
        log=(document.get("log") or "").splitlines(),
        cluster=document.get("cluster") or Lined(),
        matrix=document.get("matrix") or {},
        shows=document.get("shows", OUTCOMES if document.get("matrix") else ""),
    )


def fill_in(part: Any, values: Mapping[str, object]) -> Any:
    """Replace `$name` by the variant's value, in keys as well."""
    if isinstance(part, dict):
        filled = Lined({fill_in(key, values): fill_in(value, values) for key, value in part.items()})
        filled.line = getattr(part, "line", 0)
        return filled
    if isinstance(part, list):
        return [fill_in(one, values) for one in part]
    if isinstance(part, str) and "$" in part:
        return re.sub(r"\$(\w+)", lambda match: str(values.get(match[1], match[0])), part)
    return part


def rewrite_log(path: Path, lines: list[str]) -> None:
    """Replace the `log:` section; a story without one gets it before its `then:`."""
    text = path.read_text()
    section = "log: |2\n" + "".join(f"  {line}\n" if line else "\n" for line in lines)
    old = re.search(r"^log:.*\n(?:[ \t]+.*\n|\n(?=[ \t]))*", text, re.MULTILINE)
    if old is not None:
        text = text[: old.start()] + section + text[old.end() :]
    else:
        text = re.sub(r"^then:", lambda _: section + "then:", text, count=1, flags=re.MULTILINE)
    path.write_text(text)
