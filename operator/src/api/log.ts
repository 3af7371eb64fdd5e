import { once } from "node:events";
import { isCancelled } from "@substrate/lib/rpc/errors.ts";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { keyOf } from "@substrate/lib/kube/client.ts";
import { type Atelets } from "../atelets.ts";
import { type Handler } from "./server.ts";
import { badRequest } from "./status-error.ts";

/** tail: the last lines to begin with, -1 for all that is kept (the default). */
export function parseLogQuery(query: URLSearchParams): { follow: boolean; tailLines: number } {
  const help = "allowed are follow=true|false and tail=N (lines, -1 for all)";
  const unknown = [...query.keys()].find((key) => key !== "follow" && key !== "tail");
  if (unknown !== undefined) throw badRequest(`query parameter "${unknown}" is not known: ${help}`);
  const follow = query.get("follow") ?? "false";
  const tail = query.get("tail") ?? "-1";
  if (follow !== "true" && follow !== "false") throw badRequest(`follow="${follow}": ${help}`);
  const tailLines = Number(tail);
  if (!/^-?\d+$/.test(tail) || tailLines > 2 ** 31 - 1 || tailLines < -1) throw badRequest(`tail="${tail}": ${help}`);
  return { follow: follow === "true", tailLines };
}

/** GET actors/NAME/log: the program's output as text, from the node that holds the actor. */
export function logHandler(atelets: Atelets): Handler {
  return async ({ actor, query, response, signal }) => {
    const { follow, tailLines } = parseLogQuery(query);
    const nodeName = actor.status?.assignment?.nodeName;
    if (actor.status?.assignment === undefined) {
      const message = `Actor ${keyOf(actor)} has never run, so there is no output: its first request starts it`;
      throw new SubstrateError("NOT_READY", message);
    }
    if (nodeName === undefined) {
      const message = `Actor ${keyOf(actor)} is on no node now; its output is kept on the node that it ran on last`;
      throw new SubstrateError("NODE_UNAVAILABLE", `${message}: wake it to read on`);
    }
    const output = atelets.require(nodeName).readLog(actor.metadata.uid ?? "", tailLines, follow, signal);
    try {
      for await (const { data } of output) {
        start(response);
        if (!response.write(data)) await once(response, "drain", { signal });
      }
      start(response);
      response.end();
    } catch (error) {
      if (signal.aborted || isCancelled(error)) return;
      throw error;
    }
  };
}

/** Only with the first output, so that a refusal can still be a Status. */
function start(response: Parameters<Handler>[0]["response"]): void {
  if (!response.headersSent) response.writeHead(200, { "content-type": "text/plain; charset=utf-8" });
}
