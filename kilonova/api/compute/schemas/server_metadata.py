"""A server's metadata: all of it, or one key."""

from __future__ import annotations

from kilonova.api.compute.schemas.types import METADATA, wrapped
from kilonova.api.forms import Forms

ALL = Forms(wrapped("metadata", METADATA))
ONE = Forms(wrapped("meta", {**METADATA, "minProperties": 1, "maxProperties": 1}))
