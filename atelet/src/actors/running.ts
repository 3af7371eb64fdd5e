import { type BackgroundLoad } from "./background-load.ts";
import { type Booking } from "../ledger/contract.ts";
import { type UsageWatch } from "../volumes/usage.ts";
import { type Slot } from "../network/network.ts";
import { type RouteEndpoint } from "./route-level.ts";

/** What a running actor holds on its node. */
export interface Running {
  sandboxId: string;
  slot: Slot;
  endpoints: RouteEndpoint[];
  booking: Booking;
  imageDigest: string;
  startedAtMs: number;
  /** Its root file system began from a tar of changes. */
  rootfsTar: boolean;
  /** Its session ended: paused and cut until it is granted anew. */
  cut: boolean;
  /** How full its volumes are. */
  usage: UsageWatch;
  /** How the background load of its memory ended; a suspend waits for it. */
  load: BackgroundLoad;
  /** Set once it is being stopped, by whomever. */
  stopped?: Promise<void> | undefined;
}
