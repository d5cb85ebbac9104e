"""What pyproject.toml cannot say: a free-threaded interpreter gets an extension of its own.

Such interpreters have no stable ABI (from 3.15 on, another one), for which pip would refuse to
build at all. The extension does not say that it runs without the GIL, so Python turns that on, and
tells so, when the device CPU starts: the runtime's threads have not been tested without.
"""

import sysconfig

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HAS_STABLE_ABI = not sysconfig.get_config_var("Py_GIL_DISABLED")


class BuildExtension(build_ext):
    """Name the extension by the ABI that it is built for."""

    def finalize_options(self) -> None:
        super().finalize_options()
        for extension in self.extensions:
            extension.py_limited_api = HAS_STABLE_ABI


class BuildWheel(bdist_wheel):
    """Give the wheel the tag of its extension: cp311-abi3, or that of the interpreter alone."""

    def finalize_options(self) -> None:
        self.py_limited_api = "cp311" if HAS_STABLE_ABI else False
        super().finalize_options()


setup(cmdclass={"bdist_wheel": BuildWheel, "build_ext": BuildExtension})
