import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Remote } from "./remote.ts";

export const addresses = {
  pod: "10.77.0.2",
  router: "10.77.0.3",
  stranger: "10.77.0.5",
  /** The host on the bridge: also the pod's gateway. */
  lan: "10.77.0.4",
  internet: "198.51.100.9",
  deniedByFlag: "198.51.100.200",
  resolver: "10.78.0.53",
  metadata: "169.254.169.254",
} as const;

type Place = "lan" | "pod" | "router" | "stranger";

function sh(command: string): string {
  return execFileSync("sh", ["-ec", command], { encoding: "utf8" });
}

/** A pod, two other pods and a host that is bridge, gateway and internet; every namespace lives as long as its holder. */
export class Topology {
  readonly #holders = new Map<Place, ChildProcess>();
  readonly #peers: Remote[] = [];
  readonly #dir = mkdtempSync(join(tmpdir(), "substrate-network-"));
  readonly netnsDir = join(this.#dir, "netns");

  async up(): Promise<void> {
    for (const place of ["lan", "pod", "router", "stranger"] as const) await this.#hold(place);
    this.run(
      "lan",
      "ip link set lo up; ip link add br0 type bridge; ip addr add 10.77.0.4/24 dev br0; ip link set br0 up",
    );
    for (const name of ["internet", "deniedByFlag", "resolver", "metadata"] as const) {
      this.run("lan", `ip addr add ${addresses[name]}/32 dev lo`);
    }
    for (const place of ["pod", "router", "stranger"] as const) {
      const link = `v-${place}`;
      this.run("lan", `ip link add ${link} type veth peer name eth0 netns ${this.pid(place)}`);
      this.run("lan", `ip link set ${link} master br0 up`);
      this.run(place, `ip link set lo up; ip addr add ${addresses[place]}/24 dev eth0; ip link set eth0 up`);
      this.run(place, `ip route add default via ${addresses.lan}`);
    }
    const resolvConf = join(this.#dir, "resolv.conf");
    writeFileSync(resolvConf, `nameserver ${addresses.resolver}\n`);
    sh(`nsenter -t ${this.pid("pod")} -m mount --bind ${resolvConf} /etc/resolv.conf`);
  }

  run(place: Place, command: string): string {
    return execFileSync("nsenter", ["-t", this.pid(place), "-n", "-m", "sh", "-ec", command], { encoding: "utf8" });
  }

  peer(place: Place): Remote {
    return this.#peer(["-t", this.pid(place), "-n"]);
  }

  /** A program inside a slot. */
  actor(netnsPath: string): Remote {
    return this.#peer(["-t", this.pid("pod"), "-m", "nsenter", `--net=${netnsPath}`]);
  }

  driver(): Remote {
    return this.#track(
      new Remote(
        ["-t", this.pid("pod"), "-n", "-m"],
        new URL("./driver.ts", import.meta.url),
        this.netnsDir,
        addresses.pod,
      ),
    );
  }

  pid(place: Place): string {
    const pid = this.#holders.get(place)?.pid;
    if (pid === undefined) throw new Error(`${place} is not up`);
    return String(pid);
  }

  async down(): Promise<void> {
    for (const peer of this.#peers) await peer.kill();
    for (const holder of this.#holders.values()) {
      if (holder.exitCode !== null || holder.signalCode !== null) continue;
      holder.kill("SIGKILL");
      await once(holder, "exit");
    }
    rmSync(this.#dir, { recursive: true, force: true });
  }

  #peer(enter: readonly string[]): Remote {
    return this.#track(new Remote(enter, new URL("./peer.ts", import.meta.url)));
  }

  #track(remote: Remote): Remote {
    this.#peers.push(remote);
    return remote;
  }

  async #hold(place: Place): Promise<void> {
    const args = ["--net", "--mount", "--propagation", "private", "sh", "-c", "echo up; exec sleep 600"];
    const holder = spawn("unshare", args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#holders.set(place, holder);
    await once(holder.stdout, "data", { signal: AbortSignal.timeout(10_000) });
    const own = readlinkSync(`/proc/${String(holder.pid)}/ns/net`) !== readlinkSync("/proc/self/ns/net");
    if (!own) throw new Error(`${place} has no network namespace of its own: is this run as root?`);
  }
}
