from django.apps import AppConfig


class TrinityConfig(AppConfig):
    name = "trinity"

    def ready(self) -> None:
        """Make its check known."""
        from trinity import checks  # noqa: F401
