"""The text of a dry run, line by line, as `kilonova plan` prints it."""

from __future__ import annotations

from typing import cast

from kilonova.cli.layout import GAP, folded, widths_of
from kilonova.cli.output import to_yaml, with_times
from kilonova.cli.plan_answers import (
    CopiesText,
    CreatePlan,
    DiskText,
    GonePlan,
    HostsPlan,
    MisfitText,
    MoveText,
    OutlookText,
    PortText,
    ProblemText,
    ProofText,
    QuotaText,
    ServerPlan,
    ServerText,
    VolumeText,
)
from kilonova.cli.times import duration
from kilonova.domain.json import JsonObject, as_object
from kilonova.domain.visible import visible
from kilonova.scheduler.report import decision_lines

MOVE_HEADERS = ("server", "name", "from", "to", "disks")


def lines(plan: JsonObject) -> list[str]:
    """The text of any dry run, by what its answer has."""
    if "moves" in plan:
        return _whole_host(cast(HostsPlan, plan))
    if "settled" in plan:
        return _gone(cast(GonePlan, plan))
    outlook = plan.get("outlook")
    if outlook is None:
        return _created(cast(CreatePlan, plan)) if "quota" in plan else _other(plan)
    return (_snapshot if "image" in as_object(outlook) else _outcome)(cast(ServerPlan, plan))


def _created(plan: CreatePlan) -> list[str]:
    """Return a line per server, its other needs, the rest of the quota, and the reason."""
    problem, decision = plan["problem"], plan["decision"]
    texts = [_failure(problem)] if problem else [_server(one) for one in plan["servers"]]
    texts += [_port(port) for port in plan["ports"]]
    texts += [_volume(volume) for volume in plan["volumes"]]
    texts += [_left(name, amounts) for name, amounts in plan["quota"].items() if amounts["limit"] >= 0]
    if decision is None:
        return texts
    return [
        *texts,
        *(["of the last one:"] if len(plan["servers"]) > 1 and not problem else []),
        *decision_lines(decision),
    ]


def _failure(problem: ProblemText) -> str:
    waits = problem["code"] in ("not_known", "not_yet")
    return str(problem["message"]) if waits else f"it would fail: {problem['message']}"


def _server(one: ServerText) -> str:
    takes = _amounts(one["resources"])
    where = f" on {one['host']}" if one.get("host") else ""
    return f"{one['name']}{where}: takes {takes}"


def _port(port: PortText) -> str:
    address = f", address {port['fixed_ip']}" if port.get("fixed_ip") else ""
    return f"port {port['port_id']}" if port.get("port_id") else f"a port on network {port['network_id']}{address}"


def _volume(volume: VolumeText) -> str:
    if volume.get("volume_id"):
        return f"volume {volume['volume_id']} as {volume['device']}"
    sources = {"image": volume.get("image_id"), "snapshot": volume.get("snapshot_id")}
    source = next((f" of {kind} {source_id}" for kind, source_id in sources.items() if source_id is not None), "")
    size = f" of {volume['size']} GB" if volume.get("size") else ""
    return f"a new volume{size}{source} as {volume['device']}"


def _left(name: str, amounts: QuotaText) -> str:
    return f"quota of {name}: {amounts['left']} of {amounts['limit']} left then"


def _amounts(share: dict[str, int]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in share.items())


def _outcome(plan: ServerPlan) -> list[str]:
    """Return the server's new host, each disk, each claim, and the reason."""
    if plan.get("joins"):
        return [f"it is under way already: operation {plan['joins']}"]
    outlook, problem = plan["outlook"], plan["problem"]
    texts = [_failure(problem)] if problem else [_end(outlook), *(_disk(disk) for disk in outlook["disks"])]
    if not problem:
        texts += [f"claims {_amounts(share)} on {host}" for host, share in outlook["claims"].items()]
        texts += [f"left on {_copies(one)}" for one in outlook["left"]]
        texts += [f"removed from {_copies(one)}" for one in outlook["removed"]]
    decision = _decision(plan)
    return [*texts, *(decision_lines(decision) if decision else ())]


def _end(outlook: OutlookText) -> str:
    return (
        f"it would be on {outlook['host']}, {outlook['ends']}" if outlook["host"] else f"it would be {outlook['ends']}"
    )


def _decision(plan: ServerPlan) -> JsonObject | None:
    if "decision" in plan:
        return plan["decision"]
    problem = plan["problem"]
    facts = plan["facts"] if problem is None else problem.get("details") or {}
    return as_object(facts.get("decision")) or None


def _disk(disk: DiskText) -> str:
    volume = f" (volume {disk['volume']})" if "volume" in disk else ""
    image = f" from image {disk['from_image']}" if "from_image" in disk else ""
    units = {"GB": disk.get("gb"), "MB": disk.get("mb")}
    sizes = [f", {size[0]} -> {size[1]} {unit}" for unit, size in units.items() if size is not None]
    return f"disk {disk['disk']}{volume}: {disk['fate']}{image}{''.join(sizes)}"


def _copies(left: CopiesText) -> str:
    copies = [f"copy {copy}" for copy in left["copies"]]
    claims = [f"{_amounts(share)} of {provider}" for provider, share in left["claims"].items()]
    return f"{left['host']}: {'; '.join([*copies, *claims])}"


def _snapshot(plan: ServerPlan) -> list[str]:
    outlook, quota = plan["outlook"], plan["outlook"]["quota"]["image_bytes"]
    texts = [_failure(plan["problem"])] if plan["problem"] else []
    for disk in outlook["disks"]:
        if "most_bytes" in disk:
            texts.append(f"{disk['disk']} on {outlook['host']}: uploaded, {disk['most_bytes']} bytes at most; it stays")
        elif "snapshot" in disk:
            texts.append(f"{disk['disk']}, volume {disk['volume']}: snapshotted; it stays")
        else:
            texts.append(f"{disk['disk']}, volume {disk['volume']}: not in the image; it stays")
    if quota["limit"] >= 0:
        texts.append(f"quota of image bytes: {quota['left']} of {quota['limit']} left now")
    return texts


def _whole_host(plan: HostsPlan) -> list[str]:
    """A line per host, a table of the moves, a line for each other server, then the totals."""
    moves, misfits = plan["moves"], plan["misfits"]
    lost = sum(any(disk["fate"] != "kept" for disk in move.get("disks", ())) for move in moves)
    return [
        *(_host(proof) for proof in plan["hosts"].values()),
        *_moves(moves),
        *(
            f"{_named(server, one)}: impossible: {one['why']}{_helps(one['changes'])}"
            for server, one in misfits.items()
        ),
        *(f"{server}: refused: {why}" for server, why in plan["refused"].items()),
        *(f"{server}: stays: {why}" for server, why in plan["spared"].items()),
        f"{len(moves)} would move, {lost} of them with disks made again; {len(misfits)} impossible; "
        f"about {duration(plan['seconds'])}, {plan['bytes'] / 1e9:.1f} GB",
    ]


def _host(host: ProofText) -> str:
    proof = f" (proven by {host['proven_by']})" if host.get("proven_by") else ""
    return f"{host['sentence']}{proof}"


def _moves(moves: list[MoveText]) -> list[str]:
    rows = [MOVE_HEADERS, *(_move(move) for move in moves)]
    widths = widths_of(rows, None)
    return [(" " * GAP).join(cells).rstrip() for row in rows for cells in folded(row, widths)] if moves else []


def _move(move: MoveText) -> tuple[str, ...]:
    """Return the cells of a move, with the reason if the server stays or has no host yet."""
    disks = ", ".join(f"{disk['disk']} {disk['fate']}" for disk in move.get("disks", ()))
    to, source = move.get("to", ""), move.get("source", "")
    why = move["why"] if to in ("", source) else ""
    cells = (move["server"], move.get("name", ""), source, to, disks or why)
    return tuple(visible(cell) or "-" for cell in cells)


def _named(server: str, misfit: MisfitText) -> str:
    return f"{server} ({misfit['name']})" if misfit.get("name") else server


def _helps(changes: list[str]) -> str:
    return f"; what would help: {changes[0]}" if changes else ""


def _other(plan: JsonObject) -> list[str]:
    """Return the lines of a dry run that this program does not know, perhaps of a newer cloud."""
    return to_yaml(with_times(plan)).splitlines()


def _gone(plan: GonePlan) -> list[str]:
    return [
        plan["proof"],
        *(f"copy {disk['copy']} of {disk['server']}: {disk['fate']}" for disk in plan["disks"]),
        *(f"{server}: goes back to the host that it was moved from" for server in plan["reverts"]),
        *(f"{server}: can only be confirmed, not reverted" for server in plan["confirm_only"]),
        f"settled: {_amounts(plan['settled'])}",
        f"left: {_amounts(plan['left'])}",
    ]
