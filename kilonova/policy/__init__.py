"""Policy: Nova's rule names and defaults as data, judged by oslo.policy."""
