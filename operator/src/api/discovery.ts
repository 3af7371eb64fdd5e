export const group = "subresources.substrate.run";
export const version = "v1alpha1";
export const groupVersion = `${group}/${version}`;

const proxyVerbs = ["create", "delete", "get", "patch", "update"];

/** The resources of this API; kube-apiserver asks for them and checks their verbs by RBAC. */
const resources = [
  { name: "actors/suspend", kind: "Operation", verbs: ["create"] },
  { name: "actors/resume", kind: "Operation", verbs: ["create"] },
  { name: "actors/log", kind: "Actor", verbs: ["get"] },
  // a WebSocket: get for kube-apiserver, create for the operator itself
  { name: "actors/exec", kind: "Actor", verbs: ["create", "get"] },
  { name: "actors/usage", kind: "ActorUsage", verbs: ["get"] },
  { name: "actors/operations", kind: "ActorOperationList", verbs: ["get"] },
  { name: "actors/proxy", kind: "Actor", verbs: proxyVerbs },
].map((resource) => ({ ...resource, singularName: "", namespaced: true }));

const nodes = { name: "nodes", kind: "NodeUsage", verbs: ["list"], singularName: "node", namespaced: false };

const apiGroup = {
  name: group,
  versions: [{ groupVersion, version }],
  preferredVersion: { groupVersion, version },
};

/** The discovery document at this path, or undefined if there is none. */
export function discovery(path: string): object | undefined {
  switch (path.replace(/\/$/, "")) {
    case "/apis":
      return { kind: "APIGroupList", apiVersion: "v1", groups: [apiGroup] };
    case `/apis/${group}`:
      return { kind: "APIGroup", apiVersion: "v1", ...apiGroup };
    case `/apis/${groupVersion}`:
      return { kind: "APIResourceList", apiVersion: "v1", groupVersion, resources: [...resources, nodes] };
    default:
      return undefined;
  }
}
