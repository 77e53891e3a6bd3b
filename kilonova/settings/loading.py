"""Read the configuration: a TOML file, then `--set section.option=value`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from kilonova.settings.checks import bad_configuration, check_settings
from kilonova.settings.sections import SECTIONS, Settings
from kilonova.settings.values import TextList

FILE_NAME = "kilonova.toml"


def load(data: Path | None, config: Path | None, overrides: Sequence[str]) -> Settings:
    """`config`, else the file in the data directory if there is one, then the overrides. Raise Refused."""
    file = config
    if file is None and data is not None and (data / FILE_NAME).is_file():
        file = data / FILE_NAME
    values: dict[str, dict[str, object]] = {}
    if file is not None:
        for section, options in _read(file).items():
            _take_section(values, section, options, str(file))
    for override in overrides:
        _take_override(values, override)
    return check_settings(msgspec.convert(values, Settings))


def load_for_fleet(data: Path | None, config: Path | None, overrides: Sequence[str]) -> Settings:
    """Load the settings of a separate process of a fleet: everything that the processes share must be set."""
    settings = load(data, config, overrides)
    database = settings.database
    _need(database.control, "[database] control", "the address of the control database")
    _need(database.placement, "[database] placement", "the address of the placement database")
    _need(
        "cell0" in database.cells and len(database.cells) > 1, "[database.cells]", "cell0 and at least one other cell"
    )
    need_bus(settings)
    _need(settings.secrets.key_file, "[secrets] key_file", "a file that every api and conductor of the fleet has")
    return settings


def need_bus(settings: Settings) -> None:
    _need(settings.bus.url, "[bus] url", "the address of NATS")


def _need(given: object, option: str, what: str) -> None:
    if not given:
        raise bad_configuration(f"{option} is not set; this role needs {what}")


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise bad_configuration(f"cannot read the configuration {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise bad_configuration(f"the configuration {path} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise bad_configuration(f"the configuration {path} is not valid TOML: {error}") from error


def _take_section(values: dict[str, dict[str, object]], section: str, options: Any, source: str) -> None:
    if not isinstance(options, dict):
        raise bad_configuration(f"{source}: {section} is outside of any section; sections are {_named(SECTIONS)}")
    for option, value in options.items():
        _check_names(section, option, source)
        values.setdefault(section, {})[option] = _typed(section, option, value, source, strict=True)


def _take_override(values: dict[str, dict[str, object]], override: str) -> None:
    """`section.option=value`; the addresses of databases one by one, as `database.cells.cell1=…`."""
    name, equals, value = override.partition("=")
    section, _, rest = name.partition(".")
    option, _, key = rest.partition(".")
    if not equals or not option:
        raise bad_configuration(f"--set {override}: expected section.option=value")
    _check_names(section, option, "--set")
    chosen = values.setdefault(section, {})
    if not key:
        chosen[option] = _typed(section, option, value, "--set", strict=False)
    elif option in ("cells", "spare"):
        before = chosen.get(option)
        chosen[option] = {**(before if isinstance(before, dict) else {}), key: value}
    else:
        raise bad_configuration(f"--set: [{section}] {option} has no key {key}")


def _check_names(section: str, option: str, source: str) -> None:
    known = SECTIONS.get(section)
    if known is None:
        raise bad_configuration(
            f"{source}: there is no section [{section}]{_meant(section, SECTIONS)}; known are {_named(SECTIONS)}"
        )
    options = known.__struct_fields__
    if option not in options:
        raise bad_configuration(
            f"{source}: [{section}] has no option {option}{_meant(option, options)}; known are {', '.join(options)}"
        )


def _typed(section: str, option: str, value: Any, source: str, *, strict: bool) -> Any:
    form = get_type_hints(SECTIONS[section], include_extras=True)[option]
    if form is TextList and isinstance(value, str) and not strict:
        value = [part.strip() for part in value.split(",") if part.strip()]
    try:
        if not strict and get_origin(get_args(form)[0]) in (list, dict):  # typed in a shell: lists and tables are JSON
            value = msgspec.json.decode(value)
        return msgspec.convert(value, form, strict=strict, str_keys=True)
    except (msgspec.ValidationError, msgspec.DecodeError):
        allowed = get_args(form)[1].description
        raise bad_configuration(
            f"{source}: [{section}] {option} = {value!r} is not allowed; it must be {allowed}"
        ) from None


def _named(names: Any) -> str:
    return ", ".join(f"[{name}]" for name in names)


def _meant(name: str, known: Any) -> str:
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
