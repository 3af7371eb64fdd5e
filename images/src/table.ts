import { type ToolPaths } from "@substrate/local/tools/find.ts";

/** One image of a part of Substrate. */
export interface PartImage {
  description: string;
  /** Bundles in /opt/substrate by file name, and their sources. */
  bundles: Readonly<Record<string, string>>;
  /** The bundle that the image starts. */
  main: string;
  /** Debian's packages beside `commonPackages`. */
  packages: readonly string[];
  /** Go programs in /usr/local/bin. */
  tools: readonly Extract<keyof ToolPaths, "runsc" | "crane" | "umoci">[];
  /** Native npm packages that cannot be bundled. */
  native: boolean;
  user: string;
  ports: readonly number[];
  /** Programs that the image must be able to start. */
  checks: readonly (readonly string[])[];
  /** What `main` says without its flags, by which it is known to load. */
  complains: RegExp;
}

export type PartName = "operator" | "atelet" | "router";
export type ExampleName = "counter" | "python" | "node";
export type ImageName = PartName | ExampleName;

/** Files of a bundle and of its worker threads all lie here; lib/src/script-url.ts finds them beside each other. */
export const BUNDLES = "/opt/substrate";
export const NODE = "/usr/local/bin/node";

/** Whom operator and router run as: a number that distributions use for nobody else, as distroless images do. */
export const NONROOT = 65_532;

/** What node needs, and the authorities that registries and stores are checked with. */
export const commonPackages = ["libc6", "libstdc++6", "libgcc-s1", "ca-certificates"] as const;

/**
 * What maintainer scripts need, which never run here (packages are only unpacked): said to be installed already, so
 * that apt doesn't fetch them.
 */
export const scriptsOnly = ["debconf", "openssl", "dpkg", "debianutils", "perl-base", "init-system-helpers"] as const;

const version = ["--version"];

export const partImages: Readonly<Record<PartName, PartImage>> = {
  operator: {
    description: "Places actors on nodes, keeps their status, serves suspend, resume, log, exec and proxy",
    bundles: { "operator.mjs": "operator/src/main.ts" },
    main: "operator.mjs",
    packages: [],
    tools: [],
    native: false,
    user: `${NONROOT}:${NONROOT}`,
    ports: [7444, 8443, 9464],
    checks: [[NODE, ...version]],
    complains: /--[a-z-]+ is missing/,
  },
  atelet: {
    description: "Runs, suspends and resumes the actors of one node",
    bundles: {
      "supervisor.mjs": "atelet/src/supervisor/main.ts",
      "atelet.mjs": "atelet/src/main.ts",
      "mount-worker.mjs": "atelet/src/volumes/mount-worker.ts",
      "writeback-worker.mjs": "atelet/src/writeback/worker.ts",
      "disk-worker.mjs": "atelet/src/disk/disk-worker.ts",
      "lane-worker.mjs": "atelet/src/network/lane-worker.ts",
      "pages-worker.mjs": "atelet/src/pages/pages-worker.ts",
      "copy-worker.mjs": "atelet/src/store/copy-worker.ts",
      "s3-worker.mjs": "atelet/src/store/s3/s3-worker.ts",
    },
    main: "supervisor.mjs",
    // libnftables, tar, cp, du and umount are used by the atelet; nft, ip, a shell and the rest by who looks into it
    packages: ["nftables", "iproute2", "util-linux", "mount", "tar", "coreutils", "dash"],
    tools: ["runsc", "crane", "umoci"],
    native: true,
    user: "0:0",
    ports: [7443, 9464],
    checks: [
      [NODE, ...version],
      ["runsc", ...version],
      ["crane", "version"],
      ["umoci", ...version],
      ["nft", ...version],
      ["ip", "-V"],
      ["tar", ...version],
      ["cp", ...version],
      ["du", ...version],
      ["umount", ...version],
    ],
    complains: /atelet: --[a-z-]+: expects/,
  },
  router: {
    description: "Brings HTTP requests to actors: finds, holds, wakes, counts",
    bundles: { "router.mjs": "router/src/main.ts" },
    main: "router.mjs",
    packages: [],
    tools: [],
    native: false,
    user: `${NONROOT}:${NONROOT}`,
    ports: [8080, 9464],
    checks: [[NODE, ...version]],
    complains: /required option '--[a-z-]+/,
  },
};

const exampleNames: readonly ExampleName[] = ["counter", "python", "node"];
export const imageNames: readonly ImageName[] = [...(Object.keys(partImages) as PartName[]), ...exampleNames];

export function isPart(name: ImageName): name is PartName {
  return name in partImages;
}
