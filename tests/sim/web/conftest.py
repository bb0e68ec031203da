"""Fixtures of the site, without a browser."""

from tests.support.site import address, client, dropping, session, simulated
