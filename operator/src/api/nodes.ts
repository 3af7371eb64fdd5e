import { type ServerResponse } from "node:http";
import { type Atelets } from "../atelets.ts";
import { type Leadership } from "../leader.ts";
import { version } from "../version.ts";
import { groupVersion } from "./discovery.ts";
import { answerJson } from "./server.ts";

/** GET nodes: the room of every node that has an atelet, and whether this operator reaches it. */
export function nodesHandler(atelets: Atelets, leadership: Leadership): (response: ServerResponse) => void {
  return (response) => {
    const { term } = leadership.proof();
    answerJson(response, 200, {
      kind: "NodeUsageList",
      apiVersion: groupVersion,
      operator: { version, term: Number(term), time: new Date().toISOString() },
      items: atelets.usage(),
    });
  };
}
