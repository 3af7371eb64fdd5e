import { afterAll, describe, expect, it } from "vitest";
import { chart, Helm, objectsOf, store, whyNoHelm } from "./helm.ts";

const helm = new Helm();
afterAll(() => {
  helm.close();
});

/** Values that make no sense, and what the refusal says: the value's path, and the fix. */
const refusals: readonly [string, readonly string[], readonly RegExp[]][] = [
  ["no store", [], [/stores is empty/, /--set 'stores\.default\.url=s3:\/\/BUCKET/]],
  [
    "a store's URL of another kind",
    ["--set", "stores.default.url=http://x"],
    [/stores\.default\.url is "http:\/\/x": give s3:\/\/BUCKET/],
  ],
  [
    "a folder that pods do not keep",
    ["--set", "stores.default.url=file:///srv/x"],
    [/stores\.default\.url.*below storagePath \(\/var\/lib\/substrate\)/],
  ],
  ["an unknown value", [...store, "--set", "operator.replicaz=3"], [/'\/operator'.*'replicaz' not allowed/]],
  ["no replica", [...store, "--set", "router.replicas=0"], [/'\/router\/replicas'.*got 0, want 1/]],
  ["a number as text", [...store, "--set-string", "operator.replicas=2"], [/'\/operator\/replicas'.*want integer/]],
  [
    "maxSurge",
    [...store, "--set", "atelet.updateStrategy.rollingUpdate.maxSurge=1"],
    [/'\/atelet\/updateStrategy\/rollingUpdate\/maxSurge': value must be 0/],
  ],
  [
    "a grace period too short",
    [...store, "--set", "atelet.terminationGracePeriodSeconds=5"],
    [/'\/atelet\/terminationGracePeriodSeconds'.*got 5, want 30/],
  ],
  [
    "memory without a unit",
    [...store, "--set", "atelet.resources.memory=4Gb"],
    [/memory of node pool default is "4Gb": give whole Ki, Mi, Gi or Ti/],
  ],
  ["limits as in pods", [...store, "--set", "atelet.resources.limits.memory=4Gi"], [/'limits' not allowed/]],
  [
    "a reserve that leaves nothing",
    [...store, "--set", "atelet.resources.memory=256Mi"],
    [/reserve of node pool default is not below its memory \(256Mi\).*Give it more memory/],
  ],
  ["no pool", [...store, "--set-json", "nodePools=[]"], [/'\/nodePools'.*got 0, want 1/]],
  [
    "pools that share nodes",
    [...store, "--set-json", 'nodePools=[{"name":"a","nodeSelector":{"pool":"a"}},{"name":"b"}]'],
    [/nodePools\[1\] \(b\) has no nodeSelector/],
  ],
  [
    "two pools of a name",
    [...store, "--set-json", 'nodePools=[{"name":"a","nodeSelector":{"x":"a"}},{"name":"a","nodeSelector":{"x":"b"}}]'],
    [/nodePools\[1\]\.name is "a", like that of another pool/],
  ],
  [
    "a root folder",
    [...store, "--set", "atelet.storagePath=/"],
    [/storagePath of node pool default is "\/": give an absolute path/],
  ],
  ["a provider", [...store, "--set", "certificates.provider=vault"], [/'managed', 'cert-manager', 'existing'/]],
  [
    "a namespace too long for cert-manager",
    [...store, "--set", "certificates.provider=cert-manager", "-n", "a-namespace-that-is-much-too-long-for-it"],
    [/at most 33, or provider managed/],
  ],
  [
    "a route to no Gateway",
    [...store, "--set", "router.httpRoute.enabled=true"],
    [/needs router\.httpRoute\.parentRefs: name the Gateway/],
  ],
  [
    "a range",
    [...store, "--set", "network.denyCIDRs={10.0.0.0}"],
    [/network\.denyCIDRs\[0\] is "10\.0\.0\.0": give an IPv4 range/],
  ],
];

describe.skipIf(whyNoHelm !== undefined)(`the chart${whyNoHelm === undefined ? "" : ` (${whyNoHelm})`}`, () => {
  it("passes helm lint", () => {
    const { status, stdout } = helm.helm("lint", chart, "--strict", ...store);
    expect(status, stdout).toBe(0);
  });

  it("renders the same bytes twice", () => {
    const args = ["--set", "metrics.serviceMonitor.enabled=true", "--set", "registries.caConfigMap=ca"];
    const [first, second] = [0, 1].map(() => helm.template("substrate", "substrate-system", ...store, ...args));
    expect(second).toBe(first);
  });

  it.each(refusals)("refuses %s", (_, args, words) => {
    const said = helm.refusal(...args);
    for (const word of words) expect(said).toMatch(word);
  });

  it("names objects after the release", () => {
    const names = (release: string): string[] =>
      objectsOf(helm.template(release, "apps", ...store))
        .filter(({ kind }) => kind === "DaemonSet" || kind === "Deployment")
        .map(({ metadata }) => metadata.name);
    expect(names("substrate-eu")).toEqual(["substrate-eu-atelet", "substrate-eu-operator", "substrate-eu-router"]);
    expect(names("prod")).toEqual(["prod-substrate-atelet", "prod-substrate-operator", "prod-substrate-router"]);
  });

  it("rolls the atelets when their registries change, and for nothing else in them", () => {
    const atelet = (...args: string[]): unknown =>
      objectsOf(helm.template("substrate", "substrate-system", ...store, ...args)).find(
        ({ kind }) => kind === "DaemonSet",
      );
    const mirror = (location: string): string[] => [
      "--set-json",
      `registries.mirrors=[{"prefix":"docker.io","location":"${location}"}]`,
    ];
    expect(atelet(...mirror("a.example.com"))).not.toEqual(atelet(...mirror("b.example.com")));
    expect(atelet("--set", "router.replicas=3")).toEqual(atelet());
  });
});
