/** Exit codes, as `kubectl ate --help` lists them. */
export const exitCodes = {
  operationFailed: 1,
  usage: 2,
  notFound: 3,
  forbidden: 4,
  timeout: 5,
  unavailable: 6,
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
