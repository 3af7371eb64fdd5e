import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { type Part, parts, type Rule } from "../../charts/src/rbac.ts";
import { startControlPlane, type TestControlPlane } from "../support/controlplane.ts";
import { eventually } from "../support/poll.ts";
import { chart, Helm, objectsOf, type Rendered, store, whyNoHelm } from "./helm.ts";

const namespace = "substrate-system";
/** Policies come into force some seconds after they are made. */
const POLICY_DEADLINE_MS = 30_000;
/** Kinds of others, whose definitions this API server does not have. */
const foreign = /^(cert-manager\.io|monitoring\.coreos\.com|gateway\.networking\.k8s\.io)\//;

const valueSets: readonly [string, string, string, readonly string[]][] = [
  ["the default values", "substrate", namespace, store],
  [
    "two pools, stores with an authority, registries",
    "substrate",
    namespace,
    [
      ...store,
      "--set-json",
      'nodePools=[{"name":"small","nodeSelector":{"pool":"small"}},{"name":"big","nodeSelector":{"pool":"big"},' +
        '"tolerations":[{"key":"big","operator":"Exists","effect":"NoSchedule"}],"reserve":"1Gi",' +
        '"resources":{"cpu":"4","memory":"16Gi"},"storagePath":"/mnt/fast/substrate"}]',
      "--set",
      "stores.cold.url=s3://cold?endpoint=https://s3.example.com&region=r&pathStyle=true,stores.cold.caConfigMap=ca",
      "--set-json",
      'registries={"mirrors":[{"prefix":"docker.io","location":"m.example.com/hub"}],"pullSecrets":["a","b.c"],"caConfigMap":"ca"}',
      "--set",
      "network.denyCIDRs={203.0.113.0/24},atelet.updateStrategy.type=OnDelete",
    ],
  ],
  [
    "an Ingress, a load balancer, one replica each, no policies",
    "substrate",
    namespace,
    [
      ...store,
      "--set",
      "router.ingress.enabled=true,router.ingress.className=nginx,router.ingress.tlsSecret=tls,router.domain=a.example.com",
      "--set",
      "router.service.type=LoadBalancer,router.service.nodePort=30080,router.service.externalTrafficPolicy=Local",
      "--set",
      "router.replicas=1,operator.replicas=1,network.policies=false,imagePullSecrets[0].name=pull,image.registry=r.example.com/x",
    ],
  ],
  [
    "what others' kinds are for",
    "substrate",
    namespace,
    [
      ...store,
      "--set",
      "certificates.provider=cert-manager,metrics.serviceMonitor.enabled=true,router.httpRoute.enabled=true",
      "--set",
      "router.httpRoute.parentRefs[0].name=public",
    ],
  ],
  ["another release and namespace", "prod", "apps", store],
];

/** One right: "namespace group/resource[/name] verb" without the namespace. */
function rightsOf(rule: Omit<Rule, "scope" | "why">, fullname: string): string[] {
  const names = rule.names?.map((name) => name.replace("{fullname}", fullname)) ?? ["*"];
  return rule.resources.flatMap((resource) =>
    names.flatMap((name) => rule.verbs.map((verb) => `${rule.group}/${resource} ${name} ${verb}`)),
  );
}

/** What the table says, in one namespace. */
function expected(part: Part, where: string): string[] {
  const rights = parts.find((entry) => entry.part === part);
  if (rights === undefined) throw new Error(`the table has no ${part}`);
  const own = rights.rules.filter(({ scope }) => scope === "cluster" || where === namespace);
  const borrowed = rights.borrowed
    .filter((entry) => entry.namespace === where)
    .map(() => ({
      group: "",
      resources: ["configmaps"],
      names: ["extension-apiserver-authentication"],
      verbs: ["get", "list", "watch"],
    }));
  return sorted([...own, ...borrowed].flatMap((rule) => rightsOf(rule, "substrate")));
}

function sorted(items: Iterable<string>): string[] {
  return [...new Set(items)].sort();
}

const reviewSchema = z.object({
  status: z.object({
    incomplete: z.boolean(),
    resourceRules: z.array(
      z.object({
        apiGroups: z.array(z.string()),
        resources: z.array(z.string()),
        resourceNames: z.array(z.string()).optional(),
        verbs: z.array(z.string()),
      }),
    ),
  }),
});

describe.skipIf(whyNoHelm !== undefined)(`on an API server${whyNoHelm === undefined ? "" : ` (${whyNoHelm})`}`, () => {
  let plane: TestControlPlane;
  let helm: Helm;

  beforeAll(async () => {
    plane = await startControlPlane({ objects: false, controllers: true });
    helm = new Helm(plane.kubeconfig);
    helm.kubectlOutput(["create", "namespace", namespace]);
    helm.kubectlOutput(["create", "namespace", "apps"]);
  });
  afterAll(async () => {
    helm.close();
    await plane.stop();
  });

  /** What `kubectl auth can-i --list` would print, as the API server says it. */
  function rights(serviceAccount: string, where: string): string[] {
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SelfSubjectRulesReview",
      spec: { namespace: where },
    };
    const as = `--as=system:serviceaccount:${namespace}:${serviceAccount}`;
    const said = helm.kubectlOutput(
      ["create", "-f", "-", "-o", "json", "--validate=false", as],
      JSON.stringify(review),
    );
    const { status } = reviewSchema.parse(JSON.parse(said));
    expect(status.incomplete).toBe(false);
    return status.resourceRules.flatMap(({ apiGroups, resources, resourceNames, verbs }) =>
      apiGroups.flatMap((group) =>
        rightsOf({ group, resources, verbs, ...(resourceNames === undefined ? {} : { names: resourceNames }) }, ""),
      ),
    );
  }

  it.each(valueSets)("takes everything that is rendered for %s", (_, release, into, args) => {
    const objects = objectsOf(helm.template(release, into, ...args));
    const known = objects.filter(({ apiVersion }) => !foreign.test(apiVersion));
    const list = { apiVersion: "v1", kind: "List", items: known };
    // strict: an unknown field is an error
    const said = helm.kubectlOutput(["apply", "--dry-run=server", "-f", "-"], JSON.stringify(list));
    expect(said.trim().split("\n")).toHaveLength(known.length);
    const elsewhere = objects.filter(isMisplaced(into));
    expect(elsewhere).toEqual([]);
  });

  it("is refused in a namespace that enforces PodSecurity, in words", () => {
    helm.kubectlOutput(["label", "namespace", "apps", "pod-security.kubernetes.io/enforce=restricted"]);
    const { status, stderr } = helm.helm("install", "substrate", chart, "-n", "apps", ...store);
    expect(status).not.toBe(0);
    expect(stderr).toContain('namespace apps enforces PodSecurity "restricted"');
    expect(stderr).toContain("kubectl label namespace apps --overwrite pod-security.kubernetes.io/enforce=privileged");
    helm.kubectlOutput(["label", "namespace", "apps", "pod-security.kubernetes.io/enforce-"]);
  });

  it("installs, says what comes next, and a second release is refused", () => {
    const installed = helm.helm("install", "substrate", chart, "-n", namespace, ...store);
    expect(installed.status, installed.stderr).toBe(0);
    expect(installed.stdout).toContain("kubectl -n substrate-system rollout status daemonset/substrate-atelet");
    const second = helm.helm("install", "other", chart, "-n", "apps", ...store);
    expect(second.status).not.toBe(0);
    expect(second.stderr).toContain(
      'Substrate is installed in this cluster already, as release "substrate" in namespace "substrate-system"',
    );
    expect(second.stderr).toContain("helm upgrade substrate CHART -n substrate-system");
  });

  it("is upgraded to the same without a change", () => {
    const kinds =
      "deployments,daemonsets,services,roles,rolebindings,networkpolicies,serviceaccounts,poddisruptionbudgets";
    const generations = (): string =>
      helm.kubectlOutput([
        "get",
        `${kinds},clusterroles,crds,validatingadmissionpolicies`,
        "-n",
        namespace,
        "-l",
        "app.kubernetes.io/part-of=substrate",
        "-o",
        "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.generation} {.metadata.resourceVersion}{'\\n'}{end}",
      ]);
    const before = generations();
    const { status, stderr } = helm.helm("upgrade", "substrate", chart, "-n", namespace, ...store);
    expect(status, stderr).toBe(0);
    expect(generations()).toBe(before);
  });

  it.each(["operator", "atelet", "router"] as const)("gives the %s the rights of the table, and no more", (part) => {
    for (const where of [namespace, "kube-system", "apps"]) {
      const everybody = new Set(rights("nobody", where));
      const own = sorted(rights(`substrate-${part}`, where).filter((right) => !everybody.has(right)));
      expect(own, where).toEqual(expected(part, where));
    }
  });

  it("lets an atelet write the Lease of its own node only", async () => {
    helm.kubectlOutput(["create", "-f", "-"], JSON.stringify(podOn("node-a")));
    const bound = ["--bound-object-kind=Pod", "--bound-object-name=atelet-node-a"];
    const token = helm.kubectlOutput(["create", "token", "substrate-atelet", "-n", namespace, ...bound]).trim();
    const write = (node: string): string => {
      const lease = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: node, namespace } };
      const authority = plane.plane.pki.files.authority;
      const as = ["--kubeconfig=/dev/null", `--server=${plane.server}`, `--certificate-authority=${authority}`];
      const args = ["create", "--dry-run=server", "-f", "-", `--token=${token}`, ...as];
      const { status, stderr } = helm.kubectl(args, JSON.stringify(lease));
      return status === 0 ? "written" : stderr;
    };
    await eventually(
      () => {
        expect(write("node-b")).toContain('this token is of a pod on node "node-a", the Lease is of "node-b"');
      },
      { deadlineMs: POLICY_DEADLINE_MS, everyMs: 500 },
    );
    expect(write("node-a")).toBe("written");
  });

  it("lets the operator make only its own Secrets and its own APIService", async () => {
    const as = `--as=system:serviceaccount:${namespace}:substrate-operator`;
    const create = (object: unknown): string => {
      const { status, stderr } = helm.kubectl(["create", "--dry-run=server", "-f", "-", as], JSON.stringify(object));
      return status === 0 ? "made" : stderr;
    };
    const secret = (name: string) => ({ apiVersion: "v1", kind: "Secret", metadata: { name, namespace } });
    const service = (version: string, group: string) => ({
      apiVersion: "apiregistration.k8s.io/v1",
      kind: "APIService",
      metadata: { name: `${version}.${group}` },
      spec: {
        version,
        group,
        groupPriorityMinimum: 1_000,
        versionPriority: 10,
        service: { name: "substrate-operator", namespace },
        insecureSkipTLSVerify: true,
      },
    });
    await eventually(
      () => {
        expect(create(secret("default-token"))).toContain('may not make secrets of the name "default-token"');
        expect(create(service("v1", "example.com"))).toContain('may not make apiservices of the name "v1.example.com"');
      },
      { deadlineMs: POLICY_DEADLINE_MS, everyMs: 500 },
    );
    expect(create(secret("substrate-ca"))).toBe("made");
    expect(create(service("v1alpha1", "subresources.substrate.run"))).toBe("made");
  });

  it("leaves the kinds and people's objects when it is uninstalled, and comes back under its name", () => {
    const template = {
      apiVersion: "substrate.run/v1alpha1",
      kind: "Template",
      metadata: { name: "kept", namespace: "apps" },
      spec: {
        containers: [
          {
            name: "main",
            image: "registry.example.com/app:1",
            ports: [{ name: "http", containerPort: 8080 }],
            readyz: { httpGet: { path: "/readyz", port: "http" } },
            resources: { limits: { cpu: "500m", memory: "128Mi" } },
          },
        ],
      },
    };
    helm.kubectlOutput(["create", "-f", "-"], JSON.stringify(template));
    const removed = helm.helm("uninstall", "substrate", "-n", namespace);
    expect(removed.status, removed.stderr).toBe(0);
    helm.kubectlOutput(["get", "templates.substrate.run", "kept", "-n", "apps"]);
    const kinds = "deployments,daemonsets,services,roles,networkpolicies,clusterroles,validatingadmissionpolicies,crds";
    const left = helm
      .kubectlOutput(["get", kinds, "-n", namespace, "-l", "app.kubernetes.io/part-of=substrate", "-o", "name"])
      .trim()
      .split("\n");
    expect(left.sort()).toEqual(
      ["actors", "snapshots", "templates"].map(
        (plural) => `customresourcedefinition.apiextensions.k8s.io/${plural}.substrate.run`,
      ),
    );
    const again = helm.helm("install", "substrate", chart, "-n", namespace, ...store);
    expect(again.status, again.stderr).toBe(0);
    helm.kubectlOutput(["get", "templates.substrate.run", "kept", "-n", "apps"]);
  });
});

/** Objects in a namespace that the release is not in; what the API server keeps in kube-system aside. */
function isMisplaced(into: string): (object: Rendered) => boolean {
  return ({ metadata }) =>
    metadata.namespace !== undefined && metadata.namespace !== into && metadata.namespace !== "kube-system";
}

function podOn(nodeName: string): unknown {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `atelet-${nodeName}`, namespace },
    spec: {
      nodeName,
      serviceAccountName: "substrate-atelet",
      automountServiceAccountToken: false,
      containers: [{ name: "atelet", image: "example.com/atelet" }],
    },
  };
}
