import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { ProgramError, runProgram } from "./program.ts";
import { pullSecretFor } from "./pull-secrets.ts";
import { fullName, readRegistryConfig, sourcesOf, type RegistryConfig, type Source } from "./registry-config.ts";

export interface RegistryOptions {
  /** Absolute path of crane. */
  crane: string;
  /** Absolute path of a file that readRegistryConfig reads, before each use; undefined: crane's own settings. */
  registryConfigPath?: string | undefined;
  /** For one whole pull; default 10 min. */
  pullTimeoutMs?: number;
}

/** A manifest is a few KiB. */
const askTimeoutMs = 20_000;
const defaultPullTimeoutMs = 600_000;

/** Pauses before the second and third try. */
const retryPausesMs = [300, 1500];

interface Answer {
  pattern: RegExp;
  code: "IMAGE_UNAVAILABLE" | "IMAGE_INVALID";
  fix: string;
  /** Whether other credentials could help. */
  aboutAccess?: true;
}

/** What another try cannot mend, by what crane prints, and the fix. */
const answers: readonly Answer[] = [
  { pattern: /no child with platform/, code: "IMAGE_INVALID", fix: "build it for linux/amd64" },
  {
    pattern: /could not parse reference|parsing reference/,
    code: "IMAGE_INVALID",
    fix: "write registry/repository:tag or …@sha256:…",
  },
  {
    pattern: /MANIFEST_UNKNOWN|NAME_UNKNOWN|NAME_INVALID|status code 404/,
    code: "IMAGE_UNAVAILABLE",
    fix: "push it, or correct its name, tag or digest",
  },
  {
    pattern: /UNAUTHORIZED|DENIED|status code 40[13]/,
    code: "IMAGE_UNAVAILABLE",
    fix: "correct its name, or give the node access to the registry",
    aboutAccess: true,
  },
  {
    pattern: /x509: certificate signed by unknown authority/,
    code: "IMAGE_UNAVAILABLE",
    fix: "name a file with its authority as caFile in the registries' configuration",
  },
  { pattern: /no space left on device/, code: "IMAGE_UNAVAILABLE", fix: "free space on the node's disk" },
];

const manifestSchema = z.object({ layers: z.array(z.object({ size: z.number().nonnegative() })) });

/** One way to ask for an image, with what crane needs for it. */
interface Attempt {
  reference: string;
  flags: readonly string[];
  env: Readonly<Record<string, string>>;
  /** For messages: with which credentials. */
  as: string;
}

/**
 * Registries, asked by crane: mirrors first, then the image's own. Plain HTTP is used for loopback addresses and
 * mirrors that are said to be insecure only. Every call is bounded.
 */
export class Registry {
  readonly #crane: string;
  readonly #configPath: string | undefined;
  readonly #pullTimeoutMs: number;

  constructor(options: RegistryOptions) {
    this.#crane = options.crane;
    this.#configPath = options.registryConfigPath;
    this.#pullTimeoutMs = options.pullTimeoutMs ?? defaultPullTimeoutMs;
  }

  /** The digest of the manifest for this platform. Throws IMAGE_UNAVAILABLE or IMAGE_INVALID. */
  async resolve(reference: string): Promise<string> {
    return (await this.#ask(reference, (from) => ["digest", ...onPlatform, "--", from], askTimeoutMs)).trim();
  }

  /** Bytes of the layers as they are stored, compressed ones compressed. */
  async layersBytes(reference: string): Promise<number> {
    const text = await this.#ask(reference, (from) => ["manifest", ...onPlatform, "--", from], askTimeoutMs);
    const manifest = manifestSchema.safeParse(JSON.parse(text));
    if (manifest.success) return manifest.data.layers.reduce((sum, { size }) => sum + size, 0);
    throw new SubstrateError("IMAGE_INVALID", `${reference} names no image: ${z.prettifyError(manifest.error)}`);
  }

  /** Pulls into an OCI layout; crane checks every blob's digest. `dir` must not exist. */
  async pull(reference: string, dir: string): Promise<void> {
    await this.#ask(
      reference,
      (from) => ["pull", "--format=oci", ...onPlatform, "--", from, dir],
      this.#pullTimeoutMs,
      () => rm(dir, { recursive: true, force: true }),
    );
  }

  /** Asks one place after the other. @param again runs before the next one. */
  async #ask(
    reference: string,
    args: (from: string) => readonly string[],
    timeoutMs: number,
    again?: () => Promise<void>,
  ): Promise<string> {
    if (this.#configPath === undefined) {
      return this.#run(reference, { reference, flags: [], env: {}, as: "" }, args(reference), timeoutMs, retryPausesMs);
    }
    const config = await readRegistryConfig(this.#configPath);
    const sources = sourcesOf(reference, config.mirrors);
    const refusals: string[] = [];
    for (const [i, source] of sources.entries()) {
      // a mirror is tried once: the next place is the other try
      const pausesMs = i === sources.length - 1 ? retryPausesMs : [];
      try {
        return await this.#asking(source, config, (attempt) =>
          this.#run(reference, attempt, args(source.reference), timeoutMs, pausesMs),
        );
      } catch (error) {
        if (!(error instanceof SubstrateError)) throw error;
        if (i === sources.length - 1) {
          if (refusals.length === 0) throw error;
          const message = `${error.message} (before that, its mirrors: ${refusals.join("; ")})`;
          const { retryAfterMs } = error;
          throw new SubstrateError(error.code, message, {
            cause: error,
            ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
          });
        }
        refusals.push(`${source.location}: ${error.message}`);
        await again?.();
      }
    }
    throw new SubstrateError("INTERNAL", `image ${reference} has no place to ask`);
  }

  /** Runs `work` with a docker configuration that has nothing but what this place needs; it is gone afterwards. */
  async #asking<T>(source: Source, config: RegistryConfig, work: (attempt: Attempt) => Promise<T>): Promise<T> {
    const secret = await pullSecretFor(source.reference, config.pullSecrets);
    const folder = await mkdtemp(join(tmpdir(), "substrate-pull-"));
    try {
      const registry = fullName(source.reference).split("/")[0] ?? "";
      const key = registry === "docker.io" ? "https://index.docker.io/v1/" : registry;
      const auths = secret === undefined ? {} : { [key]: secret.auth };
      await writeFile(join(folder, "config.json"), JSON.stringify({ auths }), { mode: 0o600 });
      return await work({
        reference: source.reference,
        flags: source.insecure ? ["--insecure"] : [],
        env: { DOCKER_CONFIG: folder, ...(config.caFile === undefined ? {} : { SSL_CERT_FILE: config.caFile }) },
        as:
          secret === undefined
            ? `no pull secret has an entry for ${registry}`
            : `asked with the pull secret ${secret.folder}, entry ${secret.entry}`,
      });
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  async #run(
    reference: string,
    { flags, env, as }: Attempt,
    args: readonly string[],
    timeoutMs: number,
    pausesMs: readonly number[],
  ): Promise<string> {
    const deadline = performance.now() + timeoutMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        const leftMs = Math.max(1, Math.ceil(deadline - performance.now()));
        return await runProgram(this.#crane, [...args.slice(0, 1), ...flags, ...args.slice(1)], {
          timeoutMs: leftMs,
          env,
        });
      } catch (error) {
        if (!(error instanceof ProgramError)) throw error;
        const answer = answers.find(({ pattern }) => pattern.test(error.stderr));
        if (answer) {
          const note = answer.aboutAccess === true && as !== "" ? ` (${as})` : "";
          const message = `image ${reference}: ${lastLine(error)}${note}; ${answer.fix}`;
          throw new SubstrateError(answer.code, message, { cause: error });
        }
        const pauseMs = pausesMs[attempt];
        if (pauseMs === undefined || error.timedOut || performance.now() + pauseMs > deadline) {
          throw unreachable(reference, error);
        }
        await delay(pauseMs);
      }
    }
  }
}

const onPlatform = ["--platform", "linux/amd64"];

function lastLine(error: ProgramError): string {
  return (
    error.stderr
      .split("; ")
      .at(-1)
      ?.replace(/^Error: /, "") ?? error.message
  );
}

function unreachable(reference: string, error: ProgramError): SubstrateError {
  const reason = error.timedOut ? "the registry did not answer in time" : lastLine(error);
  const message = `image ${reference}: ${reason}; check that this node reaches the registry`;
  return new SubstrateError("IMAGE_UNAVAILABLE", message, { cause: error, retryAfterMs: 5000 });
}
