"""Programs without a mistake that look as if they had one."""
