import { groupVersion } from "./discovery.ts";

export interface ActorPath {
  namespace: string;
  name: string;
  subresource: string;
  /** What follows the subresource, with its leading slash; "" if nothing does. Still encoded. */
  rest: string;
}

const pattern = new RegExp(
  `^/apis/${groupVersion.replaceAll(".", "\\.")}/namespaces/([^/]+)/actors/([^/]+)/([a-z]+)(/.*)?$`,
);

/** The actor and subresource that a path names; undefined for any other path. Throws URIError for broken escapes. */
export function parseActorPath(path: string): ActorPath | undefined {
  const [, namespace, name, subresource, rest = ""] = pattern.exec(path) ?? [];
  if (namespace === undefined || name === undefined || subresource === undefined) return undefined;
  return { namespace: decodeURIComponent(namespace), name: decodeURIComponent(name), subresource, rest };
}
