/** What every Kubernetes object carries; times are RFC 3339 strings as they come in JSON. */
export interface ObjectMeta {
  name: string;
  namespace?: string;
  generateName?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  finalizers?: string[];
  ownerReferences?: OwnerReference[];
}

export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

export interface KubeObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
}

/** A kind of object and where the API server has it. */
export interface ResourceType<T extends KubeObject> {
  /** Empty for the core group. */
  group: string;
  version: string;
  plural: string;
  kind: string;
  namespaced: boolean;
  /** Never set: it carries the objects' type to the client's methods. */
  objectType?: T;
}

/** An object about to be sent: the client fills in apiVersion and kind from the resource type. */
export type Sent<T extends KubeObject> = Omit<T, "apiVersion" | "kind"> & { apiVersion?: string; kind?: string };

/** The fields that one manager owns, for server-side apply: any part of an object but its name. */
export type Applied<T extends KubeObject> = Partial<Omit<T, "metadata">> & { metadata: ObjectMeta };

export type WatchEvent<T extends KubeObject> =
  | { type: "ADDED" | "MODIFIED" | "DELETED"; object: T }
  /** Nothing changed up to this version. */
  | { type: "BOOKMARK"; resourceVersion: string };

/** `group/version` as in an object's apiVersion field. */
export function apiVersionOf(type: ResourceType<KubeObject>): string {
  return type.group === "" ? type.version : `${type.group}/${type.version}`;
}

/** `namespace/name`, or `name` for objects without a namespace: the key of queues and caches. */
export function keyOf(object: { metadata: { name: string; namespace?: string } }): string {
  return object.metadata.namespace === undefined
    ? object.metadata.name
    : `${object.metadata.namespace}/${object.metadata.name}`;
}
