"""Who may call a route: the security schemes in OpenAPI, and how a token is read and checked.

Routes that every session calls read their header themselves and name the scheme with `needs`, because a dependency
costs more than the rest of the framework (docs/adr/0013). Other routers depend on the scheme, and on their check.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from fastapi.encoders import jsonable_encoder
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.base import SecurityBase
from starlette.requests import Request

TICKET = APIKeyHeader(
    name="secemb-ticket",
    scheme_name="ticket",
    description="Server 0's signed permission for one session of one round; join and read return one.",
    auto_error=False,
)
ENROLMENT = HTTPBearer(
    scheme_name="enrolment",
    description="A device's enrolment token, from the operator of server 0.",
    auto_error=False,
)
OPERATOR = HTTPBearer(
    scheme_name="operator",
    description="An operator token with the role that the route needs; `secemb operator add` prints it once.",
    auto_error=False,
)
PEER = HTTPBearer(
    scheme_name="peer",
    description="Server 0's bearer token, created by `secemb pair` and sent over mutual TLS.",
    auto_error=False,
)
_SCHEMES: Mapping[str, SecurityBase] = {one.scheme_name: one for one in (TICKET, ENROLMENT, OPERATOR, PEER)}


def needs(*schemes: SecurityBase) -> dict[str, Any]:
    """Return the part of an OpenAPI operation that names the required credentials."""
    return {"security": [{scheme.scheme_name: []} for scheme in schemes]}


def add_schemes(description: dict[str, Any]) -> None:
    """Define the schemes that the operations of an OpenAPI description name."""
    operations = [one for path in description.get("paths", {}).values() for one in path.values()]
    named = {name for one in operations for choice in one.get("security", ()) for name in choice}
    found = {name: jsonable_encoder(_SCHEMES[name].model, exclude_none=True) for name in sorted(named)}
    if found:
        description.setdefault("components", {})["securitySchemes"] = found


def read_header(request: Request, name: bytes, default: str = "") -> str:
    """Return a header by its name in lower case; `request.headers` takes three times as long to find one."""
    for one, value in request.scope["headers"]:
        if one == name:
            return str(value, "latin-1")
    return default


def bearer(request: Request) -> str | None:
    """Return the token that a request carries, if it carries one."""
    scheme, _, token = read_header(request, b"authorization").partition(" ")
    return token if scheme.lower() == "bearer" else None


def has_hash(token: str, token_hash: bytes) -> bool:
    """Return whether this is the token with a given SHA-256."""
    return hmac.compare_digest(hashlib.sha256(token.encode()).digest(), token_hash)
