"""Options from a file and from the command line; tests/cli/test_bad_input.py has what the user sees of it."""

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from kilonova.domain.errors import Refused
from kilonova.quota.resources import default_limits
from kilonova.settings import Settings, load
from tests.support.distinct import distinct_settings


def test_quotas_are_novas_unless_set_otherwise() -> None:
    settings = load(None, None, ["quota.instances=-1", "quota.injected_file_path_length=100"])
    assert default_limits(settings.quota) == {
        "instances": -1,
        "cores": 20,
        "ram": 51200,
        "metadata_items": 128,
        "injected_files": 5,
        "injected_file_content_bytes": 10240,
        "injected_file_path_bytes": 100,
        "key_pairs": 100,
        "server_groups": 10,
        "server_group_members": 10,
    }
    with pytest.raises(Refused, match="-1 for no limit"):
        load(None, None, ["quota.cores=-2"])


def test_the_file_of_the_directory_is_found_and_overrides_win(tmp_path: Path) -> None:
    (tmp_path / "kilonova.toml").write_text(
        "[DEFAULT]\nreport_interval = 5\nservice_down_time = 30\n[simulated]\nhosts = 7\n"
        "[database.cells]\ncell0 = 'sqlite:///a'\n"
    )
    overrides = ["simulated.hosts=2", "DEFAULT.allow_resize_to_same_host=true", "database.cells.cell1=sqlite:///b=c"]
    settings = load(tmp_path, None, overrides)
    assert settings.simulated.hosts == 2
    assert settings.database.cells == {"cell0": "sqlite:///a", "cell1": "sqlite:///b=c"}
    default = settings.default
    assert (default.report_interval, default.service_down_time, default.allow_resize_to_same_host) == (5.0, 30.0, True)


def test_a_named_file_replaces_that_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "kilonova.toml").write_text("[simulated]\nhosts = 7\nvcpus = 2\n")
    (tmp_path / "other.toml").write_text("[simulated]\nhosts = 8\n")
    settings = load(tmp_path, tmp_path / "other.toml", [])
    assert (settings.simulated.hosts, settings.simulated.vcpus) == (8, 64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[DEFAULT]\nreport_interval = true", "must be seconds, more than 0"),
        ("[DEFAULT]\nreport_interval = nan", "must be seconds, more than 0"),
        ("[DEFAULT]\nreport_interval = '5'", "must be seconds, more than 0"),
        ("[simulated]\nvcpus = 1.5", "must be a whole number, 1 or more"),
        ("[bus]\nurl = 4222", "must be an address in quotes"),
        ("[database]\ncells = 'x'", "must be addresses by name"),
        ("[database.cells]\ncell1 = 1", "must be addresses by name"),
        ("[simulated.more]\nx = 1", "[simulated] has no option more"),
        ("[[simulated]]\nhosts = 1", "is outside of any section"),
    ],
)
def test_what_is_no_option_or_of_the_wrong_kind(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "kilonova.toml").write_text(text)
    with pytest.raises(Refused) as refused:
        load(tmp_path, None, [])
    assert words in refused.value.message and str(tmp_path / "kilonova.toml") in refused.value.message


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "kilonova.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Refused, match="is not UTF-8 text"):
        load(tmp_path, None, [])


@pytest.mark.parametrize("option", ["vnc.novncproxy_base_url", "console.host_url", "serial_console.base_url"])
@pytest.mark.parametrize("place", ["host:99999/", "host:port/", ":80/", "[::1/"])
def test_an_address_that_cannot_be_one_is_refused_at_the_start(option: str, place: str) -> None:
    scheme = "ws" if option.startswith("serial") else "http"
    with pytest.raises(Refused, match=r"base_url|host_url"):
        load(None, None, [f"{option}={scheme}://{place}"])


def durations(settings: Settings) -> dict[str, float]:
    options = {
        f"{section.name}.{option.name}": getattr(getattr(settings, section.name), option.name)
        for section in msgspec.structs.fields(Settings)
        for option in msgspec.structs.fields(type(getattr(settings, section.name)))
    }
    return {name: value for name, value in options.items() if isinstance(value, float) and value > 1.0}


def test_small_clouds_tell_all_durations_apart() -> None:
    assert [value for value, times in Counter(durations(distinct_settings()).values()).items() if times > 1] == []


def test_durations_of_small_clouds_are_nearly_the_defaults() -> None:
    usual, distinct = durations(Settings()), durations(distinct_settings())
    assert usual.keys() == distinct.keys()
    assert all(usual[name] <= distinct[name] <= usual[name] * 1.2 for name in usual)
