"""Django admin of people, agents, access and the ledger.

What may be changed goes through the verbs of `agents.life` and `agents.keys`; history is only read.
"""

from django.contrib import admin

from agents.admin import agents, grants, history, people

__all__ = ["agents", "grants", "history", "people"]

admin.site.login_form = people.AdminSignIn
admin.site.site_header = admin.site.site_title = "Trinity Loops"
