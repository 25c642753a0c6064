"""Manifests of deploy/kubernetes as `kubectl apply -k` makes them: what names what, and who may talk to whom."""

import itertools
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

import bcmdist

DEPLOY = Path(bcmdist.__file__).parent.parent / "deploy" / "kubernetes"
BUILDERS = {"kustomize": ["build"], "kubectl": ["kustomize"]}
OVERLAYS = ("s3", "volume", "operator")
ROLE = "app.kubernetes.io/component"
CERT_MANAGER = "cert-manager.io/v1"

pytestmark = [
    pytest.mark.skipif(not DEPLOY.is_dir(), reason="deploy/: not beside the package"),
    pytest.mark.skipif(not any(map(shutil.which, BUILDERS)), reason="kustomize, or kubectl: not installed"),
]


@dataclass
class Pod:
    """Pods of a workload, or others that talk to them."""

    name: str
    labels: dict
    spec: dict = field(default_factory=dict)
    namespace: str = "bcmdist"
    address: str = ""
    """of a machine that is no pod"""

    @property
    def container(self):
        (one,) = self.spec["containers"]
        return one

    @property
    def ports(self):
        return {port["name"]: port["containerPort"] for port in self.container.get("ports", [])} if self.spec else {}


OUTSIDE = {
    "client": Pod("client", {}, namespace="", address="203.0.113.7"),
    "node": Pod("node", {}, namespace="", address="169.254.169.254"),
    "prometheus": Pod("prometheus", {}, namespace="monitoring"),
    "operator": Pod("operator", {}, namespace="dask-operator"),
    "names": Pod("names", {"k8s-app": "kube-dns"}, namespace="kube-system"),
    "redis": Pod("redis", {"app.kubernetes.io/name": "redis"}, namespace="redis"),
}


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request):
    """The name of an overlay, and its objects."""
    program = next(filter(shutil.which, BUILDERS))
    command = [program, *BUILDERS[program], str(DEPLOY / "overlays" / request.param)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return request.param, list(yaml.safe_load_all(built))


@pytest.fixture(scope="module")
def objects(overlay):
    return overlay[1]


def of_kind(objects, kind):
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


def pods_of(objects):
    """Pods of Deployments, and those that the operator makes of a DaskCluster."""
    pods = [
        Pod(name, one["spec"]["template"]["metadata"]["labels"], one["spec"]["template"]["spec"])
        for name, one in of_kind(objects, "Deployment").items()
    ]
    for name, one in of_kind(objects, "DaskCluster").items():
        for role in ("scheduler", "worker"):
            found = one["spec"][role]
            labels = {"dask.org/cluster-name": name, "dask.org/component": role}
            pods.append(Pod(role, found["metadata"]["labels"] | labels, found["spec"]))
    return {pod.name: pod for pod in pods}


def services_of(objects):
    """Specifications of services by name, with the one that the operator makes."""
    found = {name: one["spec"] for name, one in of_kind(objects, "Service").items()}
    made = {
        f"{name}-scheduler": one["spec"]["scheduler"]["service"]
        for name, one in of_kind(objects, "DaskCluster").items()
    }
    return found | made


@pytest.fixture(scope="module")
def pods(objects):
    return pods_of(objects)


def selects(selector, labels):
    """Whether a label selector selects."""
    by_label = all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
    assert {one["operator"] for one in selector.get("matchExpressions", [])} <= {"In"}
    return by_label and all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", []))


def environment_of(pod, objects):
    """Environment of a container, with placeholders where values are secret or of the moment."""
    maps, found = of_kind(objects, "ConfigMap"), {}
    for one in pod.container.get("envFrom", []):
        if "configMapRef" in one:
            found |= maps[one["configMapRef"]["name"]]["data"]
    for one in pod.container.get("env", []):
        secret = one.get("valueFrom", {}).get("secretKeyRef")
        found[one["name"]] = "redis://redis.redis:6379/0/rows" if secret else one.get("value", "name")
    return found | ({"DASK_WORKER_NAME": "name"} if "dask.org/component" in pod.labels else {})  # by the operator


def arguments_of(pod, objects):
    """Arguments of a container as Kubernetes expands them; a variable that nobody sets stays as it is."""
    values = environment_of(pod, objects)
    texts = pod.container["args"]
    return [re.sub(r"\$\((\w+)\)", lambda match: values.get(match[1], match[0]), text) for text in texts]


def options_of(pod, objects):
    """What the command of a container makes of its arguments."""
    from distributed.cli import dask_scheduler, dask_worker

    from bcmdist.app.cli.main import cli

    program, name, *rest = arguments_of(pod, objects)
    commands = cli.commands if program == "bcmdist" else {"worker": dask_worker.main, "scheduler": dask_scheduler.main}
    return commands[name].make_context(name, rest).params


# --- Names ---


def test_roles(overlay):
    name, objects = overlay
    with_cluster = {"scheduler", "worker"} if name != "volume" else set()
    assert pods_of(objects).keys() == {"ingest", "serve"} | with_cluster
    assert all(pod.labels[ROLE] == role for role, pod in pods_of(objects).items())


def test_every_selector_selects_pods_of_one_role(objects, pods):
    services = {name: {"matchLabels": one["selector"]} for name, one in services_of(objects).items()}
    workloads = {name: one["spec"]["selector"] for name, one in of_kind(objects, "Deployment").items()}
    budgets = {name: one["spec"]["selector"] for name, one in of_kind(objects, "PodDisruptionBudget").items()}
    for named in (services, workloads, budgets):
        for name, selector in named.items():
            (role,) = [role for role, pod in pods.items() if selects(selector, pod.labels)]
            assert name in (role, f"committee-{role}")
    for one in of_kind(objects, "NetworkPolicy").values():
        assert any(selects(one["spec"]["podSelector"], pod.labels) for pod in pods.values())


def test_services_lead_to_ports_that_commands_listen_on(objects, pods):
    for service in services_of(objects).values():
        (pod,) = [pod for pod in pods.values() if selects({"matchLabels": service["selector"]}, pod.labels)]
        for port in service["ports"]:
            assert pod.ports[port["targetPort"]] in listening(pod, objects)


def listening(pod, objects):
    """Ports that a command listens on."""
    options = options_of(pod, objects)
    if pod.name == "scheduler":
        return {int(options["port"]), int(options["dashboard_address"].rpartition(":")[2])}
    if pod.name == "worker":
        assert options["dashboard"] is False
        return {int(options["worker_port"]), int(options["nanny_port"])}
    return {options["port"] if pod.name == "serve" else int(options["metrics"].rpartition(":")[2])}


def test_declared_ports_are_those_that_commands_listen_on(objects, pods):
    for pod in pods.values():
        assert set(pod.ports.values()) == listening(pod, objects)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if asked := pod.container.get(probe, {}).get("httpGet"):
                assert asked["path"] == "/health"
                assert asked["port"] in pod.ports
    assert {name for name, pod in pods.items() if "startupProbe" not in pod.container} <= {"worker"}


def test_commands_get_what_they_need(overlay):
    name, objects = overlay
    pods = pods_of(objects)
    for pod in pods.values():
        assert "$(" not in " ".join(arguments_of(pod, objects))
    served, ingested = (options_of(pods[role], objects) for role in ("serve", "ingest"))
    assert ingested["model"].startswith(f"{served['folder']}/")
    assert ingested["watch"]
    assert served["folder"].startswith("s3://" if name != "volume" else "/srv/bcmdist/")
    if name == "volume":
        assert (ingested["workers"], ingested["scheduler"]) == (2, None)
        return
    address = ingested["scheduler"]
    service = services_of(objects)[re.fullmatch(r"tls://([\w-]+):8786", address)[1]]
    assert 8786 in [port["port"] for port in service["ports"]]
    assert options_of(pods["worker"], objects)["scheduler"] == address


def test_what_is_mounted_or_read_exists(overlay):
    name, objects = overlay
    readme = (DEPLOY / "README.md").read_text()
    secrets = dict.fromkeys(re.findall(r"secret generic ([\w-]+)", readme))
    certificates = {
        one["spec"]["secretName"]
        for one in objects
        if one["apiVersion"] == CERT_MANAGER and "secretName" in one["spec"]
    }
    made = {f"{role}-tls" for role in ("scheduler", "worker", "client", "serve")}
    assert f"for role in {' '.join(role.removesuffix('-tls') for role in sorted(made))}; do" in readme
    assert not certificates or made <= certificates
    claims, accounts = of_kind(objects, "PersistentVolumeClaim"), of_kind(objects, "ServiceAccount")
    used = set()
    for pod in pods_of(objects).values():
        assert pod.spec["serviceAccountName"] in accounts
        volumes = {one["name"]: one for one in pod.spec.get("volumes", [])}
        assert {one["name"] for one in pod.container["volumeMounts"]} == volumes.keys()
        for volume in volumes.values():
            if "secret" in volume:
                used.add(volume["secret"]["secretName"])
            elif "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in claims
            else:
                assert volume["emptyDir"]["sizeLimit"]
        for one in pod.container.get("env", []):
            if secret := one.get("valueFrom", {}).get("secretKeyRef"):
                assert f"--from-literal={secret['key']}=" in readme
                used.add(secret["name"])
        used |= {one["secretRef"]["name"] for one in pod.container.get("envFrom", []) if "secretRef" in one}
        paths = [text.partition("=")[2] for text in arguments_of(pod, objects) if text.startswith("--")]
        paths += [value for key, value in environment_of(pod, objects).items() if "TLS" in key]
        mounts = tuple(f"{one['mountPath']}/" for one in pod.container["volumeMounts"])
        assert all(f"{path}/".startswith(mounts) for path in paths if path.startswith("/"))
    assert used <= secrets.keys() | made
    assert name == "volume" or made <= used  # each role has a certificate of its own


def test_autoscalers_and_budgets(overlay):
    name, objects = overlay
    scalers, budgets = of_kind(objects, "HorizontalPodAutoscaler"), of_kind(objects, "PodDisruptionBudget")
    serve = of_kind(objects, "Deployment")["serve"]["spec"]
    if name == "volume":
        assert (scalers, budgets, serve["replicas"], serve["strategy"]) == ({}, {}, 1, {"type": "Recreate"})
        return
    (scaler,) = scalers.values()
    assert scaler["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "serve"}
    assert "replicas" not in serve  # two would say how many
    assert scaler["spec"]["minReplicas"] >= 2 > budgets["serve"]["spec"]["maxUnavailable"]
    assert serve["strategy"]["type"] == "RollingUpdate"
    for one in of_kind(objects, "DaskAutoscaler").values():
        assert one["spec"]["cluster"] in of_kind(objects, "DaskCluster")


def test_pods_are_restricted(objects, pods):
    """The level `restricted` of Pod Security Standards, which the namespace asks for, and a root that is read only."""
    (namespace,) = of_kind(objects, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod in pods.values():
        assert pod.spec["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 1000}.items()
        assert pod.spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod.spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys()
        assert pod.container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        resources = pod.container["resources"]
        assert resources["limits"].keys() == resources["requests"].keys() == {"cpu", "memory"}


def test_images_are_pinned(pods):
    for pod in pods.values():
        assert re.fullmatch(
            rf"[\w./-]+(:{re.escape(bcmdist.__version__)}|@sha256:[0-9a-f]{{64}})", pod.container["image"]
        )


# --- Who may talk to whom ---


def matches(peer, pod):
    """Whether a peer of a rule is a pod, for policies of the namespace bcmdist."""
    if "ipBlock" in peer:
        assert (peer["ipBlock"]["cidr"], peer["ipBlock"]["except"]) == ("0.0.0.0/0", ["169.254.0.0/16"])
        return bool(pod.address) and not pod.address.startswith("169.254.")
    if pod.address:
        return False
    names = peer.get("namespaceSelector")
    there = (
        pod.namespace == "bcmdist" if names is None else selects(names, {"kubernetes.io/metadata.name": pod.namespace})
    )
    return there and selects(peer.get("podSelector", {}), pod.labels)


def may(policies, direction, pod, other, port, ports):
    """Whether policies let a pod of ours through in a direction, to or from another, at a port of the receiver."""
    peers = {"Ingress": "from", "Egress": "to"}[direction]
    here = [one["spec"] for one in policies if selects(one["spec"]["podSelector"], pod.labels)]
    here = [one for one in here if direction in one["policyTypes"]]
    assert here, "nothing is allowed by default"
    for rule in itertools.chain.from_iterable(one.get(direction.lower(), []) for one in here):
        at = {ports.get(one["port"], one["port"]) for one in rule["ports"]}  # a name, or a number
        if port in at and (peers not in rule or any(matches(peer, other) for peer in rule[peers])):
            return True
    return False


def allowed(objects):
    """Triples of sender, receiver and port that policies let through."""
    pods, policies = pods_of(objects), list(of_kind(objects, "NetworkPolicy").values())
    outer = {
        "names": [53],
        "redis": [6379, 22],
        "client": [443, 80],
        "node": [80, 443],
        "prometheus": [],
        "operator": [],
    }
    receivers = {role: list(pod.ports.values()) for role, pod in pods.items()} | outer
    everybody = pods | OUTSIDE
    found = set()
    for sender, receiver in itertools.product(everybody, repeat=2):
        for port in receivers[receiver] if {sender, receiver} & pods.keys() else []:
            a, b = everybody[sender], everybody[receiver]
            out = sender not in pods or may(policies, "Egress", a, b, port, b.ports)
            if out and (receiver not in pods or may(policies, "Ingress", b, a, port, b.ports)):
                found.add((sender, receiver, port))
    return found


CLUSTER = {
    ("worker", "scheduler", 8786),
    ("ingest", "scheduler", 8786),
    ("scheduler", "scheduler", 8786),  # coordinators of jobs
    ("scheduler", "worker", 8788),
    ("scheduler", "worker", 8789),
    ("worker", "worker", 8788),
}


def test_what_command_lines_need_is_allowed_and_nothing_else(overlay):
    name, objects = overlay
    roles = pods_of(objects).keys()
    needed = {(role, "names", 53) for role in roles}
    needed |= {(other, "serve", 8443) for other in OUTSIDE.keys() - {"names", "redis"}}
    needed |= {("ingest", "redis", 6379), ("prometheus", "ingest", 9100)}
    if name != "volume":
        needed |= CLUSTER | {(role, "client", 443) for role in roles}  # the object store
    if name == "operator":
        needed |= {("operator", "scheduler", 8787)}
    found = {one for one in allowed(objects) if one[0] not in ("names", "redis")}  # they only answer
    assert found == needed


def test_a_named_port_is_one_of_the_receiver(objects, pods):
    names = set().union(*(pod.ports for pod in pods.values()))
    for one in of_kind(objects, "NetworkPolicy").values():
        for rule in (*one["spec"].get("ingress", []), *one["spec"].get("egress", [])):
            assert {port["port"] for port in rule["ports"] if isinstance(port["port"], str)} <= names
