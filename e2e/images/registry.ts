import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { eventually } from "../support/poll.ts";
import { tools } from "../support/tools.ts";

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port");
  return address.port;
}

export interface TestRegistry {
  /** host:port */
  address: string;
  stop(): Promise<void>;
}

/** A registry on loopback that keeps its blobs in `dir`. */
export async function startRegistry(dir: string): Promise<TestRegistry> {
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(tools.crane, ["registry", "serve", "--address", address, "--disk", dir], { stdio: "ignore" });
  const ended = once(child, "exit");
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  try {
    await eventually(
      async () => {
        await (await fetch(`http://${address}/v2/`)).arrayBuffer();
      },
      { deadlineMs: 10_000 },
    );
  } catch (error) {
    await stop();
    throw error;
  }
  return { address, stop };
}
