import { type Requests, type Routers } from "../actors/node-context.ts";
import { type RouteLevel } from "../actors/route-level.ts";
import { type ExecSessions } from "./sessions.ts";

/** All that is open for an actor: requests through routers, and people's sessions in it. */
export class OpenRequests implements Requests {
  readonly #routers: Routers;
  readonly #sessions: ExecSessions;

  constructor(routers: Routers, sessions: ExecSessions) {
    this.#routers = routers;
    this.#sessions = sessions;
  }

  publish(route: RouteLevel): void {
    this.#routers.publish(route);
  }

  gone(uid: string): void {
    this.#routers.gone(uid);
  }

  async drain(uid: string, gateId: number, timeoutMs: number): Promise<number> {
    const [requests, sessions] = await Promise.all([
      this.#routers.drain(uid, gateId, timeoutMs),
      this.#sessions.drain(uid, timeoutMs),
    ]);
    return requests + sessions;
  }

  async cut(uid: string): Promise<void> {
    await this.#sessions.cut(uid, "the session was ended: its actor was suspended by force, or its node shuts down");
  }
}
