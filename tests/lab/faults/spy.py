"""Looking on a host for a secret that must not be there."""

from __future__ import annotations

from tests.lab.faults.kit import ROOT, Box
from tests.lab.waiting import eventually

SPYING = "/run/lab-spy"

SPY = f"""
while [ ! -e {SPYING}/stop ]; do
  grep -a -l -F -f {SPYING}/secret /proc/[0-9]*/cmdline /proc/[0-9]*/environ
  docker ps -q | xargs -r docker inspect | grep -F -f {SPYING}/secret
  sleep 0.05
done > {SPYING}/found 2>/dev/null
"""


class Spy:
    """Looks on a host for a secret: in every process all the time, at the end in journal and files.

    The secret itself reaches the host in a file that only root may read.
    """

    def __init__(self, box: Box, secret: str) -> None:
        self._box, self._secret = box, secret
        self.found = ""
        """Where it was seen."""

    def __enter__(self) -> Spy:
        box = self._box
        box.sh(f"rm -rf {SPYING}; install -d -m 700 {SPYING}")
        box.write(f"{SPYING}/secret", f"{self._secret}\n")
        box.write(f"{SPYING}/spy.sh", SPY)
        box.sh(f"systemd-run --quiet --collect --unit=lab-spy sh {SPYING}/spy.sh")
        self._since = box.sh("date +%s").strip()
        return self

    def __exit__(self, *error: object) -> None:
        box, pattern = self._box, f"-F -f {SPYING}/secret"
        box.sh(f"touch {SPYING}/stop")
        eventually(lambda: "inactive" in box.sh("systemctl is-active lab-spy || true"), 10, "quiet")
        self.found = box.sh(
            f"cat {SPYING}/found; journalctl --no-pager --since=@{self._since} | grep {pattern};"
            f"docker ps -aq | xargs -r -n1 docker logs 2>&1 | grep {pattern};"
            f"grep -r -l {pattern} /tmp /var/tmp /home /opt /etc /run/sparkfleet {ROOT}; true"
        )
        box.sh(f"rm -rf {SPYING}")
