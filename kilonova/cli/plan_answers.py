"""The responses of POST /plans, with the fields that `kilonova plan` shows."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from kilonova.domain.json import JsonObject

Shares = dict[str, dict[str, int]]  # by provider, amounts by class


class ProblemText(TypedDict):
    code: str
    message: str
    details: NotRequired[JsonObject | None]


class ServerText(TypedDict):
    name: str
    resources: dict[str, int]
    host: NotRequired[str | None]


class PortText(TypedDict, total=False):
    port_id: str
    network_id: str
    fixed_ip: str


class VolumeText(TypedDict):
    device: str
    volume_id: NotRequired[str]
    image_id: NotRequired[str]
    snapshot_id: NotRequired[str]
    size: NotRequired[int]


class QuotaText(TypedDict):
    limit: int
    left: int


class CreatePlan(TypedDict):
    problem: ProblemText | None
    decision: JsonObject | None
    servers: list[ServerText]
    ports: list[PortText]
    volumes: list[VolumeText]
    quota: dict[str, QuotaText]


class DiskText(TypedDict):
    disk: str
    fate: str
    volume: NotRequired[str]
    from_image: NotRequired[str]
    gb: NotRequired[tuple[int, int]]  # before and after
    mb: NotRequired[tuple[int, int]]
    most_bytes: NotRequired[int]
    snapshot: NotRequired[str]


class CopiesText(TypedDict):
    host: str
    copies: list[int]
    claims: Shares


class OutlookText(TypedDict):
    host: str | None
    ends: str
    disks: list[DiskText]
    claims: Shares
    left: list[CopiesText]
    removed: list[CopiesText]
    quota: NotRequired[dict[str, QuotaText]]


class ServerPlan(TypedDict):
    outlook: OutlookText
    problem: ProblemText | None
    facts: JsonObject
    joins: NotRequired[str | None]
    decision: NotRequired[JsonObject | None]


class ProofText(TypedDict):
    sentence: str
    proven_by: NotRequired[str]


class MoveText(TypedDict):
    server: str
    why: str
    name: NotRequired[str]
    source: NotRequired[str]
    to: NotRequired[str]
    disks: NotRequired[list[DiskText]]


class MisfitText(TypedDict):
    why: str
    changes: list[str]
    name: NotRequired[str]


class HostsPlan(TypedDict):
    hosts: dict[str, ProofText]
    moves: list[MoveText]
    misfits: dict[str, MisfitText]
    refused: dict[str, str]
    spared: dict[str, str]
    seconds: float
    bytes: int


class CopyFate(TypedDict):
    server: str
    copy: int
    fate: str


class GonePlan(TypedDict):
    proof: str
    disks: list[CopyFate]
    reverts: list[str]
    confirm_only: list[str]
    settled: dict[str, int]
    left: dict[str, int]
