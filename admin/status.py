"""The page at `/` and `/admin/` that shows whether the service has what it needs: no more than `/readyz` says."""

import asyncio
import secrets
from collections.abc import Sequence
from importlib import metadata

from jinja2 import Environment, PackageLoader
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from runtime import health
from runtime.health import Check

_TEMPLATES = Environment(loader=PackageLoader("admin"), autoescape=True)
_LINK = '</wp-json/>; rel="https://api.w.org/"'


def routes(checks: Sequence[Check]) -> list[Route]:
    async def status(request: Request) -> Response:
        outcomes = await asyncio.gather(*(health.passes(check) for check in checks))
        rows = [
            {"name": check.name, "required": check.required, "passed": passed}
            for check, passed in zip(checks, outcomes, strict=True)
        ]
        nonce = secrets.token_urlsafe(16)
        page = _TEMPLATES.get_template("status.html").render(
            checks=rows, all_good=all(outcomes), version=metadata.version("novel-service"), nonce=nonce
        )
        return HTMLResponse(page, headers=_headers(nonce))

    async def to_admin(request: Request) -> Response:
        return RedirectResponse("/admin/", status_code=308)

    return [Route("/", status), Route("/admin", to_admin), Route("/admin/", status)]


def _headers(nonce: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
        "Link": _LINK,
    }
