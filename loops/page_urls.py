"""Addresses of the loops' pages."""

from django.urls import path

from loops import pages

LOOPS = "agents/<slug:name>/loops/"
LOOP = LOOPS + "<slug:loop_id>/"
RUN = LOOP + "runs/<int:number>/"

urlpatterns = [
    path(LOOPS, pages.loops_tab, name="page-loops"),
    path(LOOPS + "new/", pages.loop_new, name="page-loop-new"),
    path(LOOPS + "outlook/", pages.loop_outlook, name="page-loop-outlook"),
    path(LOOPS + "state/", pages.state, name="page-loops-state"),
    path(LOOP, pages.loop_page, name="page-loop"),
    path(LOOP + "body/", pages.loop_body, name="page-loop-body"),
    path(LOOP + "message/", pages.loop_message, name="page-loop-message"),
    path(LOOP + "stop/", pages.loop_stop, name="page-loop-stop"),
    path(RUN, pages.run_page, name="page-run"),
    path(RUN + "response/", pages.run_response, name="page-run-response"),
]
