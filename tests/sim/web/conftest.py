"""Fixtures of the site, without a browser."""

from tests.support.site import address, checked_here, client, dropping, session, simulated
