import { setImmediate as nextTurn } from "node:timers/promises";
import { parseArgs } from "node:util";
import { join, resolve } from "node:path";
import { abortable } from "./abortable.ts";
import { type LocalCluster, startLocalCluster } from "./cluster.ts";
import { defaultStateFolder } from "./config.ts";
import { applyFile, prepareCounter, waitForActor } from "./example.ts";
import { bundlePlugin, linkKubectl } from "./plugin.ts";
import { StatusLine } from "./status-line.ts";
import { tour } from "./tour.ts";

const ACTOR_TIMEOUT_MS = 60_000;
const PARENT_POLL_MS = 1_000;

const help = `npm start [-- --state DIR]

Runs a Substrate cluster on this machine until Ctrl-C: API server, operator, one node and the router.

  --state DIR   keep everything in DIR (default: $SUBSTRATE_STATE, else ~/.local/state/substrate);
                a later start on the same DIR goes on with the same actors
  --help        this text
`;

/** A start that was ended by its user before it was complete. */
class GivenUp extends Error {
  constructor(why: string) {
    super(`given up (${why})`);
  }
}

function welcome(cluster: LocalCluster, seconds: string): string {
  const bin = join(cluster.stateDir, "bin");
  return `
Substrate runs (started in ${seconds} s). All that it keeps is in ${cluster.stateDir}:
the snapshot store in store/, logs in log/.

In another shell:

  export KUBECONFIG=${cluster.kubeconfig}
  export PATH=${bin}:$PATH
  export PORT=${cluster.routerPort}

${tour.replaceAll(/^(?=.)/gm, "  ")}
A client that does not resolve *.localhost: curl -H 'Host: counter.default.${cluster.domain}' 127.0.0.1:$PORT
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
  let isUp = false;
  void ending.then((why) => {
    if (!isUp) say(`giving up (${why}): ending what was started`);
    abort.abort(new GivenUp(why));
  });
  say(`starting a cluster in ${stateDir}`);
  const cluster = await startLocalCluster({ stateDir, say, signal: abort.signal });
  try {
    say("API server, operator, atelet and router are ready");
    const [bin, examples] = [join(cluster.stateDir, "bin"), join(cluster.stateDir, "examples")];
    linkKubectl(bin, cluster.tools.kubectl);
    const made = Promise.all([prepareCounter(examples, abort.signal), bundlePlugin(bin)]);
    const [example] = await abortable(made, abort.signal);
    await applyFile(cluster, example, abort.signal);
    say("applied examples/counter; waiting until it is Ready");
    await waitForActor(cluster, "counter", ACTOR_TIMEOUT_MS, abort.signal);
    isUp = true;
    status.say(welcome(cluster, seconds()));
    status.start(cluster.client);
    const why = await ending;
    status.stop();
    say(`ending (${why}): suspending running actors`);
  } catch (error) {
    // the terminal ends esbuild's own process at the same time: our signal may be the next event
    await nextTurn();
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
  const end = error instanceof GivenUp ? "; nothing is left running" : "";
  process.stderr.write(`start: ${error instanceof Error ? error.message : String(error)}${end}\n`);
  process.exitCode = 1;
}
