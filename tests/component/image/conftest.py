"""The image as `make image` builds it, in a real docker engine."""

import os
from collections.abc import Iterator

import pytest

from realparts import debian, docker, images, required

TAG = "toolcrib:test"


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.Engine]:
    """A docker engine with the image built from the tree as it is now."""
    try:
        if docker.running() is None:
            if os.geteuid() != 0:
                raise docker.DockerError("no docker engine answers, and starting one takes root")
            debian.require(*debian.DOCKER)
    except (docker.DockerError, debian.MissingPackagesError) as error:
        required.absent(error)
    with docker.engine() as found:
        images.make_toolcrib(found, TAG)
        yield found
