import { parseArgs } from "node:util";
import { keptClusters, removeKept, removeStale } from "./harness/state.ts";
import { whyNoCluster } from "./harness/requirements.ts";
import { installSubstrate } from "./harness/substrate.ts";
import { TestCluster } from "./harness/cluster.ts";

const help = `npm run cluster -- up [--nodes N] [--bare] | down [N] | status

A Kubernetes cluster of real nodes on this machine, for a developer: it runs until \`down\`.

  up        starts one (2 nodes unless --nodes says otherwise), builds the images of this checkout, installs its chart and
            prints how to reach it; --bare leaves the cluster empty
  down [N]  ends cluster N, or all that \`up\` has started and what killed test runs have left
  status    lists those that run
`;

class UsageError extends Error {}

function say(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function up(nodes: number, bare: boolean): Promise<void> {
  const why = whyNoCluster();
  if (why !== undefined) throw new Error(why);
  const started = performance.now();
  const cluster = await TestCluster.start({ nodes, say });
  try {
    if (!bare) await installSubstrate(cluster, { say });
  } catch (error) {
    // kept, so that one can look why
    await cluster.keep();
    say(`the cluster runs: export KUBECONFIG=${cluster.kubeconfig}; end it: npm run cluster -- down`);
    throw error;
  }
  const { kubectl, helm } = cluster.tools;
  const { s3, addresses } = cluster;
  await cluster.keep();
  say(`
Cluster ${addresses.slot} runs (started in ${((performance.now() - started) / 1000).toFixed(1)} s). Its files and logs: ${cluster.folder}

  export KUBECONFIG=${cluster.kubeconfig}
  ${kubectl} get nodes
  ${helm} list -A

  registry   ${cluster.registry} (plain HTTP)
  S3         ${s3.url}, bucket ${s3.bucket}, AWS_ACCESS_KEY_ID=${s3.accessKeyId} AWS_SECRET_ACCESS_KEY=${s3.secretAccessKey}
  network    ${addresses.range}: nodes, pods and services are reached from this machine; names: dig @${addresses.dnsService}

End it: npm run cluster -- down ${addresses.slot}`);
}

async function down(slots: readonly number[]): Promise<void> {
  for (const slot of slots) {
    await removeKept(slot);
    say(`cluster ${slot} is gone`);
  }
}

function status(): void {
  const kept = keptClusters();
  if (kept.length === 0) say("no cluster runs; start one: npm run cluster -- up");
  for (const { slot, kept: cluster } of kept) {
    say(`cluster ${slot}: nodes ${cluster.nodes.join(", ")}; export KUBECONFIG=${cluster.kubeconfig}`);
  }
}

async function main(): Promise<void> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      nodes: { type: "string", default: "2" },
      bare: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  const [verb, which, ...more] = positionals;
  if (values.help) {
    say(help);
    return;
  }
  if (more.length > 0 || (which !== undefined && verb !== "down")) throw new UsageError(`too many words`);
  if (verb === "up") {
    if (!/^[1-9]\d?$/.test(values.nodes)) throw new UsageError(`--nodes ${values.nodes}: write a number from 1`);
    await up(Number(values.nodes), values.bare);
  } else if (verb === "down") {
    if (which !== undefined && !/^\d+$/.test(which)) throw new UsageError(`down ${which}: write a cluster's number`);
    await down(which === undefined ? keptClusters().map(({ slot }) => slot) : [Number(which)]);
    if (which === undefined) await removeStale(say);
  } else if (verb === "status") status();
  else throw new UsageError(verb === undefined ? "say what to do" : `there is no ${verb}`);
}

try {
  await main();
  // what the cluster's processes were started by still knows them
  process.exit(0);
} catch (error) {
  process.stderr.write(`cluster: ${error instanceof Error ? error.message : String(error)}\n`);
  if (error instanceof UsageError) process.stderr.write(`\n${help}`);
  process.exit(1);
}
