"""A cluster of two nodes on this machine, and the models that its replicas serve."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from unit.serving.models import counter, scaled

ray = pytest.importorskip("ray", reason="Ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")

FUNCTIONS = 'preprocess = "served_places:slowly"\npostprocess = "served_places:place"\n'


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Two nodes, of which each has room for one replica."""
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    )
    node = {"num_cpus": 1, "object_store_memory": 100 << 20}
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={**node, "include_dashboard": False}
    )
    made.add_node(**node)
    ray.init(address=made.address, log_to_driver=False)
    yield made.address
    from ray import serve

    serve.shutdown()
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    scaled(root / "double" / "1" / "model.onnx", 2.0)
    (root / "double" / "model.toml").write_text(FUNCTIONS)
    scaled(root / "triple" / "1" / "model.onnx", 3.0)
    counter(root / "counter" / "1" / "model.onnx")
    generate = "[generate]\nfeed = {}\nsteps = 3\n"
    (root / "triple" / "model.toml").write_text(generate)
    return root
