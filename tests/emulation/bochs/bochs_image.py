"""A CD that boots a kernel with a few programs in memory, and what these programs need.

Guarantee: a program comes with every library that the loader would find here, and a Python with every module that a
rehearsal here imported; what a guest misses is an error there, with the file's name.
Assumption: the host's libraries run under the kernel and on the CPU of the guest.
"""

from __future__ import annotations

import json
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# Each is needed. Bochs has no HPET and no TSC-deadline timer that this kernel accepts, and does not boot with the
# kernel's copies for CPUs with fast short strings. `idle=halt`: while one CPU of Bochs idles in MWAIT, as kernels do on
# Intel, UMWAIT on the other comes back for nothing after a thousand ticks. The last two lines only save time: checks of
# the TSC between CPUs, self-tests, and initialisations of what no test uses.
ARGUMENTS = (
    "console=ttyS0 quiet loglevel=4 rdinit=/init panic=-1 idle=halt "
    "hpet=disable clearcpuid=fsrm lapic=notscdeadline tsc_early_khz=10000 nowatchdog "
    "mitigations=off nokaslr random.trust_cpu=on audit=0 lsm=none apparmor=0 "
    "tsc=reliable cryptomgr.notests "
    "initcall_blacklist=evm_init,init_evm,cubictcp_register,init_kprobe_trace"
)
ISOLINUX_CONFIGURATION = """\
DEFAULT linux
PROMPT 0
TIMEOUT 0
LABEL linux
KERNEL /vmlinuz
APPEND initrd=/initrd {arguments}
"""
BOOT_FILES = ("/usr/lib/ISOLINUX/isolinux.bin", "/usr/lib/syslinux/modules/bios/ldlinux.c32")
PYTHON_HOME = Path("python")

# Runs the program whose path and arguments follow, and then lists the files that it was made of. Where there is no ssl,
# asyncio does without, and a guest need not load its libraries.
REHEARSAL = """
import json, runpy, sys
sys.modules["ssl"] = None
listing = sys.argv[1]
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
modules = {
    name: module.__spec__.origin
    for name, module in sys.modules.items()
    if getattr(module, "__spec__", None) is not None and module.__spec__.has_location
}
packages = [name for name in modules if hasattr(sys.modules[name], "__path__")]
json.dump([modules, packages], open(listing, "w"))
"""


class Root:
    """The root folder of a guest, in the making."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def add(self, source: Path, target: str) -> None:
        """Copy a file there, unless it is there already."""
        path = self.folder / target.lstrip("/")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)

    def add_program(self, source: Path, target: str) -> None:
        """Copy a program or extension there, and its libraries to where they are here, without debug symbols."""
        self.add(source, target)
        self._strip(target)
        listing = subprocess.run(["ldd", source], capture_output=True, text=True, check=True).stdout
        if "not found" in listing:
            raise SystemExit(f"bochs: {source} lacks a library:\n{listing}")
        for library in re.findall(r"(/\S+) \(0x", listing):
            self.add(Path(library), library)
            self._strip(library)

    def _strip(self, target: str) -> None:
        subprocess.run(["strip", "--strip-debug", self.folder / target.lstrip("/")], check=True)

    def add_python(self, program: Path, arguments: Sequence[str]) -> None:
        """Copy this Python, a program for it, and the modules that the program imports when it is run here.

        Modules go compiled, into one folder: compiling the standard library takes an emulated CPU minutes.
        """
        modules, packages = rehearse(program, arguments)
        home = self.folder / PYTHON_HOME
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        library = home / "lib" / version
        library.mkdir(parents=True)
        for name, origin in modules.items():
            place = name.replace(".", "/") + ("/__init__" if name in packages else "")
            if origin.endswith(".py"):
                (library / place).parent.mkdir(parents=True, exist_ok=True)
                py_compile.compile(origin, str(library / f"{place}.pyc"), doraise=True)
            else:
                self.add_program(Path(origin), f"/{PYTHON_HOME}/lib/{version}/{place}.so")
        self.add_program(Path(sys.executable).resolve(), f"/{PYTHON_HOME}/bin/python")
        py_compile.compile(str(program), str(home / "program.pyc"), doraise=True)

    def seal(self, image: Path) -> None:
        """Pack the folder as the kernel wants it."""
        names = b"\0".join(os.fsencode(path.relative_to(self.folder)) for path in sorted(self.folder.rglob("*")))
        packing = 'cpio -0 -o -H newc -R 0:0 --quiet | lz4 -l -9 -q > "$0"'
        subprocess.run(["sh", "-c", packing, image], cwd=self.folder, input=names, check=True)


def rehearse(program: Path, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Run it here. Returns where each module came from, and which are packages."""
    with tempfile.NamedTemporaryFile() as listing:
        # Frozen modules have no files, and another Python's frozen ones are not trusted to be the same.
        command: list[str | Path] = [
            sys.executable,
            "-X",
            "frozen_modules=off",
            "-c",
            REHEARSAL,
            listing.name,
            program,
            *arguments,
        ]
        # Not from a checkout, whose sources would come before what is installed.
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60, cwd="/")
        modules, packages = json.load(listing)
    return modules, packages


def press(root: Root, kernel: Path, target: Path) -> None:
    """Make the CD."""
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        boot = Path(work) / "isolinux"
        boot.mkdir()
        for path in BOOT_FILES:
            shutil.copy(path, boot)
        shutil.copy(kernel, Path(work) / "vmlinuz")
        root.seal(Path(work) / "initrd")
        (boot / "isolinux.cfg").write_text(ISOLINUX_CONFIGURATION.format(arguments=ARGUMENTS))
        command: list[str | Path] = ["xorriso", "-as", "mkisofs", "-quiet", "-o", target, "-b", "isolinux/isolinux.bin"]
        command += ["-c", "isolinux/boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", work]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"bochs: xorriso failed:\n{done.stderr}")
