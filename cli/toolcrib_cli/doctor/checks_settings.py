"""Checks of how registry and operator are set. Facts in, a verdict out."""

from __future__ import annotations

import re

from toolcrib_cli.doctor.facts import (
    Facts,
    Place,
    Unread,
    Verdict,
    conditions,
    failed,
    listed,
    name_of,
    passed,
    pod_of,
)

API_SERVER_AUDIENCES = (
    "https://kubernetes.default.svc",
    "https://kubernetes.default.svc.cluster.local",
    "api",
)


def metrics_reasons(facts: Facts) -> Verdict:
    """Denials tell a scraper no more than the caller was told."""
    reasons = (facts.settings.get("metrics") or {}).get("reasons") or "not_permitted"
    return passed("not_permitted") if reasons == "not_permitted" else failed(f"metrics.reasons is {reasons}")


def anonymous(facts: Facts) -> Verdict:
    """By the settings; in the local mode also by asking without a token."""
    set_to = (facts.settings.get("discovery") or {}).get("anonymous") or "none"
    if set_to != "none":
        return failed(f"discovery.anonymous is {set_to}: callers without a token list definitions")
    seen = facts.local.get("anonymous", 0)
    if seen:
        return failed(f"{seen} tools are listed without a token")
    return passed("callers without a token see nothing")


def tls(facts: Facts) -> Verdict:
    """TLS at the agents' and the admin listener; in the local mode loopback stands for it."""
    if facts.place is Place.LOCAL:
        url = str(facts.local.get("url", ""))
        host = url.partition("://")[2].rpartition(":")[0]
        if host in ("127.0.0.1", "localhost", "[::1]") or url.startswith("https://"):
            return passed(f"{url} is on loopback")
        return failed(f"{url} is not on loopback and has no TLS: tokens travel in the clear")
    plain = [
        name
        for name, key in (("agents", "tls"), ("admin", "admin_tls"))
        if not (facts.settings.get(key) or {}).get("cert_file")
    ]
    if plain:
        return failed(f"no TLS at the listeners {listed(plain)}: tokens travel in the clear")
    store = facts.settings.get("store") or {}
    if store.get("kind") == "weaviate" and not store.get("tls"):
        return failed("no TLS between registry and Weaviate")
    return passed("both listeners of the registry have TLS")


def issuers(facts: Facts) -> Verdict:
    """Keys over https, an audience of our own, no issuer whose tokens alone decide."""
    found = facts.settings.get("issuers") or []
    if not found:
        raise Unread("the registry's settings name no issuer")
    problems = []
    for issuer in found:
        name = issuer.get("issuer") or ("the cluster" if issuer.get("cluster") else "an issuer")
        uri = issuer.get("jwks_uri") or issuer.get("issuer") or "https://"
        if not issuer.get("jwks_file") and not str(uri).startswith("https://"):
            problems.append(f"{name}: keys come over plain HTTP")
        audiences = issuer.get("audience") or []
        audiences = [audiences] if isinstance(audiences, str) else audiences
        if not audiences:
            problems.append(f"{name}: no audience")
        own = (*API_SERVER_AUDIENCES, issuer.get("issuer")) if issuer.get("cluster") else API_SERVER_AUDIENCES
        if wrong := [a for a in audiences if a in own]:
            problems.append(f"{name}: the audience {listed(wrong)} is the API server's own")
        if issuer.get("scopes") in ("token", "local"):
            problems.append(f"{name}: scopes {issuer['scopes']} is for the local mode")
    if facts.settings.get("allow_dev_issuer"):
        problems.append("allow_dev_issuer is set")
    if problems:
        return failed(listed(problems))
    return passed(f"{len(found)} issuer(s): keys over https, audiences of their own")


def egress(facts: Facts) -> Verdict:
    """`url:` backends reach named hosts; Services are held to the cluster's ranges."""
    rules = facts.settings.get("egress") or {}
    wide = [host for host in rules.get("allow") or () if host.strip("*.?") == ""]
    if wide:
        return failed(f"egress.allow lets every host through: {listed(wide)}")
    if facts.place is Place.CLUSTER and not rules.get("cluster"):
        return failed("egress.cluster is empty: the cluster's ranges are not closed to url: backends")
    return passed(f"{len(rules.get('allow') or ())} hosts may be named by url: backends")


def audit(facts: Facts) -> Verdict:
    """The decision log is written, with a key, and anchored by the operator."""
    log = facts.settings.get("audit") or {}
    if not log.get("path"):
        return failed("the decision log is off")
    if not log.get("key_file"):
        return failed("the decision log has no key: anyone who can write it can change it")
    if facts.place is Place.CLUSTER and not facts.option("audit-anchors", "toolcrib-audit-anchors"):
        return failed("the log's heads are not anchored: cutting its end shows nowhere")
    if facts.place is Place.LOCAL:
        return passed("on, with a key")
    return passed("on, with a key, anchored by the operator")


def audit_key(facts: Facts) -> Verdict:
    """The key is in a Secret that no Helm release repeats."""
    if not (facts.settings.get("audit") or {}).get("path"):
        return failed("the decision log is off")
    return _own_secret(facts, "audit-key")


def assertion_keys(facts: Facts) -> Verdict:
    """The same of the keys of assertions."""
    return _own_secret(facts, "assertion-keys")


def _own_secret(facts: Facts, volume: str) -> Verdict:
    """The chart calls its own Secrets after the volumes that hold them."""
    workload = facts.workload("registry")
    volumes = pod_of(workload).get("volumes") or ()
    names = [str(v["secret"].get("secretName")) for v in volumes if v.get("name") == volume and "secret" in v]
    if not names:
        raise Unread(f"the registry's pod mounts no Secret as {volume}")
    prefix = str(workload["metadata"]["name"]).removesuffix("-registry")
    if names == [f"{prefix}-{volume}"]:
        return failed(f"in {names[0]}, which the chart made: the release's own Secret repeats it")
    return passed(f"in {names[0]}, which the chart did not make")


def hidden_text(facts: Facts) -> Verdict:
    """Refused, and no Tool in use has any."""
    set_to = (
        facts.local.get("hidden_text")
        if facts.place is Place.LOCAL
        else facts.option("hidden-text", "refuse")
    )
    if set_to is None:
        raise Unread(
            facts.local.get("unread") or "an earlier version wrote local.json: restart `toolcrib up`"
        )
    if set_to != "refuse":
        return failed(f"text.hidden is {set_to}: such Tools are used")
    used = [
        name_of(t) for t in facts.of("Tool") if ("Questionable", "True", "HiddenText") in set(conditions(t))
    ]
    if used:
        return failed(f"in use with hidden text: {listed(used)}")
    return passed("refused")


def quotas(facts: Facts) -> Verdict:
    """A namespace's Tools are bounded, by number and by size."""
    set_to = {name: facts.option(f"quota-{name}", "the default") for name in ("tools", "bytes")}
    unbounded = [name for name, most in set_to.items() if re.fullmatch(r"0+[A-Za-z]*", most)]
    if unbounded:
        return failed(f"no limit of {listed(unbounded)}: one namespace can fill the memory of all replicas")
    over = [name_of(t) for t in facts.of("Tool") if any(r == "QuotaExceeded" for _, _, r in conditions(t))]
    said = ", ".join(f"{name}: {most}" for name, most in set_to.items())
    return passed(f"{said}; refused now: {listed(over)}" if over else said)


def assertion(facts: Facts) -> Verdict:
    """Backends can tell the registry's calls from others'."""
    if not (facts.settings.get("assertion") or {}).get("keys"):
        return failed("the registry has no keys for assertions that its replicas share")
    off = [
        name_of(t)
        for t in facts.of("Tool")
        if (((backend := t["spec"].get("backend") or {}).get("http")) or {}).get("service")
        and backend.get("assertion") is False
    ]
    if off:
        return failed(f"calls without an assertion go to the Services of {listed(off)}")
    return passed("every call of a Service carries an assertion")


def private_files(facts: Facts) -> Verdict:
    """Keys of the local mode can be read by nobody else."""
    if "open_files" not in facts.local:
        raise Unread("the data folder was not read: specify --data")
    found = facts.local["open_files"]
    return (
        failed(f"others can read {listed(found)}")
        if found
        else passed("nobody else can read the data folder")
    )
