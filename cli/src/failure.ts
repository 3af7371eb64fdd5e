/** Exit codes beside 0, as `kubectl ate --help` and docs/reference/cli.md list them. */
export const exitCodes = {
  operationFailed: { code: 1, meaning: "the operation failed, or was refused" },
  usage: { code: 2, meaning: "wrong usage, or no usable kubeconfig" },
  notFound: { code: 3, meaning: "no such actor, or no such namespace" },
  forbidden: { code: 4, meaning: "not allowed (the message names the missing right)" },
  timeout: { code: 5, meaning: "not ended within --timeout; it goes on" },
  unavailable: {
    code: 6,
    meaning: "the API server or Substrate can't be reached, or Substrate isn't installed",
  },
} as const;

export type Ending = keyof typeof exitCodes;

/** What a person is told instead of a result: the object, the reason, and (hint) what can be done. */
export class CommandFailure extends Error {
  override readonly name = "CommandFailure";
  readonly ending: Ending;
  readonly hint: string | undefined;

  constructor(ending: Ending, message: string, hint?: string, cause?: unknown) {
    super(message, { cause });
    this.ending = ending;
    this.hint = hint;
  }
}
