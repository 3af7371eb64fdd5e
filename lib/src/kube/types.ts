import { type KubeObject, type ObjectMeta, type ResourceType } from "./object.ts";

/** Times of a Lease are MicroTime strings: RFC 3339 with six decimals. */
export interface Lease extends KubeObject {
  spec?: {
    holderIdentity?: string;
    leaseDurationSeconds?: number;
    acquireTime?: string;
    renewTime?: string;
    leaseTransitions?: number;
  };
}

export interface Taint {
  key: string;
  value?: string;
  effect: "NoSchedule" | "PreferNoSchedule" | "NoExecute";
}

export interface Node extends KubeObject {
  spec?: { unschedulable?: boolean; taints?: Taint[] };
  status?: {
    capacity?: Record<string, string>;
    allocatable?: Record<string, string>;
    conditions?: { type: string; status: string; reason?: string; message?: string }[];
    nodeInfo?: { bootID?: string; architecture?: string };
  };
}

export interface Namespace extends KubeObject {
  status?: { phase?: "Active" | "Terminating" };
}

export interface ObjectReference {
  apiVersion: string;
  kind: string;
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
}

/** A core/v1 Event: what `kubectl describe` and `kubectl get events` show. */
export interface Event extends KubeObject {
  involvedObject: ObjectReference;
  type: "Normal" | "Warning";
  reason: string;
  message: string;
  count?: number;
  firstTimestamp?: string;
  lastTimestamp?: string;
  source?: { component?: string; host?: string };
  reportingComponent?: string;
  reportingInstance?: string;
}

/** Keeps one revision of a Template while an actor or a snapshot needs it. */
export interface ControllerRevision extends KubeObject {
  revision: number;
  data?: unknown;
}

export interface Secret extends KubeObject {
  type?: string;
  /** Base64. */
  data?: Record<string, string>;
}

export interface ClusterRole extends KubeObject {
  rules?: unknown[];
}

/** Tells kube-apiserver which Service answers for an API group. */
export interface ApiService extends KubeObject {
  spec: {
    group: string;
    version: string;
    groupPriorityMinimum: number;
    versionPriority: number;
    /** Base64 of PEM. */
    caBundle?: string;
    service?: { namespace: string; name: string; port?: number };
  };
}

export interface ConfigMap extends KubeObject {
  data?: Record<string, string>;
}

/** A question that the API server answers at once; it keeps no object of it. */
export interface SubjectAccessReview extends KubeObject {
  spec: {
    user: string;
    uid?: string;
    groups: string[];
    extra: Record<string, string[]>;
    resourceAttributes: {
      namespace: string;
      verb: string;
      group: string;
      resource: string;
      subresource?: string;
      name: string;
    };
  };
  status?: { allowed: boolean; reason?: string };
}

export interface CustomResourceDefinition extends KubeObject {
  spec: Record<string, unknown>;
  status?: { conditions?: { type: string; status: string; reason?: string; message?: string }[] };
}

export const leases: ResourceType<Lease> = {
  group: "coordination.k8s.io",
  version: "v1",
  plural: "leases",
  kind: "Lease",
  namespaced: true,
};

export const nodes: ResourceType<Node> = { group: "", version: "v1", plural: "nodes", kind: "Node", namespaced: false };

export const namespaces: ResourceType<Namespace> = {
  group: "",
  version: "v1",
  plural: "namespaces",
  kind: "Namespace",
  namespaced: false,
};

export const events: ResourceType<Event> = {
  group: "",
  version: "v1",
  plural: "events",
  kind: "Event",
  namespaced: true,
};

export const secrets: ResourceType<Secret> = {
  group: "",
  version: "v1",
  plural: "secrets",
  kind: "Secret",
  namespaced: true,
};

export const clusterRoles: ResourceType<ClusterRole> = {
  group: "rbac.authorization.k8s.io",
  version: "v1",
  plural: "clusterroles",
  kind: "ClusterRole",
  namespaced: false,
};

export const apiServices: ResourceType<ApiService> = {
  group: "apiregistration.k8s.io",
  version: "v1",
  plural: "apiservices",
  kind: "APIService",
  namespaced: false,
};

export const configMaps: ResourceType<ConfigMap> = {
  group: "",
  version: "v1",
  plural: "configmaps",
  kind: "ConfigMap",
  namespaced: true,
};

export const subjectAccessReviews: ResourceType<SubjectAccessReview> = {
  group: "authorization.k8s.io",
  version: "v1",
  plural: "subjectaccessreviews",
  kind: "SubjectAccessReview",
  namespaced: false,
};

export const controllerRevisions: ResourceType<ControllerRevision> = {
  group: "apps",
  version: "v1",
  plural: "controllerrevisions",
  kind: "ControllerRevision",
  namespaced: true,
};

export const customResourceDefinitions: ResourceType<CustomResourceDefinition> = {
  group: "apiextensions.k8s.io",
  version: "v1",
  plural: "customresourcedefinitions",
  kind: "CustomResourceDefinition",
  namespaced: false,
};

/** A MicroTime as the API server wants it: a plain Date string gets a 400. */
export function microTime(date: Date): string {
  return date.toISOString().replace("Z", "000Z");
}

/** A reference to `object` for an Event, or for messages. */
export function referenceTo(object: { apiVersion: string; kind: string; metadata: ObjectMeta }): ObjectReference {
  const { name, namespace, uid, resourceVersion } = object.metadata;
  return {
    apiVersion: object.apiVersion,
    kind: object.kind,
    name,
    ...(namespace === undefined ? {} : { namespace }),
    ...(uid === undefined ? {} : { uid }),
    ...(resourceVersion === undefined ? {} : { resourceVersion }),
  };
}
