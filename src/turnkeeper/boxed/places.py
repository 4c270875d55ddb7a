"""Where things are inside a client's box. Pure."""

from typing import Final

HOOK_FILE: Final = "/run/turnkeeper/hook.py"
CLIENTS: Final = "/opt/clients"
"""What npm made: `node_modules` with the three clients."""
HOME: Final = "/tmp/home"  # noqa: S108  the box's own
SCHEMA_NAME: Final = "result.schema.json"
"""In the client's home."""
MODEL_PORT: Final = 8088
MODEL_HOST: Final = f"http://127.0.0.1:{MODEL_PORT}"
