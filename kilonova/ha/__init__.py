"""The failure watch: finds hosts that fell silent and, where an operator wants that, fences and evacuates them.

watch       the loop: what is done about each host, one record per failure
command     the fence that runs an operator's command
"""
