"""Posting JSON to an address that the user named, and to no other.

Requirements met here:

- only http and https, no redirect is followed, and there is a time limit;
- messages name the host only, as the rest of such an address is often a secret.
"""

from __future__ import annotations

import hmac
import json
from typing import Any
from urllib.parse import urlsplit

from gdscore.errors import GdscoreError

__all__ = ["check_address", "post_json"]

TIMEOUT_S = 10.0
"""Seconds to wait for the connection and for each answer."""


def check_address(url: str) -> None:
    """Refuse what is not an http or https address."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise GdscoreError("Expected an address to post to such as https://example.org/alarm, but it is none")


def post_json(url: str, value: Any, *, secret: str | None = None) -> None:
    """Post a value as JSON; anything but a 2xx answer within the time limit is an error.

    Parameters
    ----------
    url : str
        Address with http or https.
    value : any
        What `json.dumps` takes.
    secret : str, optional
        Signs the body: ``X-Gdscore-Signature`` is ``sha256=`` and the HMAC-SHA256 in hexadecimal digits.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class NoRedirect(HTTPRedirectHandler):
        def redirect_request(self, *args: Any, **kwargs: Any) -> None:
            return None

    check_address(url)
    host = urlsplit(url).hostname
    body = json.dumps(value, allow_nan=False).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "gdscore"}
    if secret is not None:
        headers["X-Gdscore-Signature"] = f"sha256={hmac.new(secret.encode(), body, 'sha256').hexdigest()}"
    request = Request(url, body, headers)
    try:
        with build_opener(NoRedirect).open(request, timeout=TIMEOUT_S):
            pass
    except HTTPError as error:
        error.close()
        raise GdscoreError(
            f"Expected {host} to accept the post, but it answered {error.code} {error.reason}"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise GdscoreError(f"Expected to post to {host}, but it failed: {reason}") from error
