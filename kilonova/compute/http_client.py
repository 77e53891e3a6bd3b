"""HTTP from a host: to an API of the cloud and to agents of other hosts. Blocking; callers run it in threads."""

from __future__ import annotations

import http.client
import json
import ssl

SECONDS = 60.0  # for one piece, and for the answer after the last one
LONGEST_ANSWER = 65536
PASSING = (408, 429, 500, 502, 503, 504)  # another try may do better


def connect(scheme: str, address: str, ca_file: str = "") -> http.client.HTTPConnection:
    """`ca_file`: authorities to trust besides the machine's own. It is not connected yet."""
    if scheme != "https":
        return http.client.HTTPConnection(address, timeout=SECONDS)
    trust = ssl.create_default_context(cafile=ca_file or None)
    return http.client.HTTPSConnection(address, timeout=SECONDS, context=trust)


def answer_of(connection: http.client.HTTPConnection, most: int = LONGEST_ANSWER) -> tuple[int, bytes]:
    response = connection.getresponse()
    return response.status, response.read(most)


def error_in(status: int, answer: bytes) -> tuple[str, str]:
    """Return the code and sentence of an error of Kilonova's own REST."""
    try:
        error = json.loads(answer)["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, TypeError, KeyError):
        return str(status), f"the answer was {status}"
