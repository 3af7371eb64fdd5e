import { parseArgs } from "node:util";
import { mkdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { type LocalCluster, startLocalCluster } from "./cluster.ts";
import { defaultStateFolder } from "./config.ts";
import { applyFile, prepareCounter, waitForActor } from "./example.ts";
import { bundlePlugin, linkKubectl } from "./plugin.ts";
import { StatusLine } from "./status-line.ts";

const ACTOR_TIMEOUT_MS = 60_000;
const PARENT_POLL_MS = 1_000;

const help = `npm start [-- --state DIR]

Runs a Substrate cluster on this machine until Ctrl-C: API server, operator, one node and the router.

  --state DIR   keep everything in DIR (default: $SUBSTRATE_STATE, else ~/.local/state/substrate);
                a later start on the same DIR goes on with the same actors
  --help        this text
`;

function welcome(cluster: LocalCluster, seconds: string): string {
  const bin = join(cluster.stateDir, "bin");
  return `
Substrate runs (started in ${seconds} s; its state and logs are in ${cluster.stateDir}).

In another shell:

  export KUBECONFIG=${cluster.kubeconfig}
  export PATH=${bin}:$PATH

  kubectl get templates,actors,snapshots
  curl http://counter.default.${cluster.domain}:${cluster.routerPort}/      # wakes the counter
  kubectl ate suspend counter                     # memory, files and process sleep
  kubectl get actors,snapshots
  curl http://counter.default.${cluster.domain}:${cluster.routerPort}/      # counts on
  kubectl ate --help

A client that does not resolve *.localhost: curl -H 'Host: counter.default.${cluster.domain}' ${cluster.routerUrl}/
`;
}

/** Resolves with the reason to end: a signal, or that the process which started this one is gone. */
function reasonToEnd(): Promise<string> {
  const reason = Promise.withResolvers<string>();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      reason.resolve(signal);
    });
  }
  const parent = process.ppid;
  setInterval(() => {
    // npm that is killed cannot pass a signal on
    if (process.ppid !== parent) reason.resolve("the process that started it ended");
  }, PARENT_POLL_MS).unref();
  return reason.promise;
}

async function run(stateDir: string, status: StatusLine): Promise<void> {
  const started = performance.now();
  const seconds = (): string => ((performance.now() - started) / 1000).toFixed(1);
  const say = (line: string): void => {
    status.say(`[${seconds()} s] ${line}`);
  };
  const ending = reasonToEnd();
  const abort = new AbortController();
  void ending.then((why) => {
    abort.abort(new Error(`given up (${why})`));
  });
  const folder = (name: string): string => {
    mkdirSync(join(stateDir, name), { recursive: true, mode: 0o700 });
    return join(stateDir, name);
  };
  say(`starting a cluster in ${stateDir}`);
  const cluster = await startLocalCluster({ stateDir, say, signal: abort.signal });
  try {
    say("API server, operator, atelet and router are ready");
    linkKubectl(folder("bin"), cluster.tools.kubectl);
    const [example] = await Promise.all([prepareCounter(folder("examples")), bundlePlugin(folder("bin"))]);
    await applyFile(cluster, example);
    say("applied examples/counter; waiting until it is Ready");
    await waitForActor(cluster, "counter", ACTOR_TIMEOUT_MS, abort.signal);
    status.say(welcome(cluster, seconds()));
    status.start(cluster.client);
    const why = await ending;
    status.stop();
    say(`ending (${why}): suspending running actors`);
  } catch (error) {
    // whatever was given up says only that it was
    throw abort.signal.aborted ? abort.signal.reason : error;
  } finally {
    status.stop();
    await cluster.stop();
  }
  say("ended; nothing is left running");
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { state: { type: "string" }, help: { type: "boolean", default: false } } });
  if (values.help) {
    process.stdout.write(help);
    return;
  }
  await run(resolve(values.state ?? defaultStateFolder()), new StatusLine(process.stdout));
}

try {
  await main();
} catch (error) {
  process.stderr.write(`start: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
