"""What an operator may set: a TOML file and `--set section.option=value`, with Nova's names where Nova has them.

Anything unknown or of the wrong kind is refused with one sentence that names it and says what is allowed: a misspelt
option that is silently ignored is found out at the worst moment.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from kilonova.domain.errors import Refused
from kilonova.domain.hardware_options import (
    Aliases,
    Cards,
    Cpus,
    DeviceSpecs,
    Pages,
    check_aliases,
    check_cpus,
    check_machine,
)

FILE_NAME = "kilonova.toml"

Seconds = Annotated[float, Meta(gt=0, description="seconds, more than 0")]
Pause = Annotated[float, Meta(ge=0, description="seconds, 0 or more")]
Days = Annotated[float, Meta(ge=0, description="days, 0 or more")]
Count = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
Amount = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
Limit = Annotated[int, Meta(ge=-1, description="a whole number, 0 or more, or -1 for no limit")]
Flag = Annotated[bool, Meta(description="true or false")]
Word = Annotated[str, Meta(description="a text")]
Words = Annotated[tuple[str, ...], Meta(description="a list of strings (comma-separated with --set)")]
Factor = Annotated[float, Meta(description="a number; below 0 turns the order around")]
Percent = Annotated[float, Meta(ge=0, le=100, description="a number, 0 to 100")]
Ratio = Annotated[float, Meta(ge=0, description="a number, 0 or more; 0: what placement has")]
VirtType = Annotated[str, Meta(pattern="^(kvm|qemu|)$", description='"kvm", "qemu", or "" for the faster one')]
Address = Annotated[str, Meta(description="an address in quotes")]
PortNumber = Annotated[int, Meta(ge=1, le=65535, description="a port, 1 to 65535")]
Url = Annotated[str, Meta(pattern=r"^(https?://[^\s/?#]+[^\s#]*)?$", description="a URL: http://… or https://…")]
SocketUrl = Annotated[str, Meta(pattern=r"^(wss?://[^\s/?#]+[^\s#]*)?$", description="a URL: ws://… or wss://…")]
Level = Annotated[str, Meta(pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="DEBUG, INFO, WARNING or ERROR")]
Microversion = Annotated[str, Meta(pattern=r"^2\.([1-9]|[1-9]\d|10[0-5])$", description='"2.1" to "2.105"; in quotes')]
Strategy = Annotated[str, Meta(pattern="^(depth|breadth)-first$", description='"depth-first" or "breadth-first"')]
NetworkDriver = Annotated[str, Meta(pattern="^(auto|bridged|user)$", description='"auto", "bridged" or "user"')]
Transport = Annotated[str, Meta(pattern="^(bus|webhook|)$", description='"bus", "webhook", or "" for none')]
PortRange = Annotated[str, Meta(pattern="^[0-9]{1,5}(-[0-9]{1,5})?$", description="a port, or two with - between them")]
LinkName = Annotated[str, Meta(pattern="^[a-z][a-z0-9-]{0,14}$", description="a link's name, 15 characters at most")]
Addresses = Annotated[dict[str, str], Meta(description="addresses by name, as in [database.cells]")]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One table of the file."""


class Default(Section, frozen=True, kw_only=True):
    report_interval: Seconds = 10.0
    service_down_time: Seconds = 60.0
    allow_resize_to_same_host: Flag = False
    resume_guests_state_on_host_boot: Flag = True
    reclaim_instance_interval: Pause = 0.0
    resize_confirm_window: Pause = 0.0
    default_availability_zone: Word = "nova"
    default_schedule_zone: Word = ""
    internal_service_availability_zone: Word = "internal"
    max_local_block_devices: Limit = 3
    force_config_drive: Flag = False
    disk_reserve_mb: Amount = 256
    host: Word = ""
    reserved_host_cpus: Amount = 0
    reserved_host_memory_mb: Amount = 512
    reserved_host_disk_mb: Amount = 0
    cpu_allocation_ratio: Ratio = 0.0
    ram_allocation_ratio: Ratio = 0.0
    disk_allocation_ratio: Ratio = 0.0
    initial_cpu_allocation_ratio: Ratio = 4.0
    initial_ram_allocation_ratio: Ratio = 1.0
    initial_disk_allocation_ratio: Ratio = 1.0
    instances_path: Word = ""
    my_ip: Address = ""
    shutdown_timeout: Seconds = 60.0
    web: Word = "/usr/share/novnc"
    use_json: Flag = False
    log_level: Level = "INFO"


class ApiOptions(Section, frozen=True, kw_only=True):
    list_records_by_skipping_down_cells: Flag = True
    enable_instance_password: Flag = True
    max_microversion: Microversion = "2.105"


class HttpOptions(Section, frozen=True, kw_only=True):
    """Limits of every HTTP listener."""

    max_header_bytes: Count = 32768
    max_url_bytes: Count = 16384
    header_timeout: Seconds = 10.0
    client_socket_timeout: Seconds = 30.0
    max_connections_per_address: Count = 256
    trusted_proxies: Words = ()
    ssl_cert_file: Word = ""
    ssl_key_file: Word = ""
    access_log: Flag = False


class SchedulerOptions(Section, frozen=True, kw_only=True):
    max_attempts: Count = 3
    max_placement_results: Count = 1000
    unknown_wait: Pause = 1800.0
    limit_tenants_to_placement_aggregate: Flag = False
    placement_aggregate_required_for_tenants: Flag = False
    query_placement_for_image_type_support: Flag = False
    enable_isolated_aggregate_filtering: Flag = False
    image_metadata_prefilter: Flag = False


class FilterOptions(Section, frozen=True, kw_only=True):
    """Which filters run and with which numbers; how much each weigher counts."""

    available_filters: Words = ("nova.scheduler.filters.all_filters",)
    enabled_filters: Words = (
        "ComputeFilter",
        "ComputeCapabilitiesFilter",
        "ImagePropertiesFilter",
        "ServerGroupAntiAffinityFilter",
        "ServerGroupAffinityFilter",
        "PciPassthroughFilter",
        "NUMATopologyFilter",
    )
    host_subset_size: Count = 1
    shuffle_best_same_weighed_hosts: Flag = False
    max_io_ops_per_host: Amount = 8
    max_instances_per_host: Amount = 50
    isolated_images: Words = ()
    isolated_hosts: Words = ()
    restrict_isolated_hosts_to_isolated_images: Flag = True
    aggregate_image_properties_isolation_namespace: Word = ""
    aggregate_image_properties_isolation_separator: Word = "."
    image_properties_default_architecture: Word = ""
    ram_weight_multiplier: Factor = 1.0
    cpu_weight_multiplier: Factor = 1.0
    disk_weight_multiplier: Factor = 1.0
    hypervisor_version_weight_multiplier: Factor = 1.0
    num_instances_weight_multiplier: Factor = 0.0
    io_ops_weight_multiplier: Factor = -1.0
    pci_weight_multiplier: Factor = 1.0
    soft_affinity_weight_multiplier: Factor = 1.0
    soft_anti_affinity_weight_multiplier: Factor = 1.0
    build_failure_weight_multiplier: Factor = 1000000.0
    cross_cell_move_weight_multiplier: Factor = 1000000.0
    image_props_weight_multiplier: Factor = 0.0
    image_props_weight_setting: Words = ()


class MetricsOptions(Section, frozen=True, kw_only=True):
    weight_multiplier: Factor = 1.0
    weight_setting: Words = ()
    required: Flag = True
    weight_of_unavailable: Factor = -10000.0


class ComputeOptions(Section, frozen=True, kw_only=True):
    cell: Word = ""
    consecutive_build_service_disable_threshold: Amount = 10
    cpu_dedicated_set: Cpus = ""
    cpu_shared_set: Cpus = ""


class GlanceOptions(Section, frozen=True, kw_only=True):
    """Where an agent uploads images that are made of its servers."""

    endpoint_override: Address = ""
    cafile: Word = ""


class PlacementOptions(Section, frozen=True, kw_only=True):
    randomize_allocation_candidates: Flag = False
    max_allocation_candidates: Limit = -1
    allocation_candidates_generation_strategy: Strategy = "depth-first"


class ConductorOptions(Section, frozen=True, kw_only=True):
    lease_seconds: Seconds = 6.0
    poll_seconds: Seconds = 5.0
    evacuations_per_destination: Count = 4
    move_seconds: Seconds = 10.0
    move_mb_per_second: Count = 100
    metrics_listen: Address = ""


class AuditOptions(Section, frozen=True, kw_only=True):
    interval: Pause = 3600.0
    ledger_days: Pause = 90.0


class HaOptions(Section, frozen=True, kw_only=True):
    """The failure watch, beside each conductor."""

    automatic: Flag = False
    fence_command: Words = ()
    fence_timeout: Seconds = 60.0
    storm_percent: Percent = 10.0
    storm_hosts: Amount = 3
    storm_window: Pause = 600.0


class NotificationOptions(Section, frozen=True, kw_only=True):
    """What others are told of servers and hosts, by the sender beside each conductor."""

    transport: Transport = ""
    versioned_notifications_topics: Words = ("versioned_notifications",)
    bus_answer: Flag = False
    webhook_url: Url = ""
    webhook_secret_file: Word = ""
    webhook_ca_file: Word = ""
    webhook_timeout: Seconds = 10.0
    retry_seconds: Seconds = 3600.0
    max_queued: Count = 10000


class RetentionOptions(Section, frozen=True, kw_only=True):
    """How long records of what has ended stay."""

    days: Days = 90.0


class Simulated(Section, frozen=True, kw_only=True):
    hosts: Amount = 3
    cells: Count = 1
    vcpus: Count = 64
    memory_mb: Count = 262144
    disk_gb: Count = 4000
    shared_storage: Word = ""
    boot_seconds: Pause = 0.0
    copy_seconds: Pause = 0.0
    same_host_cold_migrate: Flag = False
    numa_nodes: Count = 2
    cpu_threads: Count = 2
    huge_pages: Pages = {}
    pci: Cards = []


class LibvirtOptions(Section, frozen=True, kw_only=True):
    """Real guests; of each agent."""

    connection_uri: Address = ""
    virt_type: VirtType = ""
    images_path: Word = ""
    default_image: Word = ""
    disk_port: PortNumber = 8790
    disk_cert_file: Word = ""
    disk_key_file: Word = ""
    disk_ca_file: Word = ""


class PciOptions(Section, frozen=True, kw_only=True):
    alias: Aliases = []
    device_spec: DeviceSpecs = []


class DatabaseOptions(Section, frozen=True, kw_only=True):
    control: Address = ""
    placement: Address = ""
    cells: Addresses = {}
    spare: Addresses = {}
    cell_timeout: Seconds = 5.0

    @property
    def is_set(self) -> bool:
        return bool(self.control or self.placement or self.cells)


class BusOptions(Section, frozen=True, kw_only=True):
    url: Address = ""
    prefix: Word = "kilonova"


class Secrets(Section, frozen=True, kw_only=True):
    key_file: Word = ""


class ImageOptions(Section, frozen=True, kw_only=True):
    image_size_cap: Count = 1024**4
    virtual_size_cap: Count = 16 * 1024**4
    quota_bytes: Limit = 100 * 1024**3
    filesystem_store_datadir: Word = ""


class TokenOptions(Section, frozen=True, kw_only=True):
    expiration: Seconds = 3600.0


class IdentityOptions(Section, frozen=True, kw_only=True):
    admin_password_file: Word = ""
    failed_logins_per_minute: Amount = 10


class CorsOptions(Section, frozen=True, kw_only=True):
    """Which pages may ask from a browser; lists divided by commas."""

    allowed_origin: Word = ""
    allow_headers: Word = ""


class VolumeOptions(Section, frozen=True, kw_only=True):
    """Cinder's names."""

    default_volume_type: Word = "__DEFAULT__"
    quota_volumes: Limit = 10
    quota_snapshots: Limit = 10
    quota_gigabytes: Limit = 1000
    per_volume_size_limit: Limit = -1
    file_tasks: Count = 4
    file_task_timeout: Seconds = 21600.0
    target_ip_address: Address = "127.0.0.1"
    nbd_ports: PortRange = "10809-11832"

    @property
    def port_range(self) -> tuple[int, int]:
        first, _, last = self.nbd_ports.partition("-")
        return int(first), int(last or first)


class CinderOptions(Section, frozen=True, kw_only=True):
    """How servers use volumes."""

    cross_az_attach: Flag = True


class NetworkOptions(Section, frozen=True, kw_only=True):
    """The networks of a host with real guests."""

    driver: NetworkDriver = "auto"
    local_ip: Address = ""
    path_mtu: Count = 1500
    node: Flag = False
    external_bridge: LinkName = "kn-external"


class ConsoleOptions(Section, frozen=True, kw_only=True):
    """Connections to consoles, of each API."""

    allowed_origins: Words = ()
    host_url: Url = ""
    idle_timeout: Pause = 3600.0
    max_connections: Count = 256
    max_connections_per_server: Count = 8


class ConsoleAuthOptions(Section, frozen=True, kw_only=True):
    token_ttl: Seconds = 600.0
    enforce_session_timeout: Flag = False


class VncOptions(Section, frozen=True, kw_only=True):
    enabled: Flag = True
    novncproxy_base_url: Url = ""


class SerialOptions(Section, frozen=True, kw_only=True):
    enabled: Flag = True
    base_url: SocketUrl = ""


class QuotaOptions(Section, frozen=True, kw_only=True):
    """What a project may have unless an administrator sets it otherwise."""

    instances: Limit = 10
    cores: Limit = 20
    ram: Limit = 51200
    metadata_items: Limit = 128
    injected_files: Limit = 5
    injected_file_content_bytes: Limit = 10240
    injected_file_path_length: Limit = 255
    key_pairs: Limit = 100
    server_groups: Limit = 10
    server_group_members: Limit = 10
    count_usage_from_placement: bool = False


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename={"default": "DEFAULT"}):
    default: Default = Default()
    api: ApiOptions = ApiOptions()
    wsgi: HttpOptions = HttpOptions()
    scheduler: SchedulerOptions = SchedulerOptions()
    filter_scheduler: FilterOptions = FilterOptions()
    metrics: MetricsOptions = MetricsOptions()
    compute: ComputeOptions = ComputeOptions()
    glance: GlanceOptions = GlanceOptions()
    placement: PlacementOptions = PlacementOptions()
    conductor: ConductorOptions = ConductorOptions()
    audit: AuditOptions = AuditOptions()
    ha: HaOptions = HaOptions()
    notifications: NotificationOptions = NotificationOptions()
    retention: RetentionOptions = RetentionOptions()
    simulated: Simulated = Simulated()
    libvirt: LibvirtOptions = LibvirtOptions()
    pci: PciOptions = PciOptions()
    database: DatabaseOptions = DatabaseOptions()
    bus: BusOptions = BusOptions()
    secrets: Secrets = Secrets()
    quota: QuotaOptions = QuotaOptions()
    image: ImageOptions = ImageOptions()
    volume: VolumeOptions = VolumeOptions()
    cinder: CinderOptions = CinderOptions()
    network: NetworkOptions = NetworkOptions()
    console: ConsoleOptions = ConsoleOptions()
    consoleauth: ConsoleAuthOptions = ConsoleAuthOptions()
    vnc: VncOptions = VncOptions()
    serial_console: SerialOptions = SerialOptions()
    token: TokenOptions = TokenOptions()
    identity: IdentityOptions = IdentityOptions()
    cors: CorsOptions = CorsOptions()


def _sections() -> dict[str, type[Section]]:
    types = get_type_hints(Settings)
    return {field.encode_name: types[field.name] for field in msgspec.structs.fields(Settings)}


SECTIONS = _sections()


def load(data: Path | None, config: Path | None, overrides: Sequence[str]) -> Settings:
    """`config`, else the file in the data directory if there is one, then the overrides. Raises Refused."""
    found = config
    if found is None and data is not None and (data / FILE_NAME).is_file():
        found = data / FILE_NAME
    values: dict[str, dict[str, Any]] = {}
    if found is not None:
        for section, options in _read(found).items():
            _take_section(values, section, options, str(found))
    for override in overrides:
        _take_override(values, override)
    return _checked(msgspec.convert(values, Settings))


def load_for_fleet(data: Path | None, config: Path | None, overrides: Sequence[str]) -> Settings:
    """The same for a role that runs apart from the others: nothing of what they share may be left to chance."""
    settings = load(data, config, overrides)
    database = settings.database
    _need(database.control, "[database] control", "the address of the control database")
    _need(database.placement, "[database] placement", "the address of the placement database")
    _need(
        "cell0" in database.cells and len(database.cells) > 1, "[database.cells]", "cell0 and at least one other cell"
    )
    need_bus(settings)
    _need(settings.secrets.key_file, "[secrets] key_file", "a file that every api and conductor of the fleet has")
    return settings


def need_bus(settings: Settings) -> None:
    _need(settings.bus.url, "[bus] url", "the address of NATS")


def _need(given: object, option: str, what: str) -> None:
    if not given:
        raise _bad(f"{option} is not set; this role needs {what}")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise _bad(f"cannot read the configuration {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _bad(f"the configuration {path} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise _bad(f"the configuration {path} is not valid TOML: {error}") from error


def _take_section(values: dict[str, dict[str, Any]], section: str, options: Any, source: str) -> None:
    if not isinstance(options, dict):
        raise _bad(f"{source}: {section} is outside of any section; sections are {_named(SECTIONS)}")
    for option, value in options.items():
        _check_names(section, option, source)
        values.setdefault(section, {})[option] = _typed(section, option, value, source, strict=True)


def _take_override(values: dict[str, dict[str, Any]], override: str) -> None:
    """`section.option=value`; the addresses of databases one by one, as `database.cells.cell1=…`."""
    name, equals, value = override.partition("=")
    section, _, rest = name.partition(".")
    option, _, key = rest.partition(".")
    if not equals or not option:
        raise _bad(f"--set {override}: expected section.option=value")
    _check_names(section, option, "--set")
    chosen = values.setdefault(section, {})
    if not key:
        chosen[option] = _typed(section, option, value, "--set", strict=False)
    elif option in ("cells", "spare"):
        chosen[option] = {**chosen.get(option, {}), key: value}
    else:
        raise _bad(f"--set: [{section}] {option} has no key {key}")


def _check_names(section: str, option: str, source: str) -> None:
    known = SECTIONS.get(section)
    if known is None:
        raise _bad(
            f"{source}: there is no section [{section}]{_meant(section, SECTIONS)}; known are {_named(SECTIONS)}"
        )
    options = known.__struct_fields__
    if option not in options:
        raise _bad(
            f"{source}: [{section}] has no option {option}{_meant(option, options)}; known are {', '.join(options)}"
        )


def _typed(section: str, option: str, value: Any, source: str, *, strict: bool) -> Any:
    form = get_type_hints(SECTIONS[section], include_extras=True)[option]
    if form is Words and isinstance(value, str) and not strict:
        value = [word.strip() for word in value.split(",") if word.strip()]
    try:
        if not strict and get_origin(get_args(form)[0]) in (list, dict):  # typed in a shell: lists and tables are JSON
            value = msgspec.json.decode(value)
        return msgspec.convert(value, form, strict=strict, str_keys=True)
    except (msgspec.ValidationError, msgspec.DecodeError):
        allowed = get_args(form)[1].description
        raise _bad(f"{source}: [{section}] {option} = {value!r} is not allowed; it must be {allowed}") from None


def _checked(settings: Settings) -> Settings:
    """What no option can know alone."""
    default = settings.default
    if default.service_down_time <= default.report_interval:
        raise _bad(
            f"[DEFAULT] service_down_time = {default.service_down_time:g} must be more than report_interval = "
            f"{default.report_interval:g}: a host would be down between two heartbeats"
        )
    _check_proxies(settings.wsgi.trusted_proxies)
    if settings.ha.fence_command and not any("{host}" in word for word in settings.ha.fence_command):
        raise _bad("[ha] fence_command has no {host}: it would not know which host to switch off")
    _check_exports(settings.volume)
    _check_addresses(settings)
    _check_notifications(settings)
    if bool(settings.wsgi.ssl_cert_file) != bool(settings.wsgi.ssl_key_file):
        raise _bad("[wsgi] ssl_cert_file and ssl_key_file belong together: set both, or neither")
    check_cpus(settings.compute.cpu_dedicated_set, settings.compute.cpu_shared_set)
    check_aliases(settings.pci.alias)
    machine = settings.simulated
    check_machine(machine.numa_nodes, machine.memory_mb, machine.huge_pages, machine.pci)
    return settings


def _check_exports(options: VolumeOptions) -> None:
    """Hosts are told the address, so it must be one."""
    try:
        unusable = ip_address(options.target_ip_address).is_unspecified
    except ValueError:
        unusable = True
    if unusable:
        address = options.target_ip_address
        raise _bad(f"[volume] target_ip_address = {address!r}: it must be one IP address of this machine")
    first, last = options.port_range
    if not 1 <= first <= last <= 65535:
        raise _bad(f"[volume] nbd_ports = {options.nbd_ports!r}: two ports are needed, the smaller one first")


def _check_addresses(settings: Settings) -> None:
    """Every URL is of the right form; here, that something can be connected to. The address itself is not told back: it
    may have a token in it."""
    for name, url in (
        ("[notifications] webhook_url", settings.notifications.webhook_url),
        ("[console] host_url", settings.console.host_url),
        ("[vnc] novncproxy_base_url", settings.vnc.novncproxy_base_url),
        ("[serial_console] base_url", settings.serial_console.base_url),
    ):
        try:
            parts = urlsplit(url)
            usable = not url or (parts.hostname and parts.port != 0 and url.isascii())
        except ValueError:  # of its port or its brackets
            usable = False
        if not usable:
            raise _bad(f"{name}: it must have a host, a port between 1 and 65535 or none, and only ASCII characters")


def _check_notifications(settings: Settings) -> None:
    options = settings.notifications
    if options.transport == "bus" and not (settings.bus.url and options.versioned_notifications_topics):
        raise _bad('[notifications] transport = "bus" needs [bus] url and versioned_notifications_topics')
    if options.transport == "webhook" and not options.webhook_url:
        raise _bad('[notifications] transport = "webhook" needs webhook_url')
    if "@" in urlsplit(options.webhook_url).netloc:
        raise _bad("[notifications] webhook_url: it must not have a user or password; sign with webhook_secret_file")


def _check_proxies(proxies: Sequence[str]) -> None:
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError as error:
            text = f"[wsgi] trusted_proxies: {proxy!r} is not allowed; it must be an IP address or a network ({error})"
            raise _bad(text) from None


def _named(names: Any) -> str:
    return ", ".join(f"[{name}]" for name in names)


def _meant(word: str, known: Any) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _bad(message: str) -> Refused:
    return Refused("bad_configuration", message)


DEFAULTS = Settings()
