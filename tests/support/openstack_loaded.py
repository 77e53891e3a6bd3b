"""Everything an `openstack` command would load: imported by the process that `openstack_command` forks them from."""

from importlib.metadata import entry_points

import openstackclient.shell  # noqa: F401

GROUPS = ("openstack.cli.base", "openstack.cli.extension", "openstack.compute.v2", "openstack.image.v2")
GROUPS += ("openstack.network.v2", "openstack.identity.v3", "openstack.volume.v3", "openstack.placement.v1")

for group in GROUPS:
    for command in entry_points(group=group):
        command.load()
