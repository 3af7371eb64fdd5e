import { isAlreadyExists, type KubeClient } from "@substrate/lib/kube/client.ts";
import { type Secret, secrets } from "@substrate/lib/kube/types.ts";
import { type ManagedCertificates } from "../config.ts";
import {
  type Authorities,
  advance,
  encode,
  firstAuthorities,
  formatAuthorities,
  parseAuthorities,
  requestAnnotation,
} from "./authorities.ts";
import { isOwnedBy, type Owner } from "./owner.ts";

const ownAnnotation = "substrate.run/";
const labels = { "app.kubernetes.io/managed-by": "substrate-operator" };

/** The Secrets of authority and certificates, written only with the version that was read. */
export class CertificateSecrets {
  readonly #client: KubeClient;
  readonly #namespace: string;
  readonly #settings: ManagedCertificates;
  readonly #owner: Owner;

  constructor(client: KubeClient, namespace: string, settings: ManagedCertificates, owner: Owner) {
    this.#client = client;
    this.#namespace = namespace;
    this.#settings = settings;
    this.#owner = owner;
  }

  /** As they are in the cluster; made by whoever comes first. */
  async authorities(): Promise<Authorities> {
    const secret = await this.#read("ca");
    if (secret !== undefined) return parseAuthorities(secret);
    const made = await firstAuthorities(this.#settings);
    const { annotations, data } = formatAuthorities(made);
    try {
      await this.#write("ca", undefined, data, annotations);
      return made;
    } catch (error) {
      if (!isAlreadyExists(error)) throw error;
      return this.authorities();
    }
  }

  /** Takes the next step of a change of authority, if one is due. For the leader. */
  async advance(): Promise<{ authorities: Authorities; hasChanged: boolean }> {
    const secret = await this.#read("ca");
    if (secret === undefined) return { authorities: await this.authorities(), hasChanged: true };
    const now = parseAuthorities(secret);
    const isRequested = secret.metadata.annotations?.[requestAnnotation] !== undefined;
    const authorities = await advance(now, this.#settings, isRequested, Date.now());
    const hasChanged = authorities !== now;
    if (hasChanged || !isOwnedBy(secret.metadata, await this.#owner.references())) {
      const { annotations, data } = formatAuthorities(authorities);
      // a request that waits for the end of another change stays
      const request = isRequested && !hasChanged ? { [requestAnnotation]: "waits" } : {};
      await this.#write("ca", secret, data, { ...annotations, ...request });
    }
    return { authorities, hasChanged };
  }

  /** The certificate in a part's Secret; undefined when there is none. */
  async read(part: string): Promise<{ cert: string; key: string; ca: string; secret: Secret } | undefined> {
    const secret = await this.#read(`${part}-tls`);
    if (secret === undefined) return undefined;
    const value = (key: string): string => Buffer.from(secret.data?.[key] ?? "", "base64").toString();
    return { cert: value("tls.crt"), key: value("tls.key"), ca: value("ca.crt"), secret };
  }

  async write(
    part: string,
    before: Secret | undefined,
    pair: { cert: string; key: string; ca: string },
  ): Promise<void> {
    const data = encode({ "tls.crt": pair.cert, "tls.key": pair.key, "ca.crt": pair.ca });
    await this.#write(`${part}-tls`, before, data, {});
  }

  /** Whether the Secret goes with this installation. */
  async isOwned({ metadata }: Secret): Promise<boolean> {
    return isOwnedBy(metadata, await this.#owner.references());
  }

  #read(suffix: string): Promise<Secret | undefined> {
    return this.#client.get(secrets, `${this.#settings.prefix}-${suffix}`, this.#namespace);
  }

  async #write(
    suffix: string,
    before: Secret | undefined,
    data: Record<string, string>,
    annotations: Record<string, string>,
  ): Promise<void> {
    const foreign = Object.entries(before?.metadata.annotations ?? {}).filter(
      ([key]) => !key.startsWith(ownAnnotation),
    );
    const secret = {
      metadata: {
        name: `${this.#settings.prefix}-${suffix}`,
        namespace: this.#namespace,
        labels: { ...before?.metadata.labels, ...labels },
        annotations: { ...Object.fromEntries(foreign), ...annotations },
        ownerReferences: await this.#owner.references(),
        ...(before?.metadata.resourceVersion === undefined ? {} : { resourceVersion: before.metadata.resourceVersion }),
      },
      type: "kubernetes.io/tls",
      data,
    };
    await (before === undefined ? this.#client.create(secrets, secret) : this.#client.replace(secrets, secret));
  }
}
