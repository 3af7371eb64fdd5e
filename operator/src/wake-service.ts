import { randomUUID } from "node:crypto";
import { type Actor } from "@substrate/crds/index.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import {
  type WakeRequest,
  type WakeResponse,
  WakeServiceService,
} from "@substrate/lib/gen/substrate/operator/v1/wake.ts";
import { type Reflector } from "@substrate/lib/kube/reflector.ts";
import { type Logger } from "@substrate/lib/log.ts";
import { type RpcServerOptions, unaryHandler } from "@substrate/lib/rpc/server.ts";
import { type Leadership } from "./leader.ts";
import { type Waker } from "./wake.ts";

export interface WakeServiceOptions {
  waker: Waker;
  actors: Reflector<Actor>;
  leadership: Leadership;
  /** Common name of the routers' certificates. */
  routerName: string;
  log: Logger;
}

/** What routers ask when no attached node holds an actor. */
export function wakeService(options: WakeServiceOptions): RpcServerOptions["services"][number] {
  const { log, routerName } = options;
  const wake = unaryHandler<WakeRequest, WakeResponse>({ log, allowed: [routerName] }, async (request) => {
    options.leadership.proof();
    const { actorUid } = request;
    // a router may know the actor from before it was made again; the uid decides
    const known = options.actors.byUid(actorUid)?.metadata;
    const namespace = known?.namespace ?? request.namespace;
    const name = known?.name ?? request.name;
    if (actorUid === "" || namespace === "" || name === "") {
      throw new SubstrateError("INVALID", "a wake names the actor's uid, namespace and name");
    }
    return options.waker.wake(actorUid, `${namespace}/${name}`, randomUUID());
  });
  return { definition: WakeServiceService, implementation: { wake } };
}
