"""The type of what `answer` encodes: JSON, with the values that the encoder writes as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    Content: TypeAlias = (
        bool | int | float | str | datetime | msgspec.Struct | Sequence["Content"] | Mapping[str, "Content"] | None
    )
else:  # nothing evaluates it
    Content = Any
