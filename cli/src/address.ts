/** An actor by its name, and where the API server has it. */
export interface ActorAddress {
  readonly namespace: string;
  readonly name: string;
}

export function actorsPath(namespace: string | undefined): string {
  const scope = namespace === undefined ? "" : `/namespaces/${encodeURIComponent(namespace)}`;
  return `/apis/substrate.run/v1alpha1${scope}/actors`;
}

export function actorPath({ namespace, name }: ActorAddress): string {
  return `${actorsPath(namespace)}/${encodeURIComponent(name)}`;
}

export type Subresource = "suspend" | "resume" | "log" | "proxy" | "exec" | "usage" | "operations";

export function subresourcePath({ namespace, name }: ActorAddress, subresource: Subresource): string {
  const scope = `/namespaces/${encodeURIComponent(namespace)}`;
  return `/apis/subresources.substrate.run/v1alpha1${scope}/actors/${encodeURIComponent(name)}/${subresource}`;
}
