"""Commands. Those about a running cloud speak REST to it like any client; only `db` opens a store."""
