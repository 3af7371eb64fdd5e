/** Who needs which right, and for what: the chart's roles, those of local mode and docs/reference/rbac.md come from here. */

export type Part = "operator" | "atelet" | "router";

export interface Rule {
  /** Where it holds: in every namespace, or in that of the installation. */
  scope: "cluster" | "namespace";
  group: string;
  resources: readonly string[];
  verbs: readonly string[];
  /** Only objects of these names; `{fullname}` stands for the name that the installation's objects begin with. */
  names?: readonly string[];
  why: string;
  /** Why it is not narrowed to names, where that would be asked. */
  wide?: string;
  /** Only where the operator makes the parts' certificates itself. */
  managedCertificates?: true;
}

/** A role of Kubernetes' own that a part is bound to. */
export interface Borrowed {
  role: string;
  namespace: string;
  why: string;
}

export interface PartRights {
  part: Part;
  rules: readonly Rule[];
  borrowed: readonly Borrowed[];
}

const substrate = "substrate.run";
const verbs = "subresources.substrate.run";
/** RBAC looks at names in the URL, and that of a POST has none. */
const createHasNoName = "a create cannot be narrowed: its URL carries no name";

export const parts: readonly PartRights[] = [
  {
    part: "operator",
    rules: [
      {
        scope: "cluster",
        group: substrate,
        resources: ["templates", "actors", "snapshots"],
        verbs: ["get", "list", "watch"],
        why: "what people ask for, in all namespaces",
      },
      {
        scope: "cluster",
        group: substrate,
        resources: ["templates/status", "actors/status", "snapshots/status"],
        verbs: ["patch"],
        why: "status, and the assignment of an actor to a node",
      },
      {
        scope: "cluster",
        group: substrate,
        resources: ["actors"],
        verbs: ["patch"],
        why: "the finalizer, which lets a deletion wait for the node; spec is never written",
      },
      {
        scope: "cluster",
        group: substrate,
        resources: ["snapshots"],
        verbs: ["create", "patch", "delete"],
        why: "objects of stored generations and golden snapshots, and their finalizer",
      },
      {
        scope: "cluster",
        group: "apps",
        resources: ["controllerrevisions"],
        verbs: ["get", "list", "create", "delete"],
        why: "revisions of Templates, for actors that stay on an older one",
      },
      {
        scope: "cluster",
        group: "",
        resources: ["secrets"],
        verbs: ["get"],
        why: "values of secretKeyRef in env, read when an actor is assigned",
        wide: "users name their own Secrets, in their namespaces. Never listed or watched; who may name which is an admission policy's (verb use)",
      },
      {
        scope: "cluster",
        group: "",
        resources: ["events"],
        verbs: ["create", "patch"],
        why: "Events about Templates, Actors and Snapshots, in their namespaces",
      },
      {
        scope: "cluster",
        group: "",
        resources: ["nodes"],
        verbs: ["list", "watch"],
        why: "placement: labels, taints, cordons, readiness",
      },
      {
        scope: "cluster",
        group: "",
        resources: ["namespaces"],
        verbs: ["get"],
        why: "uid of kube-system, by which a store knows the cluster, and of the actors' namespaces",
      },
      {
        scope: "cluster",
        group: "authorization.k8s.io",
        resources: ["subjectaccessreviews"],
        verbs: ["create"],
        why: "asks whether the caller of a verb may exec, or use a snapshot",
      },
      {
        scope: "cluster",
        group: "apiregistration.k8s.io",
        resources: ["apiservices"],
        verbs: ["get", "update"],
        names: ["v1alpha1.subresources.substrate.run"],
        why: "the APIService of the verbs: its caBundle follows the certificates",
      },
      {
        scope: "cluster",
        group: "apiregistration.k8s.io",
        resources: ["apiservices"],
        verbs: ["create"],
        why: "the same, at the first start",
        wide: `${createHasNoName}; an admission policy of the chart refuses every other name`,
      },
      {
        scope: "cluster",
        group: "rbac.authorization.k8s.io",
        resources: ["clusterroles"],
        verbs: ["get"],
        names: ["{fullname}-operator"],
        why: "its uid: the APIService and the Secrets of the certificates belong to it, so that an uninstall removes them",
      },
      {
        scope: "namespace",
        group: "coordination.k8s.io",
        resources: ["leases"],
        verbs: ["list", "watch"],
        why: "the atelets' Leases: addresses and sessions of the nodes",
      },
      {
        scope: "namespace",
        group: "coordination.k8s.io",
        resources: ["leases"],
        verbs: ["get", "update"],
        names: ["substrate-operator"],
        why: "leader election",
      },
      {
        scope: "namespace",
        group: "coordination.k8s.io",
        resources: ["leases"],
        verbs: ["create"],
        why: "leader election, at the first start",
        wide: createHasNoName,
      },
      {
        scope: "namespace",
        group: "",
        resources: ["secrets"],
        verbs: ["get", "update"],
        names: ["{fullname}-ca", "{fullname}-atelet-tls", "{fullname}-router-tls"],
        why: "the parts' certificates and their authority",
        managedCertificates: true,
      },
      {
        scope: "namespace",
        group: "",
        resources: ["secrets"],
        verbs: ["create"],
        why: "the same, at the first start",
        wide: `${createHasNoName}; an admission policy of the chart refuses every other name`,
        managedCertificates: true,
      },
    ],
    borrowed: [
      {
        role: "extension-apiserver-authentication-reader",
        namespace: "kube-system",
        why: "the authority of kube-apiserver's front proxy, which carries the caller's identity to the verbs",
      },
    ],
  },
  {
    part: "atelet",
    rules: [
      {
        scope: "namespace",
        group: "coordination.k8s.io",
        resources: ["leases"],
        verbs: ["get", "create", "update"],
        why: "the Lease of its node: address, session, that it lives",
        wide: "all nodes share a ServiceAccount, and Leases are named as nodes; an admission policy of the chart lets an atelet write only that of the node its pod runs on",
      },
    ],
    borrowed: [],
  },
  {
    part: "router",
    rules: [
      {
        scope: "cluster",
        group: substrate,
        resources: ["actors"],
        verbs: ["list", "watch"],
        why: "which node an actor is assigned to, and whether it may be woken",
      },
      {
        scope: "namespace",
        group: "coordination.k8s.io",
        resources: ["leases"],
        verbs: ["list", "watch"],
        why: "addresses of atelets and of the leading operator",
      },
    ],
    borrowed: [],
  },
];

export type Aggregate = "view" | "edit" | "admin";

/** A ClusterRole for people. */
export interface PeopleRole {
  name: string;
  /** The cluster's own roles that get its rules. */
  aggregateTo: readonly Aggregate[];
  rules: readonly Omit<Rule, "scope">[];
}

export const people: readonly PeopleRole[] = [
  {
    name: "view",
    aggregateTo: ["view", "edit", "admin"],
    rules: [
      {
        group: substrate,
        resources: ["templates", "actors", "snapshots"],
        verbs: ["get", "list", "watch"],
        why: "to look",
      },
      {
        group: verbs,
        resources: ["actors/log", "actors/usage", "actors/operations"],
        verbs: ["get"],
        why: "output, use and past operations of an actor",
      },
    ],
  },
  {
    name: "edit",
    aggregateTo: ["edit", "admin"],
    rules: [
      {
        group: substrate,
        resources: ["templates", "actors", "snapshots"],
        verbs: ["create", "update", "patch", "delete", "deletecollection"],
        why: "to change",
      },
      {
        group: substrate,
        resources: ["snapshots"],
        verbs: ["use"],
        why: "forks: an Actor that begins from a Snapshot has all that is in it",
      },
      {
        group: verbs,
        resources: ["actors/suspend", "actors/resume"],
        verbs: ["create"],
        why: "kubectl ate suspend, resume",
      },
      {
        group: verbs,
        resources: ["actors/exec"],
        verbs: ["create", "get"],
        why: "kubectl ate exec, cp; a WebSocket is a GET",
      },
      {
        group: verbs,
        resources: ["actors/proxy"],
        verbs: ["create", "delete", "get", "patch", "update"],
        why: "requests through the API server, by their method",
      },
    ],
  },
  {
    name: "admin",
    aggregateTo: ["admin"],
    rules: [
      {
        group: "",
        resources: ["secrets"],
        verbs: ["use"],
        why: "Secrets in env: its program can show them, and admin may read Secrets anyway",
      },
    ],
  },
  {
    name: "nodes",
    aggregateTo: [],
    rules: [
      {
        group: verbs,
        resources: ["nodes"],
        verbs: ["list"],
        why: "the room of the nodes (kubectl ate top nodes): it concerns no namespace and is given on its own",
      },
    ],
  },
];
