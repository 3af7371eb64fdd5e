import { type Actor, actors } from "@substrate/crds/actor.ts";
import { type KubeClient } from "@substrate/lib/kube/client.ts";
import { Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Lease, leases } from "@substrate/lib/kube/types.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type AteletAddress } from "./atelets.ts";
import { type ActorNames, type KnownActor } from "./names.ts";
import { type Router } from "./router.ts";

const partLabel = "substrate.run/part";
const addressAnnotation = "substrate.run/address";
const bootAnnotation = "substrate.run/boot-id";
const operatorLease = "substrate-operator";

/** Actor objects, as far as the router needs them. */
export class KubeActorNames implements ActorNames {
  readonly #reflector: Reflector<Actor>;

  constructor(client: KubeClient, log: Logger) {
    this.#reflector = new Reflector(client, actors, { log });
  }

  get isSynced(): boolean {
    return this.#reflector.isSynced;
  }

  get synced(): Promise<void> {
    return this.#reflector.synced;
  }

  find(key: string): KnownActor | undefined {
    const actor = this.#reflector.byKey(key);
    const uid = actor?.metadata.uid;
    return uid === undefined ? undefined : { uid, nodeName: actor?.status?.assignment?.nodeName };
  }

  /** Runs until the signal aborts. */
  run(signal: AbortSignal): Promise<void> {
    return this.#reflector.run(signal);
  }
}

/** Tells the router the atelets and the operator that have Leases, until the signal aborts. */
export async function followLeases(
  client: KubeClient,
  namespace: string,
  router: Router,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  const reflector = new Reflector(client, leases, {
    namespace,
    labelSelector: `${partLabel} in (atelet, operator)`,
    log,
  });
  const tell = (): void => {
    const all = reflector.list();
    router.setOperator(
      all.find((lease) => lease.metadata.name === operatorLease)?.metadata.annotations?.[addressAnnotation],
    );
    router.setAtelets(all.flatMap(ateletOf));
  };
  void reflector.synced.then(() => {
    reflector.onChange((_key, lease, previous) => {
      // Leases are renewed every few seconds; only what a router uses of them matters here.
      if (fingerprint(lease) !== fingerprint(previous)) tell();
    });
    tell();
  });
  await reflector.run(signal);
}

function ateletOf(lease: Lease): AteletAddress[] {
  const { name, labels, annotations } = lease.metadata;
  const address = annotations?.[addressAnnotation];
  if (labels?.[partLabel] !== "atelet" || address === undefined) return [];
  return [{ nodeName: name, address, bootId: annotations?.[bootAnnotation] }];
}

function fingerprint(lease: Lease | undefined): string {
  const { labels, annotations } = lease?.metadata ?? {};
  return JSON.stringify([labels?.[partLabel], annotations?.[addressAnnotation], annotations?.[bootAnnotation]]);
}
