"""The whole cloud in one process, in virtual time: what can crash here has crashed before it crashes for you."""
