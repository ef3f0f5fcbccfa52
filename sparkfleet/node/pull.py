"""Pull an image and keep it: a job of job.py. Speaks to Docker over its socket.

    python3 pull.py /var/lib/sparkfleet/jobs/NAME.json

Docker's API streams what each layer is doing, in bytes; its command line draws bars for a terminal.
A pulled digest gets a tag of ours: an image without one is swept away by `docker image prune`.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).absolute().parents[2]))

from sparkfleet.node.docker import FOUND, PULLED, SOCKET, short
from sparkfleet.node.events import Events
from sparkfleet.node.faults import Fault
from sparkfleet.node.layers import Layers
from sparkfleet.node.pull_refusals import refusal
from sparkfleet.node.unixhttp import UnixConnection

#: Seconds of silence after which a pull is given up. Docker says nothing while it verifies or
#: unpacks one big layer, so this is long.
SILENCE = 900.0
#: Seconds that a short question may take.
QUICK = 30.0
TICK = 1.0


class Engine:
    """The few calls of Docker's API that a pull needs."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path

    def ask(self, method: str, route: str, headers: dict[str, str] | None = None) -> Any:
        """A short question; None for 404. Raises Fault."""
        with closing(UnixConnection(self._path, QUICK)) as connection:
            response = self._send(connection, method, route, headers)
            body = response.read()
        if response.status == 404:
            return None
        if response.status >= 400:
            raise Fault(f"Docker refused {route}: {_message(body)}", code="docker")
        return json.loads(body) if body.strip() else {}

    def stream(self, route: str, headers: dict[str, str], silence: float) -> Iterator[Any]:
        """The JSON messages of a long call, as they come. Raises Fault."""
        with closing(UnixConnection(self._path, silence)) as connection:
            response = self._send(connection, "POST", route, headers)
            if response.status >= 400:
                yield {"error": _message(response.read())}
                return
            rest = b""
            while True:
                try:
                    data = response.read1(65536)
                except HTTPException:
                    raise Fault(
                        "Docker ended in the middle of the pull.",
                        where=self._path,
                        why="Its answer broke off: it was stopped, restarted, or died.",
                        next="Look at `systemctl status docker` on the host, then run the same "
                        "command again: layers that are complete are not fetched again.",
                        code="docker-down",
                    ) from None
                except TimeoutError:
                    raise Fault(
                        f"Docker has said nothing of the pull for {silence / 60:.0f} minutes.",
                        next="Look at the registry and the network, then run the command again.",
                        code="stalled",
                    ) from None
                *lines, rest = (rest + data).split(b"\n")
                for line in [*lines, *([rest] if not data else [])]:
                    if line.strip():
                        yield json.loads(line)
                if not data:
                    return

    def _send(
        self,
        connection: UnixConnection,
        method: str,
        route: str,
        headers: dict[str, str] | None,
    ) -> HTTPResponse:
        try:
            connection.request(method, route, headers=headers or {})
            return connection.getresponse()
        except (OSError, HTTPException) as error:
            raise Fault(
                "Docker does not answer.",
                where=self._path,
                why=f"{getattr(error, 'strerror', None) or error}.",
                next="Look at `systemctl status docker` on the host.",
                code="docker-down",
            ) from None


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "backslashreplace").strip()[:500]


class Pull:
    """One pull."""

    def __init__(
        self,
        request: dict[str, Any],
        events: Events,
        engine: Engine,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.reference = str(request["reference"])
        self.platform = request.get("platform")
        self.silence = float(request.get("silence") or SILENCE)
        self.login_files = [Path(path) for path in request.get("docker_config") or LOGINS]
        self.events, self.engine, self.clock = events, engine, clock
        self.repository, self.tag, self.digest = split(self.reference)

    def run(self) -> dict[str, Any]:
        """Have the image, under a tag. Raises Fault."""
        came = False
        if self.digest and (image := self._inspect(self.reference)):
            self.events.phase("pull", f"{self.reference} is here already.")
        else:
            came = True
            self.events.phase("pull", f"Pulling {self.reference}.")
            self._stream()
            image = self._inspect(self.reference)
        digest = self.digest or next(iter(self._digests(image)), None)
        if not image or not digest:
            raise Fault(
                "The image was pulled, but Docker does not know its digest.",
                where=self.reference,
                next="Run the same command again; if it stays so, remove the image and try anew.",
                code="digest-absent",
            )
        self._keep(image, digest, came=came)
        return {
            "digest": digest,
            "reference": f"{self.repository}@{digest}",
            "id": image.get("Id"),
            "bytes": image.get("Size"),
        }

    def _stream(self) -> None:
        name = {"fromImage": self.repository, "tag": self.digest or self.tag}
        query = {**name, **({"platform": self.platform} if self.platform else {})}
        layers, told = Layers(), 0.0
        route = f"/images/create?{urlencode(query)}"
        for message in self.engine.stream(route, self._login(), self.silence):
            if "error" in message:
                detail = message.get("errorDetail") or {}
                raise refusal(self.reference, str(detail.get("message") or message["error"]))
            if not layers.take(message):
                if "id" not in message and message.get("status"):
                    self.events.log(str(message["status"]))
                continue
            if self.clock() - told >= TICK:
                self._tell(layers)
                told = self.clock()
        self._tell(layers)

    def _tell(self, layers: Layers) -> None:
        now = self.clock()
        phase = "pull" if layers.downloading else "unpack"
        item = f"{layers.ready} of {layers.count} layers unpacked"
        self.events.progress(
            phase, layers.came, layers.total, rate=layers.rate(now), unit="B", item=item
        )

    def _inspect(self, reference: str) -> dict[str, Any] | None:
        found = self.engine.ask("GET", f"/images/{quote(reference, safe='/:@')}/json")
        return found if isinstance(found, dict) else None

    def _digests(self, image: dict[str, Any] | None) -> Iterator[str]:
        # An image's id differs between Docker's two stores; the repository's digest does not.
        for known in (image or {}).get("RepoDigests") or []:
            name, _, digest = str(known).partition("@")
            if name == self.repository or self.repository.endswith(f"/{name}"):
                yield digest

    def _keep(self, image: dict[str, Any], digest: str, *, came: bool) -> None:
        """Tag the image: one that we pulled may be cleared away with its releases (prune.py); one
        that was here already is the owner's, and stays."""
        tag = f"{PULLED if came else FOUND}{short(digest)}"
        known = {f"{self.repository}:{kind}{short(digest)}" for kind in (PULLED, FOUND)}
        if known & set(image.get("RepoTags") or []):
            return
        query = urlencode({"repo": self.repository, "tag": tag})
        source = quote(f"{self.repository}@{digest}", safe="/:@")
        if self.engine.ask("POST", f"/images/{source}/tag?{query}") is None:
            raise Fault(
                "The image went away while it was being tagged.",
                where=self.reference,
                next="Run the same command again.",
                code="digest-absent",
            )

    def _login(self) -> dict[str, str]:
        """The registry login that `docker login` left on this host, if any, for Docker's API."""
        registry = self.repository.partition("/")[0]
        for path in self.login_files:
            try:
                entry = json.loads(path.read_text(encoding="utf-8"))["auths"][registry]
                user, _, password = base64.b64decode(entry["auth"]).decode().partition(":")
            except (OSError, ValueError, KeyError, TypeError):
                continue
            login = {"username": user, "password": password, "serveraddress": registry}
            encoded = base64.urlsafe_b64encode(json.dumps(login).encode()).decode()
            return {"X-Registry-Auth": encoded}
        return {}


LOGINS = ("/root/.docker/config.json",)


def split(reference: str) -> tuple[str, str | None, str | None]:
    """`repository[:tag][@digest]` in its parts; neither tag nor digest means `latest`."""
    name, _, digest = reference.partition("@")
    head, slash, last = name.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{head}{slash}{last}", tag or (None if digest else "latest"), digest or None


def main(argv: list[str]) -> int:
    """Do the job of the request file `argv[0]`."""
    path = Path(argv[0])
    with Events.for_request(path) as events:
        try:
            pull = Pull(json.loads(path.read_text(encoding="utf-8")), events, Engine())
            events.done(True, pull.run())
        except Fault as fault:
            events.done(False, error=fault.as_error())
        except (KeyError, TypeError, ValueError) as error:
            what = f"The request of the pull, or Docker's answer, can't be used: {error!r}."
            events.done(False, error=Fault(what, where=str(path), code="request").as_error())
        except OSError as error:
            what = "The connection to Docker broke off."
            lost = Fault(what, where=SOCKET, why=str(error), code="docker-down")
            events.done(False, error=lost.as_error())
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
