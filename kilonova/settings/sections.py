"""The sections of the configuration, and Settings, which has one field for each."""

from __future__ import annotations

from typing import get_type_hints

import msgspec

from kilonova.settings.hosts import ComputeOptions, GlanceOptions, LibvirtOptions, NetworkOptions, PciOptions, Simulated
from kilonova.settings.services import (
    CinderOptions,
    ConsoleAuthOptions,
    ConsoleOptions,
    CorsOptions,
    IdentityOptions,
    ImageOptions,
    SerialOptions,
    TokenOptions,
    VncOptions,
    VolumeOptions,
)
from kilonova.settings.values import (
    Address,
    Addresses,
    Amount,
    Count,
    Days,
    Factor,
    Flag,
    Level,
    Limit,
    Microversion,
    Pause,
    Percent,
    Ratio,
    Seconds,
    Section,
    Strategy,
    Text,
    TextList,
    Transport,
    Url,
)


class Default(Section, frozen=True, kw_only=True):
    report_interval: Seconds = 10.0
    service_down_time: Seconds = 60.0
    allow_resize_to_same_host: Flag = False
    resume_guests_state_on_host_boot: Flag = True
    reclaim_instance_interval: Pause = 0.0
    resize_confirm_window: Pause = 0.0
    default_availability_zone: Text = "nova"
    default_schedule_zone: Text = ""
    internal_service_availability_zone: Text = "internal"
    max_local_block_devices: Limit = 3
    force_config_drive: Flag = False
    disk_reserve_mb: Amount = 256
    host: Text = ""
    reserved_host_cpus: Amount = 0
    reserved_host_memory_mb: Amount = 512
    reserved_host_disk_mb: Amount = 0
    cpu_allocation_ratio: Ratio = 0.0
    ram_allocation_ratio: Ratio = 0.0
    disk_allocation_ratio: Ratio = 0.0
    initial_cpu_allocation_ratio: Ratio = 4.0
    initial_ram_allocation_ratio: Ratio = 1.0
    initial_disk_allocation_ratio: Ratio = 1.0
    instances_path: Text = ""
    my_ip: Address = ""
    shutdown_timeout: Seconds = 60.0
    web: Text = "/usr/share/novnc"
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
    trusted_proxies: TextList = ()
    ssl_cert_file: Text = ""
    ssl_key_file: Text = ""
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
    """The filters that run, with their numbers; the multiplier of each weigher."""

    available_filters: TextList = ("nova.scheduler.filters.all_filters",)
    enabled_filters: TextList = (
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
    isolated_images: TextList = ()
    isolated_hosts: TextList = ()
    restrict_isolated_hosts_to_isolated_images: Flag = True
    aggregate_image_properties_isolation_namespace: Text = ""
    aggregate_image_properties_isolation_separator: Text = "."
    image_properties_default_architecture: Text = ""
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
    image_props_weight_setting: TextList = ()


class MetricsOptions(Section, frozen=True, kw_only=True):
    weight_multiplier: Factor = 1.0
    weight_setting: TextList = ()
    required: Flag = True
    weight_of_unavailable: Factor = -10000.0


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
    fence_command: TextList = ()
    fence_timeout: Seconds = 60.0
    storm_percent: Percent = 10.0
    storm_hosts: Amount = 3
    storm_window: Pause = 600.0


class NotificationOptions(Section, frozen=True, kw_only=True):
    """Notifications about servers and hosts, by the sender beside each conductor."""

    transport: Transport = ""
    versioned_notifications_topics: TextList = ("versioned_notifications",)
    bus_answer: Flag = False
    webhook_url: Url = ""
    webhook_secret_file: Text = ""
    webhook_ca_file: Text = ""
    webhook_timeout: Seconds = 10.0
    retry_seconds: Seconds = 3600.0
    max_queued: Count = 10000

    @property
    def is_on(self) -> bool:
        return bool(self.transport)


class RetentionOptions(Section, frozen=True, kw_only=True):
    """The retention of ended records."""

    days: Days = 90.0


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
    prefix: Text = "kilonova"


class Secrets(Section, frozen=True, kw_only=True):
    key_file: Text = ""


class QuotaOptions(Section, frozen=True, kw_only=True):
    """The default quotas of a project."""

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
