import { type Node } from "@substrate/lib/kube/types.ts";

/** What is known of a node whose atelet cannot be asked. */
export interface AbsenceFacts {
  nodeName: string;
  /** Of its Lease; undefined without a valid one. */
  address: string | undefined;
  /** Its Lease was renewed since it has not answered, and within the last 15 s. */
  renews: boolean;
  node: Node | undefined;
  /** Some Node object exists: then one that is missing was deleted. */
  hasNodes: boolean;
}

/** Why it cannot be asked, for a person: to be read after "waits for". */
export function absenceText({ address, hasNodes, node, nodeName, renews }: AbsenceFacts): string {
  const gone = node === undefined && hasNodes;
  const ready = node?.status?.conditions?.find(({ type }) => type === "Ready");
  const which = (text: string): string => `node ${nodeName}, ${text}`;
  if (address === undefined) {
    if (gone) return which("which is gone (no Node, no atelet)");
    const where = node === undefined ? "" : ", though the Node is there: look for its atelet's pod";
    return which(`which has no atelet now${where}`);
  }
  if (renews)
    return which(`whose atelet does not answer at ${address}, though it renews its Lease: look at the network`);
  if (gone) return which("whose Node object is gone and whose atelet does not answer");
  if (ready !== undefined && ready.status !== "True")
    return which("which is not Ready and whose atelet does not answer");
  const pod = ready === undefined ? "" : ", though the Node is Ready: look at its atelet's pod";
  return which(`whose atelet does not answer${pod}`);
}
