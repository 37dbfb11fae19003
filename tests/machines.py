"""Machines with addresses of their own: one network namespace each, joined by a bridge, links that are cut and healed."""

from __future__ import annotations

import os
import subprocess


def ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run iproute2's ip."""
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=check)


class Machines:
    """Namespaces with one address each on a common bridge."""

    def __init__(self, count: int) -> None:
        self.count = count
        # names of interfaces are short; two runs at once must not meet
        self.mark = f"dm{os.getpid() % 100_000}"
        self.subnet = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}"

    def name(self, node: int) -> str:
        return f"{self.mark}-{node}"

    def address(self, node: int) -> str:
        return f"{self.subnet}.{10 + node}"

    def up(self) -> None:
        """Make them; raises CalledProcessError where that is not permitted."""
        ip("link", "add", f"{self.mark}b", "type", "bridge")
        ip("link", "set", f"{self.mark}b", "up")
        for node in range(self.count):
            space, outer = self.name(node), f"{self.mark}v{node}"
            ip("netns", "add", space)
            ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", outer, "master", f"{self.mark}b", "up")
            ip("-n", space, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def cut(self, node: int) -> None:
        """Take the node's cable out."""
        ip("link", "set", f"{self.mark}v{node}", "down")

    def heal(self, node: int) -> None:
        """Put it in again."""
        ip("link", "set", f"{self.mark}v{node}", "up")

    def cut_link(self, one: int, other: int) -> None:
        """Nothing goes between two of them any more."""
        for here, there in ((one, other), (other, one)):
            ip("-n", self.name(here), "route", "add", "blackhole", self.address(there), check=False)

    def heal_link(self, one: int, other: int) -> None:
        """Undo ``cut_link``."""
        for here, there in ((one, other), (other, one)):
            ip("-n", self.name(here), "route", "del", "blackhole", self.address(there), check=False)

    def down(self) -> None:
        """Remove everything."""
        for node in range(self.count):
            ip("netns", "del", self.name(node), check=False)
            ip("link", "del", f"{self.mark}v{node}", check=False)
        ip("link", "del", f"{self.mark}b", check=False)
