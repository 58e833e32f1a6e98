"""One boot on Bochs: a PC of two CPUs, whose serial port is a file.

Guarantee: ends within `patience` seconds, with all that the guest printed; a machine that has hung or crashed is ended.
Assumption: Bochs runs with the loader and the libraries that it was unpacked with, so the host's do not matter.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

# The TSC counts ten million ticks to a guest's second; with `sync=none` they are instructions, whatever the host does.
TICKS_PER_SECOND = 10_000_000
CONFIGURATION = """\
megs: {megabytes}
romimage: file={share}/BIOS-bochs-latest
vgaromimage: file={share}/VGABIOS-lgpl-latest
cpu: model={model}, count=2, ips={ticks}, reset_on_triple_fault=0
ata0-master: type=cdrom, path={cd}, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=serial.txt
display_library: term
log: bochs.log
panic: action=fatal
error: action=ignore
info: action=ignore
debug: action=ignore
clock: sync=none, time0=utc
sound: driver=dummy
speaker: enabled=0
"""
LAST_WORDS = "EMU-END"
GRACE = 30.0  # seconds for a machine to go that was told to


@dataclass(frozen=True)
class Boot:
    """What came of it."""

    model: str
    serial: str
    seconds: float
    log: str

    @property
    def verdict(self) -> str | None:
        """What the guest's last line says; None without one."""
        for line in self.serial.splitlines():
            if line.startswith(LAST_WORDS):
                return line.removeprefix(LAST_WORDS).strip()
        return None


def boot(bochs: Path, cd: Path, model: str, folder: Path, megabytes: int, patience: float) -> Boot:
    """Boot the CD on two CPUs of that model, with `folder` for its files, and wait until the machine is off."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "serial.txt").write_text("")
    share = bochs / "usr/share/bochs"
    configuration = CONFIGURATION.format(megabytes=megabytes, share=share, model=model, ticks=TICKS_PER_SECOND, cd=cd)
    (folder / "bochsrc").write_text(configuration)
    (folder / "continue").write_text("c\n")  # a Bochs built with its debugger asks what to do

    libraries = bochs / "usr/lib/x86_64-linux-gnu"
    plugins = libraries / "bochs/plugins"
    command = [str(libraries / "ld-linux-x86-64.so.2")]
    command += ["--library-path", f"{libraries}:{libraries}/pulseaudio:{plugins}", str(bochs / "usr/bin/bochs-bin")]
    command += ["-q", "-f", "bochsrc", "-rc", "continue"]
    # Bochs draws the screen on a terminal and does not start without one; script(1) is one.
    bounded = f"exec timeout -k 5 {patience:.0f} {shlex.join(command)}"
    on_terminal = ["script", "-qfec", f"stty rows 30 cols 90; {bounded}", "/dev/null"]
    environment = {**os.environ, "BXSHARE": str(share), "LTDL_LIBRARY_PATH": str(plugins), "TERM": "xterm"}

    begun = time.monotonic()
    with (folder / "screen.txt").open("w") as screen:
        machine = subprocess.Popen(
            on_terminal,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=screen,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            machine.wait(patience + GRACE)
        finally:
            if machine.poll() is None:  # Ctrl-C; script passes it on
                machine.send_signal(signal.SIGTERM)
                machine.wait()
    serial = (folder / "serial.txt").read_text(errors="replace").replace("\r", "")
    log = (folder / "bochs.log").read_text(errors="replace") if (folder / "bochs.log").exists() else ""
    return Boot(model, serial, time.monotonic() - begun, log)
