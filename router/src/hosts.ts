import { type IncomingHttpHeaders } from "node:http";

/** What a request asks for. `port` is a port's name or number as text; undefined is the actor's first port. */
export interface Target {
  readonly namespace: string;
  readonly name: string;
  readonly port: string | undefined;
  /** "namespace/name", the form of messages and of the index by name. */
  readonly key: string;
}

const dnsLabel = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
/** Hosts are few and repeat with every request; beyond this many they are parsed anew. */
const cacheSize = 10_000;

/** Finds the actor that a request is for, by its header or its host name. */
export class Hosts {
  readonly #suffix: string;
  readonly #domain: string;
  readonly #cache = new Map<string, Target | undefined>();

  constructor(domain: string) {
    this.#domain = domain.toLowerCase();
    this.#suffix = `.${this.#domain}`;
  }

  /** The target, or undefined if neither the header nor the host has a known form. */
  find(headers: IncomingHttpHeaders): Target | undefined {
    const byHeader = headers["substrate-actor"];
    if (byHeader !== undefined) return parseHeader(byHeader, headers["substrate-port"]);
    const host = headers.host;
    if (host === undefined) return undefined;
    if (this.#cache.has(host)) return this.#cache.get(host);
    const target = this.#parseHost(host);
    if (this.#cache.size >= cacheSize) this.#cache.clear();
    this.#cache.set(host, target);
    return target;
  }

  /** One sentence that teaches a person the forms. */
  help(): string {
    return (
      `send the host name <actor>.<namespace>.${this.#domain} or [<port>--]<actor>--<namespace>.${this.#domain}, ` +
      `or the header "Substrate-Actor: <namespace>/<actor>" (with "Substrate-Port: <name or number>" for another port)`
    );
  }

  #parseHost(host: string): Target | undefined {
    const bare = host.toLowerCase().replace(/:\d+$/, "").replace(/\.$/, "");
    if (!bare.endsWith(this.#suffix)) return undefined;
    const labels = bare.slice(0, -this.#suffix.length).split(".");
    if (labels.length === 2) return makeTarget(labels[1], labels[0], undefined);
    if (labels.length !== 1) return undefined;
    const parts = (labels[0] ?? "").split("--");
    if (parts.length === 2) return makeTarget(parts[1], parts[0], undefined);
    if (parts.length === 3) return makeTarget(parts[2], parts[1], parts[0]);
    return undefined;
  }
}

function parseHeader(actor: string | string[], port: string | string[] | undefined): Target | undefined {
  if (typeof actor !== "string" || Array.isArray(port)) return undefined;
  const parts = actor.trim().split("/");
  if (parts.length !== 2) return undefined;
  return makeTarget(parts[0], parts[1], port?.trim().toLowerCase());
}

function makeTarget(
  namespace: string | undefined,
  name: string | undefined,
  port: string | undefined,
): Target | undefined {
  if (namespace === undefined || name === undefined) return undefined;
  if (!dnsLabel.test(namespace) || !dnsLabel.test(name)) return undefined;
  if (port !== undefined && !dnsLabel.test(port)) return undefined;
  // No actor or port has "--" in its name (the schema refuses it): such a host is of no known form.
  if (name.includes("--") || port?.includes("--") === true) return undefined;
  return { namespace, name, port, key: `${namespace}/${name}` };
}
