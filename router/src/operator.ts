import { type ChannelCredentials } from "@grpc/grpc-js";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { WakeServiceClient } from "@substrate/lib/gen/substrate/operator/v1/wake.ts";
import { dial, unary } from "@substrate/lib/rpc/client.ts";
import { type ActorIdentity } from "./actor.ts";

/** The operator's WakeService, wherever its Lease says that it is: for actors that no atelet holds. */
export class OperatorLink {
  readonly #credentials: ChannelCredentials;
  #address: string | undefined;
  #client: WakeServiceClient | undefined;

  constructor(credentials: ChannelCredentials) {
    this.#credentials = credentials;
  }

  setAddress(address: string | undefined): void {
    if (address === this.#address) return;
    this.close();
    this.#address = address;
  }

  /** Placed, granted and ready when it resolves. @throws {SubstrateError} of the operator, or NODE_UNAVAILABLE */
  async wake(actor: ActorIdentity, deadlineMs: number): Promise<void> {
    if (this.#address === undefined) {
      throw new SubstrateError(
        "NODE_UNAVAILABLE",
        "no node holds the actor and the operator is not running (there is no Lease substrate-operator with its address)",
      );
    }
    this.#client ??= dial(WakeServiceClient, this.#address, "operator", this.#credentials);
    const request = { actorUid: actor.uid, namespace: actor.namespace, name: actor.name };
    await unary(this.#client.wake.bind(this.#client), request, { deadlineMs });
  }

  close(): void {
    this.#client?.close();
    this.#client = undefined;
  }
}
