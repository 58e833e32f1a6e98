"""Boot a Debian arm64 kernel under QEMU with one program, and judge what that says on the serial port.

Guarantee: a boot that ends early, hangs or says something else raises SystemExit with all that it said. Hwcaps are the
kernel's own here: under user-mode emulation they are QEMU's inventions.
Assumption: arm64_fetch.everything() and arm64_cross.init() have run. QEMU's WFE and WFET return at once.
"""

from __future__ import annotations

import gzip
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arm64_places import EMULATOR, INIT, KERNEL, MADE
from arm64_user import emulator

PATIENCE = 180.0  # seconds, of which a boot takes a handful


@dataclass(frozen=True)
class Boot:
    """A machine and what must be said on it, line by line."""

    cpu: str
    arguments: str
    says: Sequence[str]

    @property
    def name(self) -> str:
        return f"{self.cpu.partition(',')[0]} {self.arguments}".strip()


NO_WFXT, NO_SB = "the kernel reports no WFXT", "the kernel reports no SB"
NO_STREAM = "the kernel reports no event stream (EVTSTRM), and nothing else would end it in time"
ALWAYS = ("RUNG isb: usable", "RUNG yield: usable", "WAIT isb: woken, and ended in time", "TRIAL isb: usable")

BOOTS = (
    Boot(
        "max,pauth-impdef=on",
        "",
        [
            "FEATURES evtstrm=1 wfxt=1 sb=1",
            *("RUNG wfet: usable", "RUNG wfe: usable", "RUNG sb: usable"),
            *(f"WAIT {rung}: woken, and ended in time" for rung in ("wfet", "wfe", "sb", "yield")),
            "END wfet",
        ],
    ),
    # A core of 2015: without WFET and SB, which are undefined instructions there. The trial finds that out, too.
    Boot(
        "cortex-a72",
        "",
        [
            "FEATURES evtstrm=1 wfxt=0 sb=0",
            *(f"RUNG wfet: {NO_WFXT}", "RUNG wfe: usable", f"RUNG sb: {NO_SB}"),
            *("TRIAL wfet: it raised SIGILL", "TRIAL wfe: usable", "TRIAL sb: it raised SIGILL"),
            "WAIT wfe: woken, and ended in time",
            "END wfe",
        ],
    ),
    # Whoever turns the event stream off leaves WFE without an end: it is not used.
    Boot(
        "max,pauth-impdef=on",
        "clocksource.arm_arch_timer.evtstrm=0",
        ["FEATURES evtstrm=0 wfxt=1 sb=1", "RUNG wfet: usable", f"RUNG wfe: {NO_STREAM}", "END wfet"],
    ),
    Boot(
        "cortex-a72",
        "clocksource.arm_arch_timer.evtstrm=0",
        [f"RUNG wfet: {NO_WFXT}", f"RUNG wfe: {NO_STREAM}", f"RUNG sb: {NO_SB}", "END isb"],
    ),
)


def entry(number: int, name: str, mode: int, content: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """One file of an archive in the format of cpio that kernels unpack (newc)."""
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0]
    head = b"070701" + "".join(f"{field:08X}" for field in fields).encode() + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


def initramfs() -> Path:
    """Pack a file system with the program and a console."""
    path = MADE / "initramfs"
    path.write_bytes(
        gzip.compress(
            entry(1, "dev", stat.S_IFDIR | 0o755)
            + entry(2, "dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
            + entry(3, "init", stat.S_IFREG | 0o755, INIT.read_bytes())
            + entry(0, "TRAILER!!!", 0),
            compresslevel=1,
        )
    )
    return path


def said_by(boot: Boot, archive: Path) -> str:
    """Boot, and return what came over the serial port."""
    kernel = next(KERNEL.glob("boot/vmlinuz-*"))
    command = emulator("qemu-system-aarch64", "-L", str(EMULATOR / "usr/share/qemu"), "-cpu", boot.cpu)
    command += ["-M", "virt,gic-version=3", "-smp", "2", "-m", "512", "-accel", "tcg,thread=multi"]
    command += ["-nographic", "-nodefaults", "-serial", "stdio", "-net", "none", "-no-reboot"]
    command += ["-kernel", str(kernel), "-initrd", str(archive)]
    command += ["-append", f"console=ttyAMA0 quiet loglevel=3 panic=-1 rdinit=/init {boot.arguments}"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode(errors="replace")
    return (done.stdout + done.stderr).decode(errors="replace")


def judge(boot: Boot, said: str) -> list[str]:
    """Return what is missing of what must be said; the last line must be the last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    wanted = [*ALWAYS, *boot.says]
    missing = [line for line in wanted if not any(heard == line or heard.startswith(f"{line} ") for heard in lines)]
    told = [line for line in lines if line.split()[0] in {"FEATURES", "TRIAL", "RUNG", "WAIT", "END"}]
    if not told or told[-1] != boot.says[-1]:
        missing.append(f"{boot.says[-1]}, as the last")
    return missing


def check(boots: Sequence[Boot]) -> None:
    """Boot each; raises SystemExit for the first that does not say what it must."""
    archive = initramfs()
    for boot in boots:
        said = said_by(boot, archive)
        if missing := judge(boot, said):
            raise SystemExit(f"arm64: on {boot.name} nothing said {missing}, but:\n{said}")
        print(f"arm64: {boot.name}: {len(boot.says) + len(ALWAYS)} facts, {boot.says[-1]}", flush=True)
