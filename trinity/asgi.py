"""The door: `/mcp` to the MCP server, all other HTTP to Django, WebSockets to the consumers after an origin check and sign-in."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")

from django.core.asgi import get_asgi_application

http = get_asgi_application()  # sets Django up, which the imports below need

from channels.routing import ProtocolTypeRouter  # noqa: E402

from loops.api.mcp_door import McpDoor  # noqa: E402
from loops.routing import sockets  # noqa: E402
from trinity.checks import demand_a_rule_for_every_way  # noqa: E402

demand_a_rule_for_every_way()
application = ProtocolTypeRouter({"http": McpDoor(http), "websocket": sockets})
