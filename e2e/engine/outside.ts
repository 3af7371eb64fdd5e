import { execFile, spawn, type ChildProcess } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { promisify } from "node:util";
import { eventually } from "../support/poll.ts";

const run = promisify(execFile);
const FORWARD = "/proc/sys/net/ipv4/ip_forward";
const PORT = 8090;
const SERVER = `
const { createServer } = require("node:http");
const server = createServer((request, response) => response.end("hello from outside"));
server.keepAliveTimeout = 600_000;
server.listen(${PORT});
`;

/** A machine that actors may talk to, in a network namespace of its own, with a server on it. */
export class Outside {
  readonly host: string;
  /** `HOST:PORT` of its server. */
  readonly address: string;
  readonly #netns: string;
  readonly #server: ChildProcess;
  readonly #forwarded: string;

  private constructor(own: { host: string; netns: string; server: ChildProcess; forwarded: string }) {
    this.host = own.host;
    this.address = `${own.host}:${PORT}`;
    this.#netns = own.netns;
    this.#server = own.server;
    this.#forwarded = own.forwarded;
  }

  static async open(): Promise<Outside> {
    // 198.18.0.0/15 is for benchmarks: no route of the machine is hidden by it
    const [high, low] = [randomInt(256), randomInt(64) * 4];
    const [host, inside] = [`198.19.${high}.${low + 1}`, `198.19.${high}.${low + 2}`];
    const netns = `out-${process.pid}`;
    const veth = `out${process.pid}`;
    const forwarded = readFileSync(FORWARD, "utf8");
    // local mode leaves it to the machine whether its actors reach what is beyond
    writeFileSync(FORWARD, "1");
    await run("ip", ["netns", "add", netns]);
    await run("ip", ["link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", netns]);
    await run("ip", ["addr", "add", `${host}/30`, "dev", veth]);
    await run("ip", ["link", "set", veth, "up"]);
    await run("ip", ["-n", netns, "addr", "add", `${inside}/30`, "dev", "eth0"]);
    for (const link of ["lo", "eth0"]) await run("ip", ["-n", netns, "link", "set", link, "up"]);
    const server = spawn("nsenter", [`--net=/run/netns/${netns}`, process.execPath, "-e", SERVER], { stdio: "ignore" });
    const outside = new Outside({ host: inside, netns, server, forwarded });
    try {
      await eventually(async () => (await fetch(`http://${outside.address}/`)).text(), { deadlineMs: 10_000 });
    } catch (error) {
      await outside.close();
      throw error;
    }
    return outside;
  }

  /** The file of its network namespace. */
  get netns(): string {
    return `/run/netns/${this.#netns}`;
  }

  async close(): Promise<void> {
    const ended = once(this.#server, "exit");
    this.#server.kill("SIGKILL");
    await ended;
    await run("ip", ["netns", "del", this.#netns]);
    writeFileSync(FORWARD, this.#forwarded);
  }
}
