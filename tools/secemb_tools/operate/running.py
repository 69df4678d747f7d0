"""A server as a process."""

import asyncio
import os
from pathlib import Path

from secemb_party.settings import Settings, load_settings
from secemb_party.telemetry import configure_logs, get_logger
from secemb_shared.errors import SecEmbError
from secemb_tools.operate.refusal import OperationError


def settings_at(path: Path, **variables: str) -> Settings:
    """Return the settings in a file, or in the directory that `secemb init` made, with the variables over them."""
    return load_settings(path / "secemb.toml" if path.is_dir() else path, {**os.environ, **variables})


def serve(settings: Settings) -> None:
    """Run the server of the settings' role until a signal."""
    configure_logs(settings.logs.level, settings.logs.format)
    if settings.role == 0:
        from secemb_server0.app import run
    else:
        from secemb_server1.app import run
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        try:
            runner.run(run(settings))
        except SecEmbError:
            raise  # its words are written for the operator
        except Exception as error:  # the words of any other may quote a request
            get_logger().critical("the server failed", exc_info=error)
            raise OperationError("the server failed; its last log line says where") from None


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ModuleNotFoundError:  # it does not exist for every platform
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
