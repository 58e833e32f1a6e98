"""Power meters of a /sys that is laid out: which is taken, how it is read, and why there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import Lab

from aiospin.doctor.meters import Meter, find_meter

RAPL = "sys/class/powercap"
HWMON = "sys/class/hwmon"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def zone(lab: Lab, zone: str, name: str, energy: object = 0, wraps_at: object = 262143328850) -> None:
    lab.write(f"{RAPL}/{zone}/name", name)
    lab.write(f"{RAPL}/{zone}/energy_uj", energy)
    lab.write(f"{RAPL}/{zone}/max_energy_range_uj", wraps_at)


def sensor(lab: Lab, number: int, name: str, **files: object) -> None:
    lab.write(f"{HWMON}/hwmon{number}/name", name)
    for file, value in files.items():
        lab.write(f"{HWMON}/hwmon{number}/{file}", value)


def found(lab: Lab) -> Meter:
    meter, name = find_meter(lab)
    assert meter is not None, name
    assert name == meter.name
    return meter


def test_packages_are_added_and_what_is_inside_them_is_not(lab: Lab) -> None:
    zone(lab, "intel-rapl:0", "package-0", 1_000_000)
    zone(lab, "intel-rapl:0:0", "core", 7)
    zone(lab, "intel-rapl:1", "package-1", 5_000_000)
    zone(lab, "intel-rapl:2", "psys", 9)
    zone(lab, "intel-rapl-mmio:0", "package-0", 9)
    lab.write(f"{RAPL}/dtpm/energy_uj", 9)
    meter = found(lab)
    assert meter.name == "RAPL (package-0, package-1)"
    meter.begin()
    lab.write(f"{RAPL}/intel-rapl:0/energy_uj", 41_000_000)
    meter.look()
    lab.write(f"{RAPL}/intel-rapl:1/energy_uj", 25_000_000)
    assert meter.watts(2.0) == pytest.approx(30)


def test_a_counter_that_wraps_goes_on(lab: Lab) -> None:
    zone(lab, "intel-rapl:0", "package-0", 95_000_000, wraps_at=100_000_000)
    meter = found(lab)
    meter.begin()
    lab.write(f"{RAPL}/intel-rapl:0/energy_uj", 5_000_000)
    assert meter.watts(1.0) == pytest.approx(10)


def test_a_counter_that_wraps_nobody_knows_where_says_nothing(lab: Lab) -> None:
    zone(lab, "intel-rapl:0", "package-0", 95, wraps_at="unknown")
    meter = found(lab)
    meter.begin()
    lab.write(f"{RAPL}/intel-rapl:0/energy_uj", 5)
    assert meter.watts(1.0) is None


def test_what_stands_for_the_package_where_there_is_none(lab: Lab) -> None:
    zone(lab, "intel-rapl-mmio:0", "package-0")
    assert found(lab).name == "RAPL (package-0)"
    zone(lab, "intel-rapl:0", "psys")
    assert found(lab).name == "RAPL (psys)"


def test_a_meter_that_goes_away_says_nothing(lab: Lab) -> None:
    zone(lab, "intel-rapl:0", "package-0", 1)
    meter = found(lab)
    meter.begin()
    lab.remove(f"{RAPL}/intel-rapl:0/energy_uj")
    assert meter.watts(1.0) is None


def test_rapl_that_may_not_be_read_is_named_or_replaced(lab: Lab) -> None:
    zone(lab, "intel-rapl:0", "package-0", "unreadable")
    assert find_meter(lab) == (None, f"/{RAPL}/intel-rapl:0/energy_uj holds no number")
    sensor(lab, 0, "power_meter", power1_input=5)
    assert found(lab).name == "power_meter (power1_input)"


def test_sockets_of_amd_energy_have_their_cores_in_them(lab: Lab) -> None:
    sensor(lab, 0, "amd_energy", energy1_input=10, energy1_label="Ecore000", energy2_input=0, energy2_label="Esocket0")
    meter = found(lab)
    assert meter.name == "amd_energy (Esocket0)"
    meter.begin()
    lab.write(f"{HWMON}/hwmon0/energy2_input", 6_000_000)
    assert meter.watts(0.5) == pytest.approx(12)


def test_power_is_the_mean_of_what_was_seen(lab: Lab) -> None:
    sensor(lab, 3, "zenpower", power1_input=9_000_000, power1_label="Core", power2_input=1_000_000, power2_label="SoC")
    sensor(lab, 0, "board", power1_input=1)
    meter = found(lab)
    assert meter.name == "zenpower (Core, SoC)"
    for _ in range(2):  # the second time begins anew
        lab.write(f"{HWMON}/hwmon3/power1_input", 9_000_000)
        meter.begin()
        lab.write(f"{HWMON}/hwmon3/power1_input", 19_000_000)
        meter.look()
        lab.write(f"{HWMON}/hwmon3/power1_input", 29_000_000)
        assert meter.watts(1.0) == pytest.approx(20)
    lab.remove(f"{HWMON}/hwmon3/power2_input")
    meter.look()
    lab.write(f"{HWMON}/hwmon3/power2_input", 0)
    assert meter.watts(1.0) is None


def test_other_things_that_have_meters_are_no_cpus(lab: Lab) -> None:
    sensor(lab, 0, "amdgpu", power1_input=5)
    sensor(lab, 1, "coretemp", temp1_input=5)
    assert find_meter(lab) == (None, f"neither /{RAPL} nor /{HWMON} has one")
    sensor(lab, 2, "zenpower", power1_input="no data")
    assert find_meter(lab) == (None, f"/{HWMON}/hwmon2/power1_input holds no number")
