"""Refusals as status codes: the domain knows no HTTP, here is the table."""

from __future__ import annotations

DEFAULT = 409
STATUS = {
    "bad_request": 400,
    "bad_text": 400,
    "bad_times": 400,
    "host_still_up": 400,
    "no_host": 400,
    "not_resized": 400,
    "same_host": 400,
    "unknown_failure": 400,
    "unknown_verb": 400,
    "invalid_volume": 400,
    "volume_attached": 400,
    "unauthorized": 401,
    "quota_exceeded": 403,
    "too_many_volumes": 403,
    "no_guest": 404,
    "no_such_host": 404,
    "not_found": 404,
    "unknown_host": 404,
    "volume_not_found": 404,
    "busy": 409,
    "device_in_use": 409,
    "ended": 409,
    "exists": 409,
    "host_down": 409,
    "host_unknown": 409,
    "idempotency_key_reused": 409,
    "invalid_state": 409,
    "no_return": 409,
    "not_running": 409,
    "unpaid_debts": 409,
    "no_answer": 503,
}
