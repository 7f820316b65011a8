import json

import pytest

from hostagent.drivers.libvirt.capabilities import read_capabilities
from hostagent.drivers.protocol import DriverError

SOFTWARE = """
<capabilities>
  <host>
    <cpu><arch>x86_64</arch><model>EPYC</model><vendor>AMD</vendor>
      <topology sockets='1' dies='1' cores='2' threads='1'/><feature name='sse4a'/><feature name='abm'/></cpu>
  </host>
  <guest><os_type>hvm</os_type><arch name='i686'><domain type='kvm'/></arch></guest>
  <guest><os_type>hvm</os_type><arch name='x86_64'><domain type='qemu'/></arch></guest>
</capabilities>
"""
ACCELERATED = SOFTWARE.replace("<domain type='qemu'/>", "<domain type='qemu'/><domain type='kvm'/>")


def test_kvm_is_chosen_only_where_libvirt_reports_it_for_the_hosts_architecture() -> None:
    assert read_capabilities(SOFTWARE, "auto").virt_type == "qemu"
    assert read_capabilities(ACCELERATED, "auto").virt_type == "kvm"


def test_an_operator_may_ask_for_software_where_there_is_kvm() -> None:
    assert read_capabilities(ACCELERATED, "qemu").virt_type == "qemu"


def test_kvm_that_is_not_there_is_refused() -> None:
    with pytest.raises(DriverError, match="no kvm guests"):
        read_capabilities(SOFTWARE, "kvm")


def test_the_processor_is_told_as_nova_tells_it() -> None:
    assert json.loads(read_capabilities(SOFTWARE, "auto").cpu_info) == {
        "arch": "x86_64",
        "model": "EPYC",
        "vendor": "AMD",
        "topology": {"sockets": 1, "dies": 1, "cores": 2, "threads": 1},
        "features": ["abm", "sse4a"],
    }
