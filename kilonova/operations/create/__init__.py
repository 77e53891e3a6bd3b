"""Create: a request becomes a server, in two journals.

request    every error that can be known is refused, and nothing is stored
accept     one control transaction: quota, build request, mapping, request spec, named volumes held, and
           `place` for one server or `place_many` for several; the API answers 202
place      journaled in control: select_destinations -> claim -> insert_server (in its cell, hidden)
             -> map_server -> hand_over
           No host fits: everything is undone and the server is buried in cell0 with the reason.
place_many the same selection and claim for all servers of a request at once, then one `place` for each
build      journaled in the server's cell, under the same operation id:
             allocate_networks -> attach_volumes -> build_and_run_instance -> complete_volumes
           A host that fails is cleaned and another one is chosen; after max_attempts the server is buried in cell0.
plan       a dry run: request and selection, with nothing stored

At any time exactly one journal owns the server (law 5); the API shows both as one operation.
"""
