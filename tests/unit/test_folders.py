"""The folders of tests/unit mirror the package, so that one finds the tests of a room where the room is."""

from tests.support.servers import ROOT

UNIT = ROOT / "tests/unit"
# Rooms with a group of tests of their own, or without a rule of their own.
ELSEWHERE = {
    "engine": "tests/engine",
    "placement": "tests/placement",
    "store": "tests/store",
    "schema": "tests/store/test_schema.py",
    "settings": "tests/unit/test_settings.py",
}
OF_THE_TESTS = {"soak"}  # tests of tests/soak


def folders(path):
    return {folder.name for folder in path.iterdir() if any(folder.rglob("*.py"))}


def test_each_room_has_its_tests():
    rooms = {path.parent.name for path in (ROOT / "kilonova").glob("*/__init__.py")}
    assert folders(UNIT) - OF_THE_TESTS == rooms - ELSEWHERE.keys()
    assert [path for path in ELSEWHERE.values() if not (ROOT / path).exists()] == []


def test_each_module_of_its_own_is_tested_under_its_name():
    """A file beside the rooms, such as test_logs.py, tests a module beside the rooms, the scripts or these folders."""
    modules = {path.stem for path in (ROOT / "kilonova").glob("*.py")} | {"settings"}
    beside = {path.stem.removeprefix("test_") for path in UNIT.glob("test_*.py")}
    assert beside - modules == {"folders", "groups", "need", "sparse"}


def test_folders_below_a_room_are_folders_of_the_room():
    """For example, tests/unit/services/volume tests kilonova/services/volume."""
    strange = {
        str(folder.relative_to(UNIT))
        for folder in UNIT.glob("*/**/")
        if any(folder.glob("test_*.py"))
        and folder.relative_to(UNIT).parts[0] not in OF_THE_TESTS
        and not (ROOT / "kilonova" / folder.relative_to(UNIT)).is_dir()
    }
    assert strange == set()
