import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Lease } from "@substrate/lib/kube/types.ts";

export const operatorLease = "substrate-operator";
export const operatorLabels = { "substrate.run/part": "operator" };
export const operatorSelector = "substrate.run/part=operator";
/** `host:port` of the API of the operator that holds the Lease. */
export const apiAddressAnnotation = "substrate.run/api-address";

/** Which operator leads, as its Lease says. */
export class Leaders {
  readonly #leases: Reflector<Lease>;
  readonly #namespace: string;

  /** `onFree`: the Lease was given back, so nobody need wait for its end. */
  constructor(leases: Reflector<Lease>, namespace: string, onFree: () => void) {
    this.#leases = leases;
    this.#namespace = namespace;
    leases.onChange((_key, lease) => {
      if (lease?.metadata.name === operatorLease && !isHeld(lease)) onFree();
    });
  }

  /** Undefined while nobody leads. */
  get apiAddress(): string | undefined {
    const lease = this.#leases.get(this.#namespace, operatorLease);
    return lease !== undefined && isHeld(lease) ? lease.metadata.annotations?.[apiAddressAnnotation] : undefined;
  }
}

function isHeld({ spec }: Lease): boolean {
  return (spec?.holderIdentity ?? "") !== "";
}
