"""Mutations are one line each and fit the code as it is; what does not fit is an error, never a pass."""

from pathlib import Path

import pytest

from tests.soak.patches import Stale, load, load_all
from tests.soak.suites import ALL, NAMED_ONLY, SIMULATED, Trial, ordered

ROOT = Path(__file__).resolve().parents[3]
PATCHES = sorted((ROOT / "tests/mutations").glob("*.patch"))

PATCH = """\
Law 0: b is two.
Likely killer: engine

--- a/pkg/m.py
+++ b/pkg/m.py
@@ -1,3 +1,3 @@
 a = 1
-b = 2
+b = 3
 c = 4
"""


@pytest.mark.parametrize("path", PATCHES, ids=[path.stem for path in PATCHES])
def test_mutation_fits(path: Path, tmp_path: Path) -> None:
    patch = load(path)
    target = tmp_path / patch.file
    target.parent.mkdir(parents=True)
    target.write_text((ROOT / patch.file).read_text())
    patch.apply(tmp_path)
    before, after = ((root / patch.file).read_text().splitlines() for root in (ROOT, tmp_path))
    differing = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert differing == [(patch.old, patch.new)]
    compile(target.read_text(), patch.file, "exec")
    first = ordered(patch.likely)[0]
    assert patch.why and first.suite in (*ALL, *NAMED_ONLY)
    assert first.suite in SIMULATED or all((ROOT / part.partition("::")[0]).exists() for part in first.part)


def test_there_are_enough() -> None:
    assert len(load_all(ROOT / "tests/mutations")) >= 18


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "x.patch").write_text(PATCH)
    return tmp_path


@pytest.mark.parametrize(
    "code",
    [
        "a = 1\nb = 2\nc = 4\n",
        "x = 0\n\na = 1\nb = 2\nc = 4\n",
        "a = 9\nb = 2\nc = 9\n",
        "b = 2\na = 1\nb = 2\nc = 4\n",
    ],
    ids=["as it was", "moved", "other context", "twice, once with its context"],
)
def test_a_patch_finds_its_line(tree: Path, code: str) -> None:
    (tree / "pkg/m.py").write_text(code)
    load(tree / "x.patch").apply(tree)
    assert (tree / "pkg/m.py").read_text() == code[::-1].replace("2 = b", "3 = b", 1)[::-1]


@pytest.mark.parametrize("code", ["a = 1\nc = 4\n", "b = 2\nb = 2\n", None], ids=["gone", "twice", "no file"])
def test_a_patch_whose_line_is_not_there_once_is_stale(tree: Path, code: str | None) -> None:
    if code is not None:
        (tree / "pkg/m.py").write_text(code)
    with pytest.raises(Stale, match=r"x: .*pkg/m\.py"):
        load(tree / "x.patch").apply(tree)


@pytest.mark.parametrize(
    ("old", "new"),
    [("-b = 2\n", "-b = 2\n-b = 2\n"), ("+b = 3\n", "+b = 3\n+b = 4\n"), ("-b = 2\n+b = 3\n", ""), ("Likely", "Maybe")],
)
def test_a_patch_that_changes_more_or_less_than_a_line_is_refused(tree: Path, old: str, new: str) -> None:
    (tree / "x.patch").write_text(PATCH.replace(old, new))
    with pytest.raises(Stale, match="one line of one file"):
        load(tree / "x.patch")


@pytest.mark.parametrize(
    ("likely", "first"),
    [
        ("stories", Trial("stories")),
        ("engine/test_agent.py::test_x[a b]", Trial("engine", ("tests/engine/test_agent.py::test_x[a b]",))),
        ("histories soak-3", Trial("histories", ("--seed=soak-3",))),
        ("crashes create:5:one", Trial("crashes", ("--at=create:5:one",))),
    ],
)
def test_the_likely_killer_comes_first_and_no_suite_is_left_out(likely: str, first: Trial) -> None:
    trials = ordered(likely)
    assert trials[0] == first
    assert sorted(trial.suite for trial in trials if not trial.part) == sorted(ALL)
