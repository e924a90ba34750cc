"""The files in deploy/: every option and variable in them exists, and they are what those read for
whom they are written.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from blueque import Client
from blueque.cli.listener import command as listener
from blueque.cli.main import blueque
from blueque.cli.options import Invocation
from blueque.cli.scheduler import command as scheduler
from blueque.cli.verbs.archive import archive
from blueque.cli.verbs.metrics import collector, metrics
from blueque.cli.verbs.web import web
from blueque.metrics.server import Exporter
from blueque.model.units import parse_duration, parse_size
from blueque.node import registry
from blueque.queries.queue_looks import MANY, SHARE
from blueque.settings.table import TABLES, VARIABLES, variable

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROGRAMS: dict[str, click.Command] = {
    "blueque-listener": listener,
    "blueque-scheduler": scheduler,
    "blueque": blueque,
    "blueque metrics": metrics,
    "blueque archive": archive,
    "blueque web": web,
}
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
UNITS = sorted(
    path
    for ending in ("service", "target", "timer", "conf")
    for path in DEPLOY.glob(f"systemd/*.{ending}")
)
MANIFESTS = ["listener.yaml", "scheduler.yaml", "metrics.yaml", "disruption.yaml", "network.yaml"]
# what not every cluster has a use for
OPTIONAL = ["servicemonitor.yaml", "scaledobject.yaml", "archive.yaml", "web.yaml"]
DAY = 86400.0

# What one may want here of systemd.unit(5), .service(5), .exec(5), .kill(5) and
# .resource-control(5).
DIRECTIVES = {
    "Unit": {
        "After",
        "Before",
        "BindsTo",
        "ConditionPathExists",
        "Conflicts",
        "Description",
        "Documentation",
        "OnFailure",
        "PartOf",
        "Requires",
        "RequiresMountsFor",
        "StartLimitBurst",
        "StartLimitIntervalSec",
        "Wants",
    },
    "Service": {
        "AmbientCapabilities",
        "CPUWeight",
        "CapabilityBoundingSet",
        "Environment",
        "EnvironmentFile",
        "ExecReload",
        "ExecStart",
        "ExecStartPre",
        "ExecStop",
        "Group",
        "IOWeight",
        "KillMode",
        "KillSignal",
        "LimitCORE",
        "LimitNOFILE",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "MemoryMax",
        "Nice",
        "NoNewPrivileges",
        "OOMPolicy",
        "OOMScoreAdjust",
        "PrivateDevices",
        "PrivateTmp",
        "ProtectClock",
        "ProtectControlGroups",
        "ProtectHome",
        "ProtectHostname",
        "ProtectKernelLogs",
        "ProtectKernelModules",
        "ProtectKernelTunables",
        "ProtectProc",
        "ProtectSystem",
        "Restart",
        "RestartPreventExitStatus",
        "RestartSec",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "StateDirectory",
        "SuccessExitStatus",
        "SupplementaryGroups",
        "SystemCallArchitectures",
        "SystemCallErrorNumber",
        "SystemCallFilter",
        "TasksMax",
        "TimeoutStartSec",
        "TimeoutStopSec",
        "Type",
        "UMask",
        "User",
        "WatchdogSec",
        "WorkingDirectory",
    },
    "Timer": {"OnCalendar", "Persistent", "RandomizedDelaySec"},
    "Install": {"Alias", "Also", "DefaultInstance", "RequiredBy", "WantedBy"},
}


def settings_of(unit: Path) -> list[tuple[str, str, str]]:
    """Return (section, key, value) of each line of a unit that is none of comment."""
    found, section = [], ""
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, sign, value = line.partition("=")
            assert sign, line
            found.append((section, key, value))
    return found


def values(unit: str, key: str) -> list[str]:
    return [value for _, name, value in settings_of(DEPLOY / "systemd" / unit) if name == key]


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def containers() -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Return (manifest, pod, container) of each Deployment."""
    for name in MANIFESTS:
        for manifest in documents(DEPLOY / "kubernetes" / name):
            if manifest["kind"] == "Deployment":
                pod = manifest["spec"]["template"]["spec"]
                for container in pod["containers"]:
                    yield manifest, pod, container


def archiver() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    (manifest,) = documents(DEPLOY / "kubernetes" / "archive.yaml")
    pod = manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return manifest, pod, container


def page() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    manifest = documents(DEPLOY / "kubernetes" / "web.yaml")[0]
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return manifest, pod, container


def services() -> dict[str, dict[str, Any]]:
    return documents(DEPLOY / "docker" / "compose.yaml")[0]["services"]


def orders() -> dict[str, list[str]]:
    """Return every command line in these files that starts one of our programs."""
    found: dict[str, list[str]] = {}
    for unit in UNITS:
        for line in (value for _, key, value in settings_of(unit) if key == "ExecStart" and value):
            assert line.startswith("/usr/bin/env ")
            found[unit.name] = line.replace("%i", "video.encode").split()[1:]
    for name, service in services().items():
        if service["image"] == "blueque":
            found[f"compose {name}"] = service["command"]
    for manifest, _, container in [*containers(), archiver(), page()]:
        found[f"kubernetes {manifest['metadata']['name']}"] = container["args"]
    script = (DEPLOY / "slurm" / "blueque-listener.sbatch").read_text()
    arguments = shlex.split(
        re.search(r"^exec (.+)$", script, re.M)[1].replace('"$@"', "tasks --module mypackage.tasks")
    )
    found["slurm"] = [word.replace("${SLURM_CPUS_PER_TASK:-1}", "4") for word in arguments]
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    found["Dockerfile"] = yaml.safe_load(re.search(r"^CMD (.+)$", dockerfile, re.M)[1])
    for number, line in enumerate(
        re.findall(r"^sbatch .*\.sbatch (.+)$", (DEPLOY / "README.md").read_text(), re.M)
    ):
        found[f"README {number}"] = ["blueque-listener", *line.split()]
    return found


ORDERS = orders()
# blueque.toml or listener.env names it
WITHOUT_MODULE = {"blueque-listener@.service", "drain.conf"}


def known_options(program: click.Command) -> set[str]:
    options = [one for one in program.params if isinstance(one, click.Option)]
    return {"--help"} | {name for one in options for name in (*one.opts, *one.secondary_opts)}


def on_term(order: list[str]) -> str:
    return order[order.index("--on-term") + 1]


def test_every_program_is_started_from_every_kind_of_file():
    assert {
        name.split()[0] for name, order in ORDERS.items() if order[0] == "blueque-listener"
    } == {
        "blueque-listener@.service",
        "drain.conf",
        "compose",
        "kubernetes",
        "slurm",
        "Dockerfile",
        "README",
    }
    assert {
        name.split()[0] for name, order in ORDERS.items() if order[0] == "blueque-scheduler"
    } == {"blueque-scheduler.service", "compose", "kubernetes"}


@pytest.mark.parametrize("name", ORDERS)
def test_the_program_takes_these_arguments(name):
    program, *arguments = ORDERS[name]
    if program == "blueque":
        program = f"blueque {arguments.pop(0)}"
    own = arguments[: arguments.index("--exec")] if "--exec" in arguments else arguments
    assert {word.partition("=")[0] for word in own if word.startswith("-")} <= known_options(
        PROGRAMS[program]
    )
    with PROGRAMS[program].make_context(
        program, arguments, obj=Invocation(), resilient_parsing="--help" in own
    ) as context:
        if program == "blueque-listener" and "--help" not in own:
            assert context.params["queues"]
            assert context.params["exec"] is None
            assert context.params["handler"] is None
            assert (not context.params["modules"]) is (name in WITHOUT_MODULE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_what_looks_like_an_option_or_variable_of_ours_is_one(path):
    """In the comments, too, where they speak of a listener."""
    text = path.read_text()
    page = (ROOT / "docs" / "configuration.md").read_text()
    settings = page.partition("## Environment variables")[2].partition("\n## ")[0]
    of_settings = {variable(table, row.key) for table in VARIABLES for row in TABLES[table]}
    assert set(re.findall(r"BLUEQUE_[A-Z_]+", text)) <= of_settings | set(
        re.findall(r"BLUEQUE_[A-Z_]+", settings)
    )
    said = "\n".join(
        line
        for line in text.splitlines()
        if line.lstrip().startswith("#") and not line.startswith("#SBATCH")
    )
    foreign = {  # of systemctl, docker and sbatch
        "--now",
        "--no-block",
        "--kill-whom",
        "--signal",
        "--rm",
        "--build",
        "--array",
        "--time",
        "--build-arg",
        "--gres",
        "--from-literal",
    }
    own = set().union(*map(known_options, (listener, metrics, archive, web)))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", said)) - foreign <= own


def test_every_file_is_named_in_a_readme_of_under_120_lines():
    text = (DEPLOY / "README.md").read_text()
    assert len(text.splitlines()) < 120
    assert {
        path.parent.relative_to(DEPLOY).parts[0] for path in FILES if path.parent != DEPLOY
    } == set(re.findall(r"^\| [^|]+ \| `([a-z]+)/`", text, re.M))
    for path in re.findall(r"deploy/[\w./@-]*\w", text):
        assert (ROOT / path).exists() or path == "deploy/docker/app", path
    for link in re.findall(r"\]\(([^)#]+)", text):
        assert (DEPLOY / link).exists(), link


def test_units_have_directives_that_exist_in_their_section(tmp_path):
    assert [unit.name for unit in UNITS] == [
        "blueque-archive@.service",
        "blueque-archive@.timer",
        "blueque-listener@.service",
        "blueque-metrics.service",
        "blueque-scheduler.service",
        "blueque-web.service",
        "blueque.target",
        "drain.conf",
    ]
    for unit in UNITS:
        settings = settings_of(unit)
        assert [
            (section, key) for section, key, _ in settings if key not in DIRECTIVES.get(section, ())
        ] == []
        once = [
            key
            for _, key, _ in settings
            if key not in {"Environment", "EnvironmentFile", "ExecStart"}
        ]
        assert len(once) == len(set(once))
    if shutil.which("systemd-analyze"):  # not everywhere; it knows values and specifiers, too
        assert complaints_of_systemd(tmp_path) == []


def complaints_of_systemd(directory: Path) -> list[str]:
    """Return what systemd says of the units, those of a listener once with the drop-in and once
    without.
    """
    drop_in = directory / "blueque-listener@drained.service.d"
    drop_in.mkdir()
    shutil.copy(DEPLOY / "systemd" / "drain.conf", drop_in)
    names: list[Path] = []
    for unit in UNITS:
        if unit.suffix != ".conf":
            shutil.copy(unit, directory)
            instances = ["encode", "drained"] if "@" in unit.name else [""]
            names += [
                directory / unit.name.replace("@", f"@{one}" if one else "@") for one in instances
            ]
    asked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *names], capture_output=True, text=True
    )
    return [
        line for line in asked.stderr.splitlines() if "blueque" in line or str(directory) in line
    ]


@pytest.mark.parametrize(
    ("unit", "mode", "at_term", "timeout"),
    [
        ("blueque-listener@.service", "process", "leave", "30s"),
        ("drain.conf", "mixed", "drain", "infinity"),
    ],
)
def test_what_systemd_kills_agrees_with_what_a_listener_does_at_sigterm(
    unit, mode, at_term, timeout
):
    order = next(order for name, order in ORDERS.items() if name.startswith(unit))
    assert (values(unit, "KillMode"), on_term(order)) == ([mode], at_term)
    assert values(unit, "TimeoutStopSec") == [timeout]


def test_a_drop_in_takes_the_place_of_what_the_unit_starts():
    assert values("drain.conf", "ExecStart")[0] == ""
    assert len(values("drain.conf", "ExecStart")) == 2


def test_units_that_notify_are_of_programs_that_do_and_wait_for_redis():
    kinds = {unit.name: values(unit.name, "Type") for unit in UNITS if unit.suffix == ".service"}
    assert sorted(kinds.items()) == [
        ("blueque-archive@.service", ["oneshot"]),
        ("blueque-listener@.service", ["notify"]),
        ("blueque-metrics.service", ["exec"]),
        ("blueque-scheduler.service", ["notify"]),
        ("blueque-web.service", ["exec"]),
    ]
    assert values("blueque-listener@.service", "TimeoutStartSec") == ["5min"]
    assert values("blueque-scheduler.service", "WatchdogSec") == ["5min"]
    # that would kill it, and with it all its listeners
    assert values("blueque-listener@.service", "WatchdogSec") == []


def test_the_health_check_of_image_and_pod_is_that_of_the_roster():
    (check,) = re.findall(
        r"^HEALTHCHECK .* CMD (.+)$", (DEPLOY / "docker" / "Dockerfile").read_text(), re.M
    )
    assert yaml.safe_load(check) == ["python", "-P", "-m", registry.__name__]
    for _, _, container in containers():
        if container["args"][0] == "blueque-listener":
            assert container["readinessProbe"]["exec"]["command"] == yaml.safe_load(check)
    assert services()["scheduler"]["healthcheck"] == {"disable": True}


def test_a_listener_is_always_started_again_but_not_when_it_was_drained_or_is_set_up_wrongly():
    unit = "blueque-listener@.service"
    assert values(unit, "Restart") == ["always"]
    assert values(unit, "RestartPreventExitStatus")[0].split() == ["0", "2", "77", "78", "127"]
    assert values(unit, "OOMPolicy") == ["continue"]


def test_tasks_that_run_on_lose_neither_their_user_nor_their_files():
    keys = {key for _, key, _ in settings_of(DEPLOY / "systemd" / "blueque-listener@.service")}
    assert keys & {"DynamicUser", "PrivateTmp", "RuntimeDirectory", "PrivatePIDs"} == set()


def test_the_spool_belongs_to_the_user_of_the_listener_and_to_nobody_else():
    rows, users = (
        [
            line.split()
            for line in (DEPLOY / f"systemd/{name}/blueque.conf").read_text().splitlines()
            if line[0] != "#"
        ]
        for name in ("tmpfiles.d", "sysusers.d")
    )
    spool = next(
        value
        for value in values("blueque-listener@.service", "Environment")
        if value.startswith("BLUEQUE_SPOOL=")
    )
    assert ["d", spool.partition("=")[2], "0700", "blueque", "blueque", "-"] in rows
    assert [row[:2] for row in users] == [["u", "blueque"]]
    assert values("blueque-listener@.service", "User") == ["blueque"]
    assert all(row[0] == "d" and row[5] == "-" for row in rows)  # nothing is removed for its age


def test_redis_in_compose_keeps_what_it_has_and_is_not_published():
    redis = services()["redis"]
    assert "ports" not in redis
    assert redis["image"] == "redis:7"
    order = redis["command"]
    assert order[order.index("--appendonly") + 1] == "yes"
    assert order[order.index("--maxmemory-policy") + 1] == "noeviction"


def test_compose_waits_for_days_for_a_listener_that_drains():
    service = services()["listener"]
    assert on_term(service["command"]) == "drain"
    assert parse_duration(service["stop_grace_period"]) >= DAY
    assert {name: one["ports"] for name, one in services().items() if "ports" in one} == {
        "web": ["127.0.0.1:8264:8264"]  # this machine only
    }
    (compose,) = documents(DEPLOY / "docker" / "compose.yaml")
    volumes = {volume.partition(":")[0] for volume in services()["redis"]["volumes"]}
    assert volumes == set(compose["volumes"])
    (handlers,) = service["volumes"]
    assert (handlers["source"], handlers["target"], handlers["read_only"]) == (
        "./app",
        "/app",
        True,
    )
    assert handlers["bind"] == {"create_host_path": False}
    assert all(
        one["security_opt"] == ["no-new-privileges:true"] and one["cap_drop"] == ["ALL"]
        for name, one in services().items()
        if name != "redis"
    )


def test_the_image_runs_as_nobody_special_behind_tini_and_copies_only_what_is_there():
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and line[0] not in "# "]
    assert [line for line in lines if line.startswith("FROM")] == [
        "FROM python:3.12-slim AS build",
        "FROM python:3.12-slim",
    ]
    assert re.search(r"^USER (\d+):\1$", text, re.M)[1] == "10001"
    assert {"STOPSIGNAL SIGTERM", 'ENTRYPOINT ["tini", "--"]'} <= set(lines)
    copied = [
        name
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    ]
    allowed = [
        line[1:]
        for line in (DEPLOY / "docker/Dockerfile.dockerignore").read_text().splitlines()
        if line[:1] == "!"
    ]
    assert sorted(copied) == sorted(allowed)
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_copies_all_that_the_package_is_built_from():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {
        project["project"]["readme"],
        *project["project"]["license-files"],
        *wheel["packages"],
        *wheel["force-include"],
    }
    text = (DEPLOY / "docker" / "Dockerfile").read_text()
    copied = {
        word
        for line in text.splitlines()
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
    }
    assert needed <= copied
    assert "pyproject.toml" in copied


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_has_what_its_kind_requires(name):
    for manifest in documents(DEPLOY / "kubernetes" / name):
        api = {
            "Deployment": "apps/v1",
            "PodDisruptionBudget": "policy/v1",
            "Service": "v1",
            "NetworkPolicy": "networking.k8s.io/v1",
        }
        assert manifest["apiVersion"] == api[manifest["kind"]]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", manifest["metadata"]["name"])
        if manifest["kind"] != "NetworkPolicy":
            assert manifest["spec"]["selector"].get("matchLabels", manifest["spec"]["selector"])


def test_prometheus_finds_the_exporter_by_service_and_port():
    deployment, service = documents(DEPLOY / "kubernetes" / "metrics.yaml")
    (monitor,) = documents(DEPLOY / "kubernetes" / "servicemonitor.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = service["spec"]["ports"]
    (own,) = container["ports"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert (port["targetPort"], endpoint["port"]) == (own["name"], port["name"])
    assert container["args"][-2:] == [f"0.0.0.0:{own['containerPort']}", "--public"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["kind"] == "ServiceMonitor"


def test_keda_scales_the_listener_by_a_metric_that_exists():
    (scaled,) = documents(DEPLOY / "kubernetes" / "scaledobject.yaml")
    assert (scaled["apiVersion"], scaled["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    listeners = [
        manifest
        for manifest, _, container in containers()
        if container["args"][0] == "blueque-listener"
    ]
    assert [scaled["spec"]["scaleTargetRef"]["name"]] == [
        one["metadata"]["name"] for one in listeners
    ]
    (trigger,) = scaled["spec"]["triggers"]
    arguments = next(
        container["args"] for manifest, _, container in containers() if manifest in listeners
    )
    assert trigger["metadata"]["threshold"] == arguments[arguments.index("--slots") + 1]
    query = trigger["metadata"]["query"]
    assert set(re.findall(r'(\w+)\{queue="(\w+)",state="(\w+)"\}', query)) == {
        ("blueque_tasks", arguments[1], state) for state in ("reserved", "started")
    }
    assert re.findall(r'(\w+)\{queue="(\w+)"\}', query) == [
        ("blueque_tasks_runnable", arguments[1])
    ]


def test_selectors_match_the_labels_of_pods_and_every_deployment_has_a_budget():
    """But that of the exporter, which nobody misses for a minute."""
    pods = {}
    for manifest, _, _ in containers():
        labels = manifest["spec"]["template"]["metadata"]["labels"]
        assert (
            manifest["spec"]["selector"]["matchLabels"] == labels == manifest["metadata"]["labels"]
        )
        pods[manifest["metadata"]["name"]] = labels
    budgets = {
        one["metadata"]["name"]: one["spec"]
        for one in documents(DEPLOY / "kubernetes" / "disruption.yaml")
    }
    assert {name: spec["selector"]["matchLabels"] for name, spec in budgets.items()} | {
        "blueque-metrics": {"app.kubernetes.io/name": "blueque-metrics"}
    } == pods
    assert all(
        len({"minAvailable", "maxUnavailable"} & set(spec)) == 1 for spec in budgets.values()
    )


def test_kustomize_is_given_every_manifest_and_the_image_they_name():
    path = DEPLOY / "kubernetes"
    (kustomization,) = documents(path / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == sorted(MANIFESTS)
    assert sorted(one.name for one in path.iterdir()) == sorted(
        [*MANIFESTS, *OPTIONAL, "kustomization.yaml"]
    )
    assert re.findall(r"^  # - (.+)$", (path / "kustomization.yaml").read_text(), re.M) == OPTIONAL
    assert [one["name"] for one in kustomization["images"]] == ["blueque"]
    assert {container["image"] for _, _, container in containers()} == {"blueque"}


def test_kubernetes_waits_for_days_for_a_listener_that_drains_and_moves_none():
    found = [
        (manifest, pod, one)
        for manifest, pod, one in containers()
        if one["args"][0] == "blueque-listener"
    ]
    assert found
    for manifest, pod, container in found:
        assert on_term(container["args"]) == "drain"
        assert pod["terminationGracePeriodSeconds"] >= DAY
        annotations = manifest["spec"]["template"]["metadata"]["annotations"]
        assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_pods_run_as_the_user_of_the_image_keep_its_tini_and_have_no_probe_that_could_kill_tasks():
    for _, pod, container in [*containers(), archiver(), page()]:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert "command" not in container
        assert {key for key in container if key.endswith("Probe")} <= {"readinessProbe"}
        mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounts == {volume["name"] for volume in pod.get("volumes", [])}


def test_pods_meet_the_restricted_pod_security_standard_and_write_to_volumes_only():
    for _, pod, container in [*containers(), archiver(), page()]:
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        kinds = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir", "persistentVolumeClaim"}
    (listener_pod,) = [pod for _, pod, one in containers() if one["args"][0] == "blueque-listener"]
    assert {mount["mountPath"] for mount in listener_pod["containers"][0]["volumeMounts"]} == {
        "/var/lib/blueque",
        "/tmp",
    }


def test_the_spool_of_a_pod_stays_below_what_gets_the_pod_evicted():
    (found,) = [(pod, one) for _, pod, one in containers() if one["args"][0] == "blueque-listener"]
    pod, container = found
    spool = parse_size(container["args"][container["args"].index("--spool-limit") + 1])
    volumes = {
        volume["name"]: parse_size(volume["emptyDir"]["sizeLimit"] + "B")
        for volume in pod["volumes"]
    }
    assert spool < volumes["state"]
    assert sum(volumes.values()) <= parse_size(
        container["resources"]["limits"]["ephemeral-storage"] + "B"
    )


def test_nothing_but_the_exporter_can_be_connected_to():
    workers, exporter = documents(DEPLOY / "kubernetes" / "network.yaml")
    (names,) = workers["spec"]["podSelector"]["matchExpressions"]
    pods = {
        manifest["metadata"]["labels"]["app.kubernetes.io/name"]
        for manifest, _, _ in [*containers(), archiver()]
    }
    covered = {
        *names["values"],
        exporter["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/name"],
    }
    assert pods == covered
    assert workers["spec"]["policyTypes"] == exporter["spec"]["policyTypes"] == ["Ingress"]
    assert "ingress" not in workers["spec"]
    assert exporter["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": "metrics"}]}]


def test_the_page_of_a_cluster_has_a_token_a_name_and_one_open_port():
    deployment, service, policy = documents(DEPLOY / "kubernetes" / "web.yaml")
    _, _, container = page()
    labels = {"app.kubernetes.io/name": "blueque-web"}
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert {"--public"} & {*container["args"]} == set()  # the token makes it safe, not a word
    assert {one["name"] for one in container["env"]} == {"BLUEQUE_REDIS_URL", "BLUEQUE_WEB_TOKEN"}
    (port,) = container["ports"]
    assert container["args"][3] == f"0.0.0.0:{port['containerPort']}"
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": port["name"]}]}]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_nginx_reads_the_block_of_the_readme(tmp_path):
    text = (DEPLOY / "README.md").read_text()
    (block,) = re.findall(r"```nginx\n(.*?)```", text, re.S)
    assert "proxy_set_header Host $http_host;" in block
    if shutil.which("nginx") is None:
        return
    plain = re.sub(r" *ssl_certificate.*\n", "", block).replace("443 ssl", "127.0.0.1:18443")
    file = tmp_path / "nginx.conf"
    file.write_text(
        f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off;\n{plain} }}\n"
    )
    checked = subprocess.run(
        ["nginx", "-t", "-p", str(tmp_path), "-c", str(file)], capture_output=True, text=True
    )
    assert "syntax is ok" in checked.stderr, checked.stderr


def test_the_archive_runs_each_night_and_before_finished_tasks_are_deleted():
    assert values("blueque-archive@.timer", "OnCalendar") == ["*-*-* 03:00:00"]
    assert values("blueque-archive@.timer", "Persistent") == ["yes"]
    assert archiver()[0]["spec"]["schedule"] == "0 3 * * *"
    for order in (ORDERS["blueque-archive@.service"], ORDERS["kubernetes blueque-archive-tasks"]):
        assert order[-2:] == ["--older-than", "1d"]
    state = values("blueque-archive@.service", "StateDirectory")
    assert ORDERS["blueque-archive@.service"][3] == f"/var/lib/{state[0]}"


def test_slurm_leaves_it_to_the_user_whether_tasks_may_run_twice():
    assert "--retry" not in ORDERS["slurm"]


def test_slurm_starts_the_listener_in_place_of_the_batch_shell_and_signals_it_before_its_grace_is_over():
    path = DEPLOY / "slurm" / "blueque-listener.sbatch"
    lines = path.read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    assert lines[0] == "#!/bin/sh"
    assert commands[-1].startswith("exec blueque-listener ")
    # Slurm reads no more of these after the first command.
    assert max(
        number for number, line in enumerate(lines) if line.startswith("#SBATCH")
    ) < lines.index(commands[0])
    assert all(
        re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line)
        for line in lines
        if line.startswith("#SBATCH")
    )
    order = ORDERS["slurm"]
    hours = re.search(r"^#SBATCH --time=(\d+):00:00$", path.read_text(), re.M)[1]
    before = re.search(r"^#SBATCH --signal=B:USR2@(\d+)$", path.read_text(), re.M)[1]
    runtime, grace = (
        parse_duration(order[order.index(name) + 1]) for name in ("--max-runtime", "--grace")
    )
    end = parse_duration(f"{hours}h")
    assert end - float(before) < runtime and runtime + grace < end
    assert "--until-empty" in order and on_term(order) == "stop"
    assert subprocess.run(["sh", "-n", path], capture_output=True, text=True).stderr == ""


@pytest.fixture
def told(client: Client) -> dict[str, list[dict[str, str]]]:
    """The labels of every sample that an exporter tells of a queue, by its name."""
    client.get_queue("video").enqueue({})
    client.set_schedule("nightly", queue="video", every="1d")
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(Exporter(collector(client)).scrape()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def rules() -> list[dict[str, Any]]:
    (file,) = documents(DEPLOY / "prometheus" / "prometheus-rules.yaml")
    (group,) = file["groups"]
    return group["rules"]


def dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana" / "blueque.json").read_text())


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [
        one["expr"] for panel in dashboard()["panels"] for one in panel["targets"]
    ]


def test_alerts_and_panels_ask_for_metrics_labels_and_values_that_there_are(told):
    for text in expressions():
        names = re.findall(r"blueque_\w+", text)
        assert names and set(names) <= set(told), text
        for name, selector in re.findall(r"(blueque_\w+)\{([^}]*)\}", text):
            for label, sign, value in re.findall(r'(\w+)(=~|=)"([^"]*)"', selector):
                # each of its samples has the label
                there = {labels[label] for labels in told[name]}
                wanted = value.split("|") if sign == "=~" else [value]
                assert value == "$queue" or set(wanted) <= there, text
        own = {name for name in names for labels in told[name] if "queue" in labels}
        assert not own or "by (queue" in text or "absent" in text, text
        assert all(text.count(left) == text.count(right) for left, right in ("()", "{}", "[]")), (
            text
        )


def test_an_alert_says_what_is_wrong_and_names_a_command_that_there_is():
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) == 11
    for rule in rules():
        assert re.fullmatch(r"Blueque[A-Z]\w+", rule["alert"])
        assert parse_duration(rule.get("for", "0")) <= 3600
        assert rule["annotations"]["description"].endswith(".")
        assert rule["labels"]["severity"] in ("critical", "warning")
        program, *arguments = (
            rule["annotations"]["command"].replace("{{ $labels.queue }}", "video").split()
        )
        assert PROGRAMS[program].make_context(
            program, [*arguments, "--help"], obj=Invocation(), resilient_parsing=True
        )
        if program == "blueque":
            assert PROGRAMS[program].get_command(click.Context(blueque), arguments[0]), arguments
        used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert all(f"by ({label}" in rule["expr"] for label in used)


def test_each_alert_fires_when_it_should_and_not_before(tmp_path):
    cases = ROOT / "tests" / "prometheus_rules.yaml"
    expected = [one for test in documents(cases)[0]["tests"] for one in test["alert_rule_test"]]
    told = {one["alertname"] for one in expected if one["exp_alerts"]}
    without = {"BluequeTaskBeyondUsual"}  # of a week of a histogram
    assert told == {rule["alert"] for rule in rules()} - without
    shutil.copy(cases, tmp_path)
    shutil.copy(DEPLOY / "prometheus" / "prometheus-rules.yaml", tmp_path)
    if shutil.which("promtool"):  # Debian's package prometheus has it
        for order in (["check", "rules", "prometheus-rules.yaml"], ["test", "rules", cases.name]):
            done = subprocess.run(
                ["promtool", *order], cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr


def test_an_alert_fails_as_often_as_status_minds():
    (rule,) = [rule for rule in rules() if rule["alert"] == "BluequeManyFail"]
    assert f">= {MANY} and" in rule["expr"] and f"> {1 / SHARE} *" in rule["expr"]


def test_panels_have_a_place_of_their_own_and_any_source():
    found = dashboard()
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(taken) == len(set(taken)) and max(x for x, _ in taken) < 24
    assert {panel["datasource"]["uid"] for panel in panels} == {"${datasource}"}
    assert [one["name"] for one in found["templating"]["list"]] == ["datasource", "queue"]
