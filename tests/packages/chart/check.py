"""Checks what runs the agent on Kubernetes: the chart, rendered for several values, and the static pod.

    check.py RENDER FOLDER PORT     by the interpreter of a venv with kubernetes-validate

It prints what the chart makes of values by which the agent can be played: the pod, and its configuration.

Each object must be valid by the schemas of Kubernetes, without an unknown field, and the chart must be what NVIDIA's DPF expects of the chart
of a service ("DPUService Chart Development Guidelines" of doca-platform).
"""

import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

# The oldest that the package knows, and the newest.
VERSIONS = ("1.25", "1.37")
DPF = {
    "serviceID": "offload",
    "serviceDaemonSet": {
        "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "dpu", "operator": "Exists"}]}]},
        "labels": {"a-label": "of-the-dpf", "svc.dpu.nvidia.com/service": "offload"},
        "annotations": {"k8s.v1.cni.cncf.io/networks": "mybrsfc"},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
    },
    "imagePullSecrets": [{"name": "a-secret"}],
    "rdmaResource": "rdma/hca_shared_devices_a",
}
CAPABILITIES = {"NET_ADMIN", "NET_RAW", "IPC_LOCK"}


def valid(thing):
    for version in VERSIONS:
        kubernetes_validate.validate(thing, version, strict=True)


def refused(thing):
    try:
        valid(thing)
    except kubernetes_validate.ValidationError:
        return True
    return False


def rendered(render, chart, release, values):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values, file)
        file.flush()
        text = subprocess.run([render, chart, release, file.name], check=True, capture_output=True, text=True).stdout
    things = [thing for thing in yaml.safe_load_all(text) if thing]
    for thing in things:
        valid(thing)
        assert release in thing["metadata"]["name"], "two releases in one namespace are in each other's way"
    sets = [thing for thing in things if thing["kind"] == "DaemonSet"]
    configs = [thing for thing in things if thing["kind"] == "ConfigMap"]
    assert len(sets) == 1 and len(configs) == 1 and len(things) == 2, [thing["kind"] for thing in things]
    return sets[0], configs[0]


def is_least(pod):
    """What the pod may do: what the agent needs and no more."""
    assert "privileged" not in json.dumps(pod)
    assert pod["hostNetwork"] and not pod.get("hostPID") and not pod.get("hostIPC")
    assert pod["automountServiceAccountToken"] is False
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": security["capabilities"]["add"]}
    assert set(security["capabilities"]["add"]) == CAPABILITIES
    assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
    return container


def main(render, folder):
    chart = str(folder / "chart")
    plain, _ = rendered(render, chart, "plain", {})
    own = is_least(plain["spec"]["template"]["spec"])
    assert "affinity" not in plain["spec"]["template"]["spec"] and "updateStrategy" not in plain["spec"]

    of_dpf, _ = rendered(render, chart, "of-dpf", DPF)
    given, pod = DPF["serviceDaemonSet"], of_dpf["spec"]["template"]
    assert of_dpf["spec"]["updateStrategy"] == given["updateStrategy"]
    assert pod["metadata"]["labels"].items() >= given["labels"].items()
    assert pod["metadata"]["labels"].items() >= of_dpf["spec"]["selector"]["matchLabels"].items()
    assert pod["metadata"]["annotations"].items() >= given["annotations"].items()
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity == given["nodeSelector"]
    assert pod["spec"]["imagePullSecrets"] == DPF["imagePullSecrets"]
    assert is_least(pod["spec"])["resources"]["limits"] == {"memory": "512Mi", DPF["rdmaResource"]: 1}
    by_id, _ = rendered(render, chart, "by-id", {"serviceID": "offload"})
    assert by_id["spec"]["template"]["metadata"]["labels"]["svc.dpu.nvidia.com/service"] == "offload"
    annotations = yaml.safe_load((folder / "chart/Chart.yaml").read_text())["annotations"]
    assert "dpu.nvidia.com/doca-version" in annotations

    # Both ways to run it give the agent the same.
    static = yaml.safe_load((folder / "static-pod.yaml").read_text())
    valid(static)
    assert is_least(static["spec"]) == own, "the static pod is not the chart's"

    # The schemas would find a mistake.
    wrong, misspelt = copy.deepcopy(plain), copy.deepcopy(plain)
    wrong["spec"]["template"]["spec"]["hostNetwork"] = "yes"
    misspelt["spec"]["template"]["spec"]["hostNetworks"] = True
    assert refused(wrong) and refused(misspelt)

    port = sys.argv[3]
    daemon_set, config = rendered(render, chart, "played", {"metricsPort": int(port), "config": 'backend = "soft"\n'})
    print(json.dumps({"pod": daemon_set["spec"]["template"]["spec"], "config": config["data"]["sluiced.toml"]}))


main(sys.argv[1], pathlib.Path(sys.argv[2]))
