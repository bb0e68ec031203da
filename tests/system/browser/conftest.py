"""Fixtures of the site, and a browser."""

from tests.support.site import address, browser, client, dropping, new_page, page, serve, session, simulated
