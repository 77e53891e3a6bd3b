"""Wake-ups and questions between processes: `memory` inside one process and in the simulator, `nats` across a fleet."""

from urllib.parse import quote

CELLS_CHANGED = "cells.changed"  # processes with open cells read them again
IMAGE_ADDRESS = "image.upload.address"  # an API answers with its URL: hosts send and fetch the bytes of images there
HOST_ALIVE = "conductor.alive"  # a host whose heartbeat was not answered; every conductor gets it
HOSTS_ANSWER = "conductor.answer"  # a host was heard again or has returned: operations that wait for one are checked


def token(name: str) -> str:
    """Return the name as one token of a subject: dots, blanks and wildcards have a meaning there and are encoded."""
    if not name:
        raise ValueError("a bus subject must not have an empty name")
    return quote(name, safe="").replace(".", "%2E")


def in_cell(prefix: str, subject: str) -> str:
    """Return the subject as used outside of a cell; inside, the prefix is implied."""
    return f"{prefix}.{subject}" if prefix else subject


def host_subject(host: str) -> str:
    """Return the subject of a host."""
    return f"host.{token(host)}"


def question_subject(host: str) -> str:
    """Return the subject on which a host's agent answers questions about its guests."""
    return f"host.{token(host)}.question"


def network_subject(host: str) -> str:
    """Return the subject on which a host is notified that its networks have changed."""
    return f"host.{token(host)}.network"


def machine_subject(host: str) -> str:
    """Return the subject of a simulated machine's outside: power, link, console and disk port."""
    return f"machine.{token(host)}"
