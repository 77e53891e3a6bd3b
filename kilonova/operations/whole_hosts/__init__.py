"""Operations on all servers of one or more hosts: evacuate, drain, return, and a host that is gone for good.

requests   the way in: one parent operation per cell, accepted once however often it is asked for
plan       all servers placed together over one snapshot, with order, misfits and an estimate of the time
rehearse   a dry run of the same plan
drain_plan, return_plan    what differs for a drain and for a return
evacuate_host, drain_host, return_host    the operations; their children are ordinary operations on one server
declare_gone, host_gone    the declaration that a host never comes back, and its consequences
"""
