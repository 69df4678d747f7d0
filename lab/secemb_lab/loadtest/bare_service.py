"""The service of `bare`, in a process of its own."""

import sys

import uvicorn
from starlette.types import Receive, Scope, Send

from secemb_tools.local.child import end_with_parent
from secemb_tools.local.service import HERE


def serve(port: int, length: int) -> None:
    """Answer every request with so many bytes."""
    answer = bytes(length)

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", str(length).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    uvicorn.run(app, host=HERE, port=port, log_config=None, access_log=False, proxy_headers=False, lifespan="off")


if __name__ == "__main__":
    end_with_parent(int(sys.argv[3]))
    serve(int(sys.argv[1]), int(sys.argv[2]))
