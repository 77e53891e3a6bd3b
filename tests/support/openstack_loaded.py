"""Everything an `openstack` command would load: imported by the process that `openstack_command` forks them from."""

import gc
from importlib.metadata import entry_points

import openstackclient.shell  # noqa: F401
from cliff import command

# Each command loads the commands of all services before it looks for its own.
for group in sorted(name for name in entry_points().groups if name.startswith("openstack.")):
    for entry in entry_points(group=group):
        entry.load()
# For its help a command asks which package it is from: to read the list of all packages is a third of its time.
command._get_distributions_by_modules()
# The garbage collector of a forked process would write to every page that it shares with this one.
gc.collect()
gc.freeze()
