"""Image v2's HTTP, with Glance's paths and words."""
