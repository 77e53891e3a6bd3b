"""The failure watch: it finds silent hosts and, if configured, fences and evacuates them.

watch       the loop: the reaction to each host, one record per failure
command     the fence that runs an operator's command
"""
