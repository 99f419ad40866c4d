"""The URL map of the whole product."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("agents.urls")),
    path("", include("loops.urls")),
    path("admin/", admin.site.urls),
]
