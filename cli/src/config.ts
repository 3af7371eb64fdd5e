import { parseDurationMs } from "@substrate/lib/resources.ts";
import { type Command, InvalidArgumentError, Option } from "commander";
import { type ConnectionFlags } from "./connection.ts";

/** The flags that every command has, named as kubectl's. */
export function withConnection(command: Command): Command {
  return command
    .option("-n, --namespace <name>", "the actor's namespace (default: the context's)")
    .option("--context <name>", "context of the kubeconfig")
    .option("--kubeconfig <file>", "the kubeconfig (default: $KUBECONFIG, else ~/.kube/config)");
}

export type WaitFlags = ConnectionFlags & { wait: boolean; timeout: number; output?: "json" };

export function withWait(command: Command): Command {
  return command
    .option("--no-wait", "return as soon as the operation has begun")
    .addOption(
      new Option("--timeout <duration>", "how long to wait for its end, for instance 30s or 10m")
        .argParser(duration)
        .default(300_000, "5m"),
    )
    .addOption(new Option("-o, --output <format>", "print the result for programs").choices(["json"]));
}

/** One of the words, in lower case: Templates begin them with a capital. */
export function oneOf(words: readonly string[]): (text: string) => string {
  return (text) => {
    const word = text.toLowerCase();
    if (words.includes(word)) return word;
    throw new InvalidArgumentError(`Allowed choices are ${words.join(", ")}.`);
  };
}

/** Milliseconds of a duration such as 30s. */
function duration(text: string): number {
  try {
    const ms = parseDurationMs(text);
    // the longest that a timer of Node can wait
    if (ms >= 1 && ms < 2 ** 31) return ms;
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
  throw new InvalidArgumentError("It must be between 1ms and 24 days.");
}

export function wholeNumber(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value) || value < 0) throw new InvalidArgumentError("It must be a whole number.");
  return value;
}

export function portNumber(text: string): number {
  const value = wholeNumber(text);
  if (value > 65_535) throw new InvalidArgumentError("A port is between 0 and 65535.");
  return value;
}
