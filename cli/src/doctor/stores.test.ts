import { expect, test } from "vitest";
import { type NodeUsage } from "../inspection.ts";
import { unusableStores } from "./installation.ts";

function node(name: string, stores?: NodeUsage["stores"]): NodeUsage {
  const told = stores === undefined ? {} : { stores };
  const known = { address: "", runtime: "", reachable: true, unschedulable: false, actors: 0, running: 0 };
  return { metadata: { name }, ...known, ...told };
}

test("wrong keys of a store are a problem before an actor needs it, told once for all nodes", () => {
  const wrong = [{ name: "default", message: "http://s3 refuses the keys" }];
  const found = unusableStores([node("a", wrong), node("b", wrong), node("c", []), node("of-an-earlier-version")]);
  expect(found).toMatchObject([{ level: "problem" }]);
  expect(JSON.stringify(found)).toContain("store default cannot be used: http://s3 refuses the keys (seen on a, b)");
});
