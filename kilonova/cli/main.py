"""The program `kilonova`: its commands, each loaded when it is used, and its exit codes.

Only the names and summaries of the commands are here: `kilonova op list` must not wait for an engine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from cyclopts import App, CycloptsError, Group, Parameter, UnknownCommandError

from kilonova.cli.exits import DONE, FAILED, REFUSED, USAGE
from kilonova.domain.errors import Failed, KilonovaError, Refused
from kilonova.domain.visible import visible

INTERRUPTED = 130  # as shells have it for Ctrl-C
MISUSED = ("bad_configuration", "usage")  # noticed here, before any request was sent

CLOUD = Group("A running cloud", sort_key=1)
ROLES = Group("Processes of a cloud", sort_key=2)
HERE = Group("Databases, keys and the simulator", sort_key=3)

COMMANDS: dict[Group, dict[str, tuple[str, str]]] = {
    CLOUD: {
        "server": ("server:app", "Servers: list, show, evacuate, migrate, resize, confirm, revert, rebuild, retry."),
        "host": ("host:app", "Hosts: list, show, evacuate, drain, return, fence, gone, disable, enable."),
        "op": ("operations:app", "Operations: list, show, watch, cancel, resume, abandon."),
        "plan": ("plan:app", "Dry runs: what a request would do, with nothing stored."),
        "doctor": (
            "doctor:doctor",
            "Show what is wrong with the cloud, and what to type. Exit code 6: something is wrong.",
        ),
        "explain": (
            "explain:explain",
            "Show which hosts were considered, and why each was chosen or rejected: host, filter, number.",
        ),
        "ledger": ("ledger:ledger", "Show every change of what a server and its migrations hold in placement."),
        "unplaced": ("unplaced:app", "Servers that found no host, or that no host built: list, retry."),
        "quarantine": ("quarantine:app", "Guests that the records do not explain: list, adopt, remove."),
        "finding": ("findings:app", "What abandoned steps left: list, settle."),
        "audit": (
            "audit:audit",
            "Compare placement's allocations with the servers' records, and repair what is safe. Exit code 6: there "
            "was a difference, repaired or not.",
        ),
        "ha": ("failure_watch:app", "Failure watch: status, disarm, arm."),
        "cell": ("cell:app", "Cells: list, show, create, disable, enable, delete, move-host."),
        "image": ("image:app", "Images: quota."),
        "identity": ("identity:app", "Identity: the keys that tokens are signed with."),
    },
    ROLES: {
        "serve": (
            "kilonova.roles.serve:serve",
            "Run a whole cloud in one process: SQLite files in DATA, simulated hosts or this machine, no other service "
            "needed.",
        ),
        "api": ("kilonova.roles.api:api", "Run the HTTP API of a fleet, on PostgreSQL and NATS as configured."),
        "conductor": (
            "kilonova.roles.conductor:conductor",
            "Run a conductor of a fleet. Any number may run; each takes over from one that dies.",
        ),
        "agent": (
            "kilonova.roles.agent:agent",
            "Run the agent of one host of a fleet. It speaks to the bus, has images from an API, and never opens a "
            "database.",
        ),
        "placement": (
            "kilonova.roles.placement:placement",
            "Run placement alone, at the root of its own port: on a SQLite file in DATA, or on the fleet's database.",
        ),
    },
    HERE: {
        "db": ("database:app", "The databases: status, upgrade, check, restored, lost, purge."),
        "keygen": (
            "keygen:keygen",
            "Make the secrets of a fleet in DIRECTORY: seal.key, admin.password and, with --tls-name, tls.key and "
            "tls.crt.\n\nNothing that exists is replaced: a new seal.key would make every secret that the old one "
            "sealed unreadable.",
        ),
        "sim": ("simulation:app", "The simulator: stories, random histories, and switches of simulated hosts."),
        "completion": ("completion:completion", "Print the completion of commands and options for a shell."),
    },
}


def _default_shown(value: Any) -> str | None:
    """Show a default, except of a flag or of an option that may be left out."""
    return None if value is None or value is False or value == "" else str(value)


app = App(
    name="kilonova",
    default_parameter=Parameter(show_default=_default_shown),
    help="A compute control plane that speaks OpenStack's Compute and Placement APIs.",
    help_format="plaintext",  # markdown would cost a fifth of the time that --help takes
)
for _group, _commands in COMMANDS.items():
    for _name, (_path, _help) in _commands.items():
        _target = _path if _path.startswith("kilonova.") else f"kilonova.cli.{_path}"
        app.command(_target, name=_name, help=_help, group=_group)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point. An expected error is one sentence on stderr and an exit code."""
    from kilonova.store.modes import PRIVATE

    os.umask(PRIVATE)
    sys.exit(run_command(arguments))


def run_command(arguments: Sequence[str] | None) -> int:
    """Run one command and return its exit code."""
    command_line = sys.argv[1:] if arguments is None else [*arguments]
    try:
        code = app(command_line, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else DONE
    except BrokenPipeError:  # `| head` has read enough; nothing more can be written there, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return _print_error("interrupted", INTERRUPTED)
    except CycloptsError as error:
        return _print_error(f"{_sentence(error)}{_hint(error, command_line)}", USAGE)
    except Refused as why:
        return _print_error(why.message, USAGE if why.code in MISUSED else REFUSED)
    except Failed as why:
        return _print_error(why.message, FAILED)
    except KilonovaError as error:  # a database or a broker that cannot be used: nothing was begun
        return _print_error(str(error), REFUSED)


def _sentence(error: CycloptsError) -> str:
    text = " ".join(str(error).split())
    return text if text.endswith((".", "?")) else f"{text}."


def _hint(error: CycloptsError, arguments: Sequence[str]) -> str:
    """Return what to type instead, if it is known."""
    chain = [*(error.command_chain or ())]
    if isinstance(error, UnknownCommandError) and (error.unused_tokens or [""])[0].startswith("-"):
        begins = next((at for at, argument in enumerate(arguments) if argument in app), 0)
        instead = [*arguments[begins:], *arguments[:begins]]
        try:
            app.parse_args(instead, exit_on_error=False, print_error=False)
        except CycloptsError as why:  # the command does not have it either
            chain = [*(why.command_chain or ())]
        else:
            return f" Options go after the command: kilonova {' '.join(instead)}"
    return f" See: kilonova {' '.join([*chain, '--help'])}"


def _print_error(sentence: str, code: int) -> int:
    print(f"kilonova: {visible(sentence)}", file=sys.stderr)
    return code
