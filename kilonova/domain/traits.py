"""Kilonova's own traits: known without having been created by a client."""

from __future__ import annotations

BY_KVM = "CUSTOM_KILONOVA_KVM"  # guests run on the CPU itself
BY_TCG = "CUSTOM_KILONOVA_TCG"  # guests are emulated
OWN_TRAITS = frozenset({BY_KVM, BY_TCG})
