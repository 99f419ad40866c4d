"""Addresses of loops: the platform dialect, what else begins with `/api`, and the pages."""

from django.urls import include, path, re_path

from agents.api.doors import NoSuchAddress
from loops.api import platform

urlpatterns = [
    path("api/agents/<str:name>/loops", platform.LoopsView.as_view()),
    path("api/loops/<str:loop_id>", platform.LoopView.as_view()),
    path("api/loops/<str:loop_id>/runs/<int:run_number>", platform.RunView.as_view()),
    path("api/loops/<str:loop_id>/stop", platform.StopLoopView.as_view()),
    re_path(r"^api(?:/[\s\S]*)?$", NoSuchAddress.as_view()),
    path("", include("loops.page_urls")),
]
