"""Many machines: models in the replicas of a Ray Serve deployment, behind the same protocol.

Wants the extra ``aioinfer[ray]``; nothing here imports ray before it is deployed.
"""

from .deployment import deploy, undeploy
from .options import RayOptions
from .remote import RemoteInference, RemoteRepository
from .replica import ReplicaSpec

__all__ = ["RayOptions", "RemoteInference", "RemoteRepository", "ReplicaSpec", "deploy", "undeploy"]
