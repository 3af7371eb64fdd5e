import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { SubstrateError } from "@substrate/lib/errors.ts";
import { ProgramError, runProgram } from "./program.ts";

export interface RegistryOptions {
  /** Absolute path of crane. */
  crane: string;
  /** For one whole pull; default 10 min. */
  pullTimeoutMs?: number;
}

/** A manifest is a few KiB. */
const askTimeoutMs = 20_000;
const defaultPullTimeoutMs = 600_000;

/** Pauses before the second and third try. */
const retryPausesMs = [300, 1500];

/** What another try cannot mend, by what crane prints, and the fix. */
const answers: readonly (readonly [pattern: RegExp, code: "IMAGE_UNAVAILABLE" | "IMAGE_INVALID", fix: string])[] = [
  [/no child with platform/, "IMAGE_INVALID", "build it for linux/amd64"],
  [/could not parse reference|parsing reference/, "IMAGE_INVALID", "write registry/repository:tag or …@sha256:…"],
  [
    /MANIFEST_UNKNOWN|NAME_UNKNOWN|NAME_INVALID|status code 404/,
    "IMAGE_UNAVAILABLE",
    "push it, or correct its name, tag or digest",
  ],
  [
    /UNAUTHORIZED|DENIED|status code 40[13]/,
    "IMAGE_UNAVAILABLE",
    "correct its name, or give the node access to the registry",
  ],
  [/no space left on device/, "IMAGE_UNAVAILABLE", "free space on the node's disk"],
];

const manifestSchema = z.object({ layers: z.array(z.object({ size: z.number().nonnegative() })) });

/** Registries, asked by crane. Plain HTTP is used for loopback addresses only, as crane does. Every call is bounded. */
export class Registry {
  readonly #crane: string;
  readonly #pullTimeoutMs: number;

  constructor(options: RegistryOptions) {
    this.#crane = options.crane;
    this.#pullTimeoutMs = options.pullTimeoutMs ?? defaultPullTimeoutMs;
  }

  /** The digest of the manifest for this platform. Throws IMAGE_UNAVAILABLE or IMAGE_INVALID. */
  async resolve(reference: string): Promise<string> {
    return (await this.#run(reference, ["digest", ...onPlatform, "--", reference], askTimeoutMs)).trim();
  }

  /** Bytes of the layers as they are stored, compressed ones compressed. */
  async layersBytes(reference: string): Promise<number> {
    const text = await this.#run(reference, ["manifest", ...onPlatform, "--", reference], askTimeoutMs);
    const manifest = manifestSchema.safeParse(JSON.parse(text));
    if (manifest.success) return manifest.data.layers.reduce((sum, { size }) => sum + size, 0);
    throw new SubstrateError("IMAGE_INVALID", `${reference} names no image: ${z.prettifyError(manifest.error)}`);
  }

  /** Pulls into an OCI layout; crane checks every blob's digest. `dir` must not exist. */
  async pull(reference: string, dir: string): Promise<void> {
    await this.#run(reference, ["pull", "--format=oci", ...onPlatform, "--", reference, dir], this.#pullTimeoutMs);
  }

  async #run(reference: string, args: readonly string[], timeoutMs: number): Promise<string> {
    const deadline = performance.now() + timeoutMs;
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await runProgram(this.#crane, args, { timeoutMs: Math.max(1, Math.ceil(deadline - performance.now())) });
      } catch (error) {
        if (!(error instanceof ProgramError)) throw error;
        const answer = answers.find(([pattern]) => pattern.test(error.stderr));
        if (answer)
          throw new SubstrateError(answer[1], `image ${reference}: ${lastLine(error)}; ${answer[2]}`, { cause: error });
        const pauseMs = retryPausesMs[attempt];
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
