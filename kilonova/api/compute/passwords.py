"""Passwords of new, rebuilt and evacuated servers."""

from __future__ import annotations

from kilonova.api.call import Call
from kilonova.api.compute.repeating import random_text

LENGTH = 12


def shown_password(call: Call, password: str) -> dict[str, str]:
    """Return the password for the response, or nothing: it would mislead if guests do not take the password."""
    return {"adminPass": password} if call.settings.api.enable_instance_password else {}


def new_password(call: Call) -> str:
    """Return a password in Nova's alphabet: no two characters look alike."""
    return random_text(call, "password", "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz", LENGTH)
